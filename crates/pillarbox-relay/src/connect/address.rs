//! Addresses as text: what they name, and what of them may be shown.

use url::{Position, Url};

/// An address as it may be shown: without its password.
pub fn redacted(url: &str) -> String {
    if matches!(scheme(url), "mongodb" | "mongodb+srv") {
        return redacted_mongodb(url);
    }
    let (list, query) = url.split_once('?').unwrap_or((url, ""));
    if !matches!(scheme(url), "nats" | "tls" | "kafka") || !list.contains(',') {
        return redacted_one(url);
    }
    let servers = servers(list);
    // A comma before the user's end may belong to the password.
    let last_user = servers.iter().rposition(|server| server.contains('@'));
    if last_user.is_some_and(|last| servers[..last].iter().any(|server| !server.contains('@'))) {
        return scheme_alone(url);
    }
    let shown: Vec<String> = servers.iter().map(|server| redacted_one(server)).collect();
    let separator = if query.is_empty() { "" } else { "?" };
    format!("{}{separator}{query}", shown.join(","))
}

/// The servers of an address that may name several, `nats://a,b`, each as an address of its own.
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

/// One user stands before all hosts; what is before the last `@` may be a password, however it is written.
fn redacted_mongodb(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return scheme_alone(url);
    };
    let (user, place) = match rest.rsplit_once('@') {
        None => (String::new(), rest),
        Some((user, place)) => match user.split_once(':') {
            Some((name, _)) => (format!("{name}:***@"), place),
            None => (format!("{user}@"), place),
        },
    };
    let (hosts, options) = place.split_once('?').unwrap_or((place, ""));
    let shown = options.split('&').map(|option| match option.split_once('=') {
        // `tlsCertificateKeyFilePassword`, `authMechanismProperties=AWS_SESSION_TOKEN:…`, `proxyPassword`.
        Some((name, _))
            if ["password", "properties"]
                .iter()
                .any(|end| name.to_lowercase().ends_with(end)) =>
        {
            format!("{name}=***")
        }
        _ => option.to_owned(),
    });
    let shown = shown.collect::<Vec<_>>().join("&");
    let separator = if options.is_empty() { "" } else { "?" };
    format!("{scheme}://{user}{hosts}{separator}{shown}")
}

fn redacted_one(url: &str) -> String {
    match Url::parse(url) {
        // A password with a `/`, `?` or `#` in it ends the host early: its rest stands where a path would.
        Ok(parsed) if parsed[Position::BeforePath..].contains('@') => scheme_alone(url),
        Ok(mut parsed) if parsed.password().is_some() => match parsed.set_password(Some("***")) {
            Ok(()) => parsed.to_string(),
            Err(()) => scheme_alone(url),
        },
        // A name without a password is a token of NATS.
        Ok(mut parsed) if matches!(parsed.scheme(), "nats" | "tls") && !parsed.username().is_empty() => {
            match parsed.set_username("***") {
                Ok(()) => parsed.to_string(),
                Err(()) => scheme_alone(url),
            }
        }
        Ok(_) => url.to_owned(),
        // What can't be parsed can't be cleaned either.
        Err(_) => scheme_alone(url),
    }
}

/// All that may be shown of an address nobody can read; nothing, where what stands before its colon is no scheme.
fn scheme_alone(url: &str) -> String {
    let scheme = scheme(url);
    let plain = scheme.len() <= 20 && scheme.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
    match plain {
        true => format!("{scheme}:…"),
        false => "…".into(),
    }
}

pub(super) fn scheme(url: &str) -> &str {
    url.split_once(':').map_or(url, |(scheme, _)| scheme)
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
