//! The names of callers. They are in logs and in the history of dead letters, and each has its own limit of requests.
//! A name says by its prefix where it comes from: nobody can take the name of a static token, which has no colon.

const CHARS_MAX: usize = 200;

/// The caller of a JWT.
pub(super) fn of_jwt(claim: &str) -> String {
    format!("jwt:{claim}")
}

/// The client with a certificate.
pub(super) fn of_certificate(common_name: &str) -> String {
    format!("cert:{common_name}")
}

/// Whether a name from outside has a bounded length and looks like what it is. Characters that break a line or change
/// the direction of the text could make a line of the log look like another one.
pub(in crate::http) fn is_plain(name: &str) -> bool {
    let deceives = |sign: char| {
        sign.is_control()
            || matches!(
                sign,
                '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            )
    };
    (1..=CHARS_MAX).contains(&name.chars().count()) && !name.chars().any(deceives)
}

/// What [`is_plain`] wants, for an error.
pub(super) fn rule() -> String {
    format!("text of 1 to {CHARS_MAX} characters that are no control characters")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_show_what_they_are() {
        for good in ["zoe", "Zoë", "山田 太郎", "a:b", "👩‍💻", &"x".repeat(CHARS_MAX)] {
            assert!(is_plain(good), "{good}");
        }
        for bad in [
            "",
            "a\nb",
            "a\u{1b}[2K",
            "a\u{85}b",
            "a\u{2028}b",
            "ops\u{202e}ecila",
            "\u{2066}ops",
            &"x".repeat(CHARS_MAX + 1),
        ] {
            assert!(!is_plain(bad), "{bad:?}");
        }
    }
}
