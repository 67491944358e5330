//! HTTPS: the certificate changes while it runs, and clients show their own.

use std::{net::TcpStream, path::PathBuf, sync::Arc};

use pillarbox_testkit::authority::Authority;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};

use super::*;

/// A client that trusts this authority and shows a certificate, if it has one.
struct Client {
    address: String,
    config: Arc<ClientConfig>,
}

type Connection = StreamOwned<ClientConnection, TcpStream>;

impl Client {
    fn new(address: &str, authority: &Authority, own: Option<&(PathBuf, PathBuf)>) -> Self {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_file(&authority.ca).unwrap())
            .unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = vec![CertificateDer::from_pem_file(certificate).unwrap()];
                let key = PrivateKeyDer::from_pem_file(key).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        Self {
            address: address.to_owned(),
            config: Arc::new(config),
        }
    }

    fn connect(&self) -> std::io::Result<Connection> {
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        let connection = ClientConnection::new(self.config.clone(), name).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(stream)
    }

    /// The certificate that a new connection gets.
    fn certificate(&self) -> Vec<u8> {
        let stream = self.connect().unwrap();
        stream.conn.peer_certificates().unwrap()[0].as_ref().to_vec()
    }

    /// The status of the answer.
    fn get(&self, path: &str, headers: &[&str]) -> std::io::Result<u16> {
        status(&mut self.connect()?, path, headers)
    }
}

/// Leaves the connection open for the next request.
fn status(stream: &mut Connection, path: &str, headers: &[&str]) -> std::io::Result<u16> {
    let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    write!(stream, "GET {path} HTTP/1.1\r\n{HOST}\r\n{headers}\r\n")?;
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    let mut rest = vec![0; 64 * 1024];
    let _ = stream.read(&mut rest)?;
    Ok(std::str::from_utf8(&head[9..]).unwrap().parse().unwrap())
}

fn started(folder: &Path, http: &Value) -> Served {
    configure(folder, http);
    let relay = Running::start(folder, &["--log-format", "json", "run"]);
    let said = relay.says("Serving https://");
    let address = said.trim_start_matches("Serving https://").trim_end_matches('/');
    Served {
        address: address.to_owned(),
        relay,
    }
}

#[test]
fn a_new_certificate_is_used_without_dropping_connections() {
    let folder = migrated();
    let authority = Authority::new(folder.path(), "ca");
    let files = authority.certify("localhost");
    let tls = json!({ "certificate": files.0, "key": files.1 });
    let served = started(folder.path(), &json!({ "listen": "127.0.0.1:0", "tls": tls }));
    let client = Client::new(&served.address, &authority, None);
    let first = client.certificate();
    let mut open = client.connect().unwrap();
    assert_eq!(status(&mut open, "/livez", &[]).unwrap(), 200);

    // One of two files is new: they don't fit together.
    std::fs::write(&files.0, "no certificate").unwrap();
    served.relay.says("can't be used: keeping the old ones");
    assert_eq!(client.certificate(), first);
    authority.certify("localhost");
    served.relay.says("new connections use them");
    assert_ne!(client.certificate(), first);
    assert_eq!(
        status(&mut open, "/livez", &[]).unwrap(),
        200,
        "an open connection goes on"
    );
}

#[test]
fn a_client_certificate_is_required_and_names_the_caller() {
    let folder = migrated();
    let (authority, stranger) = (
        Authority::new(folder.path(), "ca"),
        Authority::new(folder.path(), "stranger"),
    );
    let files = authority.certify("localhost");
    let (ops, foreign) = (authority.certify("ops-laptop"), stranger.certify("evil"));
    let (token, entry) = new_token(folder.path(), &["--name", "ci", "--role", "produce"]);
    let tls = json!({ "certificate": files.0, "key": files.1, "client_ca": authority.ca, "client_roles": ["read"] });
    let http = json!({ "listen": "127.0.0.1:0", "tls": tls, "tokens": [entry] });
    let served = started(folder.path(), &http);
    let client = |own| Client::new(&served.address, &authority, own);
    assert!(
        client(None).get("/livez", &[]).is_err(),
        "there is no certificate"
    );
    assert!(
        client(Some(&foreign)).get("/livez", &[]).is_err(),
        "another authority"
    );
    let ops = client(Some(&ops));
    assert_eq!(ops.get("/v1/status", &[]).unwrap(), 200);
    assert_eq!(
        ops.get("/v1/status", &[&bearer(&token)]).unwrap(),
        403,
        "the token decides"
    );
    assert_eq!(ops.get("/v1/status", &[&bearer("unknown")]).unwrap(), 401);
    assert_eq!(ops.get("/v1/dead/replay", &[]).unwrap(), 405);
    let mut stream = ops.connect().unwrap();
    write!(stream, "POST /v1/dead/replay HTTP/1.0\r\n{HOST}\r\n\r\n").unwrap();
    let said = served.relay.says(r#""status":403,"who":"cert:ops-laptop""#);
    assert!(said.contains("outbox_request_refused"), "{said}");
}

#[test]
fn files_that_cant_be_used_are_found_before_the_start() {
    let folder = migrated();
    let authority = Authority::new(folder.path(), "ca");
    let (files, other) = (authority.certify("localhost"), authority.certify("other"));
    for (certificate, key, why) in [
        (&files.0, &other.1, "can't be used together"),
        (&files.1, &files.1, "no certificate in this PEM file"),
        (&files.0, &files.0, "no private key in this PEM file"),
        (&folder.path().join("none"), &files.1, "can't be read"),
    ] {
        configure(
            folder.path(),
            &json!({ "tls": { "certificate": certificate, "key": key } }),
        );
        let output = run(folder.path(), &["config", "check"]);
        assert_eq!(code(&output), 1);
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
    }
}
