//! The registry's address.

use url::Url;

use super::RegistryError;

/// Parses the address. The error never shows it, because it may contain a password.
pub fn parse(url: &str) -> Result<Url, RegistryError> {
    let parsed = Url::parse(url).map_err(|error| RegistryError::Address(error.to_string()))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        // Do not show the scheme: in an address without one, the text before the first colon may be the user.
        return Err(RegistryError::Address("use http:// or https://".into()));
    }
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return Err(RegistryError::Address("it must not contain `?` or `#`".into()));
    }
    Ok(parsed)
}

pub(super) fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let hex = |at: usize| -> Option<u8> { u8::from_str_radix(text.get(at..at + 2)?, 16).ok() };
    let (mut decoded, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        match (bytes[at] == b'%').then(|| hex(at + 1)).flatten() {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_can_not_be_used_is_not_shown() {
        for bad in [
            "geheim:password@registry:8081",
            "geheim",
            "ftp://geheim@registry",
            "http://geheim@registry:port",
            "http://registry?geheim",
            "http://registry#geheim",
        ] {
            let error = parse(bad).unwrap_err().to_string();
            assert!(!error.contains("geheim"), "{error}");
        }
        assert!(parse("https://app:geheim@registry:8081/api/").is_ok());
    }
}
