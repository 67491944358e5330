//! Requests that are refused whoever sends them. A page of another site can make a browser on this machine
//! send requests, and can point its own name at 127.0.0.1. Both are recognised by their headers.

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, Uri, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use futures::{StreamExt, stream::unfold};
use std::{net::IpAddr, sync::Arc, time::Duration};

use super::problem::Problem;

/// Longer than any handler itself waits for a body.
const BODY_TIME_MAX: Duration = Duration::from_secs(60);

/// The names to which a server answers.
pub(super) enum Hosts {
    /// Whatever the client calls it.
    Any,
    /// Those of its own machine, and these. The address is one that it listens at.
    Own {
        names: Vec<String>,
        addresses: Vec<IpAddr>,
    },
}

impl Hosts {
    pub(super) fn new(given: &[String], listen: IpAddr) -> Self {
        let addresses = given.iter().filter_map(|name| address(name));
        let listen = (!listen.is_unspecified()).then(|| listen.to_canonical());
        Self::Own {
            addresses: addresses.chain(listen).collect(),
            names: given.to_vec(),
        }
    }

    fn include(&self, host: &str) -> bool {
        let Self::Own { names, addresses } = self else {
            return true;
        };
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
            _ => host,
        };
        match address(name) {
            // An address has several spellings.
            Some(address) => address.is_loopback() || addresses.contains(&address),
            None => {
                name.eq_ignore_ascii_case("localhost")
                    || names.iter().any(|known| known.eq_ignore_ascii_case(name))
            }
        }
    }
}

fn address(name: &str) -> Option<IpAddr> {
    let plain = name.trim_start_matches('[').trim_end_matches(']');
    plain.parse().ok().map(|address: IpAddr| address.to_canonical())
}

pub(super) async fn only_own_names_and_pages(
    State(hosts): State<Arc<Hosts>>,
    request: Request,
    next: Next,
) -> Response {
    match checked(&hosts, request.headers(), request.uri()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn checked(hosts: &Hosts, headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
    let mut named = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (named.next(), named.next()) else {
        return Err(Problem::bad("send exactly one `Host` header"));
    };
    let host = host
        .to_str()
        .map_err(|_| Problem::bad("the `Host` header is not text"))?;
    if uri
        .authority()
        .is_some_and(|authority| !authority.as_str().eq_ignore_ascii_case(host))
    {
        return Err(Problem::bad(
            "the address and the `Host` header name different servers",
        ));
    }
    if !hosts.include(host) {
        return Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            "this server does not answer to that name: use http://127.0.0.1 or http://localhost on its own machine, or add the name to `outbox.http.hosts`",
        ));
    }
    if is_foreign(headers, host) {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "a page of another origin sent this request, and only this server's own page may",
        ));
    }
    Ok(())
}

/// Browsers set these headers, and a page can't change them. Other clients do not send them.
fn is_foreign(headers: &HeaderMap, host: &str) -> bool {
    let same_origin = |origin: &str| {
        let authority = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"));
        authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
    };
    let every = |name: &str, fits: &dyn Fn(&str) -> bool| {
        let mut values = headers.get_all(name).iter();
        values.all(|value| value.to_str().is_ok_and(fits))
    };
    // `none`: a person typed the address.
    let own_site = |site: &str| matches!(site, "same-origin" | "none");
    !every("origin", &same_origin) || !every("sec-fetch-site", &own_site)
}

/// A body that does not arrive in time ends with an error, so that its connection is free again.
pub(super) async fn timely_body(request: Request, next: Next) -> Response {
    let end = tokio::time::Instant::now() + BODY_TIME_MAX;
    let timely = request.map(|body| {
        Body::from_stream(unfold(body.into_data_stream(), move |mut parts| async move {
            let part = tokio::time::timeout_at(end, parts.next()).await;
            let part = part.unwrap_or_else(|_| Some(Err(axum::Error::new("the body took too long"))))?;
            Some((part, parts))
        }))
    });
    next.run(timely).await
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn own() -> Hosts {
        Hosts::new(&[], Ipv4Addr::LOCALHOST.into())
    }

    fn status(hosts: &Hosts, uri: &str, headers: &[(&'static str, &str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let checked = checked(hosts, &map, &uri.parse().unwrap());
        checked.map_or_else(|problem| problem.status().as_u16(), |()| 200)
    }

    #[test]
    fn only_this_machines_own_names_are_answered() {
        let hosts = own();
        for host in [
            "127.0.0.1:7420",
            "localhost",
            "LOCALHOST:1",
            "[::1]:7420",
            "[::1]",
        ] {
            assert_eq!(status(&hosts, "/", &[("host", host)]), 200, "{host}");
        }
        for host in ["evil.example:7420", "127.0.0.1.evil.example", "10.0.0.1", ""] {
            assert_eq!(status(&hosts, "/", &[("host", host)]), 421, "{host}");
        }
        let hosts = Hosts::new(&["a.example".into()], "10.0.0.1".parse().unwrap());
        for host in ["10.0.0.1:7420", "A.example", "a.example:443", "127.0.0.1"] {
            assert_eq!(status(&hosts, "/", &[("host", host)]), 200, "{host}");
        }
        assert_eq!(status(&hosts, "/", &[("host", "b.example")]), 421);
    }

    #[test]
    fn an_address_is_known_in_every_spelling() {
        for entry in ["2001:db8::1", "[2001:DB8:0::1]"] {
            let hosts = Hosts::new(&[entry.into()], Ipv6Addr::UNSPECIFIED.into());
            for host in ["[2001:db8::1]", "[2001:db8::1]:7420", "[2001:0DB8:0:0::1]:1"] {
                assert_eq!(status(&hosts, "/", &[("host", host)]), 200, "{entry}: {host}");
            }
            for host in ["[2001:db8::2]:7420", "[::]", "2001"] {
                assert_eq!(status(&hosts, "/", &[("host", host)]), 421, "{entry}: {host}");
            }
        }
    }

    #[test]
    fn a_server_of_any_name_still_needs_one_host_and_answers_no_foreign_page() {
        let status = |headers| status(&Hosts::Any, "/", headers);
        assert_eq!(status(&[("host", "pillarbox-0.monitoring:9090")]), 200);
        assert_eq!(status(&[]), 400);
        assert_eq!(status(&[("host", "a"), ("host", "a")]), 400);
        assert_eq!(status(&[("host", "a"), ("origin", "https://evil.example")]), 403);
        assert_eq!(status(&[("host", "a"), ("sec-fetch-site", "cross-site")]), 403);
    }

    #[test]
    fn a_request_has_one_host() {
        let hosts = own();
        assert_eq!(status(&hosts, "/", &[]), 400);
        assert_eq!(
            status(&hosts, "/", &[("host", "localhost"), ("host", "localhost")]),
            400
        );
        let absolute = "http://localhost/v1/status";
        assert_eq!(status(&hosts, absolute, &[("host", "localhost")]), 200);
        assert_eq!(status(&hosts, absolute, &[("host", "127.0.0.1")]), 400);
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let with = |name: &'static str, value: &str| {
            status(&own(), "/", &[("host", "localhost:7420"), (name, value)])
        };
        for origin in ["http://localhost:7420", "https://LOCALHOST:7420"] {
            assert_eq!(with("origin", origin), 200, "{origin}");
        }
        for origin in [
            "null",
            "http://localhost:3000",
            "http://localhost:7420.evil.example",
            "localhost:7420",
            "",
        ] {
            assert_eq!(with("origin", origin), 403, "{origin}");
        }
        for site in ["same-origin", "none"] {
            assert_eq!(with("sec-fetch-site", site), 200, "{site}");
        }
        for site in ["cross-site", "same-site", "", "x"] {
            assert_eq!(with("sec-fetch-site", site), 403, "{site}");
        }
    }
}
