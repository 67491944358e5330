//! The receiver's address. Everything behind the host may be a token, so it is never shown.

use url::Url;

use crate::{
    driver::address::scheme_alone,
    sink::{SinkError, SinkErrorKind},
};

pub(crate) fn parse(text: &str) -> Result<Url, SinkError> {
    let refused = |message: &str| Err(SinkError::new(SinkErrorKind::Misconfigured, message));
    let Ok(url) = Url::parse(text) else {
        return refused("the address of the webhook can't be read");
    };
    // The URL standard reads `https:host` and `https:///host` as `https://host`. Here each is a mistake.
    let rest = text.get(url.scheme().len()..).unwrap_or_default();
    let two_slashes = rest.starts_with("://") && !rest.starts_with(":///");
    if !matches!(url.scheme(), "http" | "https") || !two_slashes {
        return refused("the address of the webhook has no host");
    }
    if url.fragment().is_some() {
        return refused(
            "the address of the webhook has a `#`, and nothing behind it is ever sent: remove it",
        );
    }
    Ok(url)
}

/// Scheme and host. A path is shown as `/***`.
pub(crate) fn redacted(text: &str) -> String {
    let Ok(url) = parse(text) else {
        return scheme_alone(text);
    };
    let rest = match (url.path(), url.query()) {
        ("/", None) => "",
        _ => "/***",
    };
    url.origin().ascii_serialization() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_behind_the_host_is_shown() {
        for (url, shown) in [
            ("https://shop.example", "https://shop.example"),
            (
                "https://shop.example:8443/geheim",
                "https://shop.example:8443/***",
            ),
            ("http://127.0.0.1/?token=geheim", "http://127.0.0.1/***"),
            ("https://app:geheim@shop.example/", "https://shop.example"),
            ("https://", "https:…"),
        ] {
            assert_eq!(redacted(url), shown);
        }
    }

    #[test]
    fn an_address_without_a_host_is_refused_and_not_shown() {
        for url in [
            "https://",
            "https:geheim",
            "https:/geheim/x",
            "https:///geheim/x",
            "http://geheim:geheim@/x",
            "https://a/geheim#x",
            "ftp://geheim/",
        ] {
            let error = parse(url).unwrap_err();
            assert_eq!(error.kind, SinkErrorKind::Misconfigured);
            assert!(!error.message.contains("geheim"), "{error}");
        }
        assert!(parse("http://127.0.0.1:8080/hooks?of=shop").is_ok());
    }
}
