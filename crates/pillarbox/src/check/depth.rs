//! The nesting depth of JSON.

/// The maximum nesting depth of a payload.
pub(super) const MAX: usize = 512;

/// Counts brackets outside strings; the input must be valid JSON. A short text can't contain that many pairs
/// of brackets, and most payloads are short.
pub(super) fn is_over(json: &[u8], max: usize) -> bool {
    if json.len() / 2 <= max {
        return false;
    }
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for &byte in json {
        if in_string {
            (in_string, escaped) = match byte {
                _ if escaped => (true, false),
                b'\\' => (true, true),
                byte => (byte != b'"', false),
            };
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > max {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use crate::check::{CheckError, Limits};

    #[test]
    fn depth_is_counted_outside_strings() {
        let limits = Limits::default();
        let nested = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert_eq!(limits.payload(nested(512).as_bytes()), Ok(()));
        assert_eq!(
            limits.payload(nested(513).as_bytes()),
            Err(CheckError::PayloadTooDeep { max: 512 })
        );
        let text = format!(r#"["\\\"{}"]"#, "[".repeat(1000));
        assert_eq!(limits.payload(text.as_bytes()), Ok(()));
        let wide = format!("[{}[]]", "[],".repeat(1000));
        assert_eq!(limits.payload(wide.as_bytes()), Ok(()));
    }
}
