//! PgBouncer in front of a PostgreSQL, in transaction pooling mode.

use std::fs;
use std::net::TcpStream;

use super::found;
use super::postgres::{Postgres, blocking};
use super::service::{Account, Service, on_a_free_port};

/// A running PgBouncer. It gives access to every database of the server behind it.
pub struct Pgbouncer {
    _service: Service,
    port: u16,
}

impl Pgbouncer {
    /// Starts one. `None`: it is not installed.
    pub async fn start(behind: &Postgres) -> Option<Self> {
        let binary = found::pgbouncer()?;
        let behind = behind.port();
        let bouncer = blocking(move || {
            on_a_free_port(|port| {
                let mut service = Service::new("pgbouncer", Account::unprivileged()?, "KILL")?;
                let folder = service.folder().to_owned();
                fs::write(folder.join("users"), "\"postgres\" \"\"\n")?;
                fs::write(
                    folder.join("pgbouncer.ini"),
                    configuration(behind, port, &folder.display().to_string()),
                )?;
                let mut command = service.command(&binary);
                command.arg(folder.join("pgbouncer.ini"));
                service.spawn(command)?;
                service.wait_until(|service| {
                    service.end_of_log().contains("process up")
                        && TcpStream::connect(("127.0.0.1", port)).is_ok()
                })?;
                Ok(Self {
                    _service: service,
                    port,
                })
            })
        })
        .await;
        Some(bouncer)
    }

    /// The same database, through the pooler.
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Turns the URL of a database on the server behind it into a URL through the pooler.
    pub fn through(&self, url: &str) -> String {
        self.url_of(url.rsplit('/').next().unwrap_or("postgres"))
    }
}

/// Each test's database has its own connections behind the pooler. Those of finished tests must be closed, or
/// the server runs out of them.
fn configuration(behind: u16, port: u16, folder: &str) -> String {
    format!(
        "[databases]\n* = host=127.0.0.1 port={behind}\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
         auth_type = trust\nauth_file = {folder}/users\npool_mode = transaction\n\
         max_client_conn = 200\ndefault_pool_size = 20\nserver_idle_timeout = 5\n\
         ignore_startup_parameters = extra_float_digits\n"
    )
}
