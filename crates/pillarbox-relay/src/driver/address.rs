//! Addresses as text: their parts, and what of them may be shown. Each driver chooses the functions that fit.

use url::{Position, Url};

/// An address without its password, for people. An address that no driver knows is treated as a URL, and its user as a
/// token.
pub fn redacted(url: &str) -> String {
    let about = super::sink(url).map(|driver| &driver.about);
    match about.or_else(|| super::store(url).map(|driver| &driver.about)) {
        Some(about) => (about.redact)(url),
        None => redacted_url(url),
    }
}

/// The same of an address that is not one of a database or a sink.
pub fn redacted_url(url: &str) -> String {
    redact_server(url, true)
}

pub(crate) fn scheme(url: &str) -> &str {
    url.split_once(':').map_or(url, |(scheme, _)| scheme)
}

/// The servers of an address that may name several, `nats://a,b`, each as its own address.
pub fn servers(url: &str) -> Vec<String> {
    let list = url.split_once('?').map_or(url, |(list, _)| list);
    let scheme = list.split_once("://").map_or("nats", |(scheme, _)| scheme);
    let whole = |server: &str| match server.contains("://") {
        true => server.to_owned(),
        false => format!("{scheme}://{server}"),
    };
    list.split(',')
        .filter(|server| !server.is_empty())
        .map(whole)
        .collect()
}

/// For addresses without a host: `stdout:`, `sqlite:path`.
pub(crate) fn check_nothing(_: &str) -> Result<(), String> {
    Ok(())
}

/// For `scheme://host…`. The query may contain the host as well.
pub(crate) fn check_one(url: &str) -> Result<(), String> {
    let scheme = scheme(url);
    if !url[scheme.len()..].starts_with("://") {
        return Err(format!("`{scheme}:` must be followed by `//` and a host"));
    }
    let parsed = Url::parse(url).map_err(|error| format!("the address can't be read: {error}"))?;
    let has_host = parsed.host_str().is_some_and(|host| !host.is_empty())
        || parsed.query().unwrap_or_default().contains("host=");
    match has_host {
        true => Ok(()),
        false => Err("the address has no host".into()),
    }
}

/// For `scheme://host,host…`.
pub(crate) fn check_servers(url: &str) -> Result<(), String> {
    let scheme = scheme(url);
    if !url[scheme.len()..].starts_with("://") {
        return Err(format!("`{scheme}:` must be followed by `//` and a host"));
    }
    servers(url).iter().try_for_each(|server| check_one(server))
}

/// For addresses that may name several servers. `tokens`: a user without a password is a secret.
pub(crate) fn redact_servers(url: &str, tokens: bool) -> String {
    let (list, query) = url.split_once('?').unwrap_or((url, ""));
    if !list.contains(',') {
        return redact_server(url, tokens);
    }
    let servers = servers(list);
    // A comma before an `@` may be part of the password.
    let last_user = servers.iter().rposition(|server| server.contains('@'));
    if last_user.is_some_and(|last| servers[..last].iter().any(|server| !server.contains('@'))) {
        return scheme_alone(url);
    }
    let shown: Vec<String> = servers
        .iter()
        .map(|server| redact_server(server, tokens))
        .collect();
    let separator = if query.is_empty() { "" } else { "?" };
    format!("{}{separator}{query}", shown.join(","))
}

/// For any URL.
pub(crate) fn redact_one(url: &str) -> String {
    redact_server(url, false)
}

fn redact_server(url: &str, tokens: bool) -> String {
    match Url::parse(url) {
        // A password that contains `/`, `?` or `#` ends the host early, and the rest of it looks like a path.
        Ok(parsed) if parsed[Position::BeforePath..].contains('@') => scheme_alone(url),
        Ok(mut parsed) if parsed.password().is_some() => match parsed.set_password(Some("***")) {
            Ok(()) => parsed.to_string(),
            Err(()) => scheme_alone(url),
        },
        Ok(mut parsed) if tokens && !parsed.username().is_empty() => match parsed.set_username("***") {
            Ok(()) => parsed.to_string(),
            Err(()) => scheme_alone(url),
        },
        Ok(_) => url.to_owned(),
        // An address that can't be parsed can't be redacted either.
        Err(_) => scheme_alone(url),
    }
}

/// The only part that may be shown of an address that can't be parsed. If the text before its colon is not a scheme,
/// nothing is shown.
pub(crate) fn scheme_alone(url: &str) -> String {
    let scheme = scheme(url);
    let plain = scheme.len() <= 20 && scheme.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
    match plain {
        true => format!("{scheme}:…"),
        false => "…".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        assert_eq!(
            redacted("postgres://app:secret@127.0.0.1/shop"),
            "postgres://app:***@127.0.0.1/shop"
        );
        assert_eq!(redacted("nats://127.0.0.1:4222"), "nats://127.0.0.1:4222");
        assert_eq!(
            redacted("nats://t0ken@127.0.0.1:4222"),
            "nats://***@127.0.0.1:4222"
        );
        assert_eq!(
            redacted("nats://app:secret@a:4222,b:4222?ca=x.pem"),
            "nats://app:***@a:4222,nats://b:4222?ca=x.pem"
        );
        for (url, shown) in [
            (
                "mongodb://app:geheim@a:1,b:2/shop?replicaSet=rs0",
                "mongodb://app:***@a:1,b:2/shop?replicaSet=rs0",
            ),
            ("mongodb://a:1,b:2/shop", "mongodb://a:1,b:2/shop"),
            (
                "mongodb+srv://app:ge/he@im@c.example/shop",
                "mongodb+srv://app:***@c.example/shop",
            ),
            (
                "mongodb://a/shop?tlsCertificateKeyFilePassword=geheim&authMechanismProperties=AWS_SESSION_TOKEN:geheim",
                "mongodb://a/shop?tlsCertificateKeyFilePassword=***&authMechanismProperties=***",
            ),
        ] {
            assert_eq!(redacted(url), shown);
        }
        assert_eq!(
            redacted(
                "postgres://app@a/shop?sslmode=verify-full&password=geheim&sslkey=-----BEGIN%20KEY&sslcert=a.pem"
            ),
            "postgres://app@a/shop?sslmode=verify-full&password=***&sslkey=***&sslcert=a.pem"
        );
        for password in ["1/geheim", "1?geheim", "1#geheim", "/geheim"] {
            let shown = redacted(&format!("postgres://app:{password}@127.0.0.1/shop"));
            assert!(!shown.contains("geheim"), "{shown}");
        }
        assert!(!redacted("nats://app:12,34@a:4222").contains("12"));
        assert!(!redacted("postgres://app:se cret@[bad/shop").contains("cret"));
        assert_eq!(redacted("t0ken@127.0.0.1:4222"), "…");
        assert_eq!(
            redacted("kafka://app:secret@a:9092,b:9092?sasl=plain"),
            "kafka://app:***@a:9092,kafka://b:9092?sasl=plain"
        );
        assert_eq!(redacted("kafka://app@a:9092"), "kafka://app@a:9092");
    }
}
