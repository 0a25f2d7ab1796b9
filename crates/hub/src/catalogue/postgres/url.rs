//! The database of a catalogue, by its URL: on a UNIX socket, or on this machine.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// A database of PostgreSQL. Neither of its texts has the password.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl(Box<Config>);

/// The reason why a URL is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum UrlError {
    /// The text is not a URL of PostgreSQL.
    #[error(
        "it is not the URL of a database; write `postgresql:///skopos?host=/run/postgresql`, or leave the entry out \
         for a catalogue in SQLite"
    )]
    Scheme,
    /// The URL has an error.
    #[error("the URL of the database is not valid")]
    Syntax(#[source] tokio_postgres::Error),
    /// Others could read passwords and jobs on the way.
    #[error(
        "the host `{0}` is not an address of this machine, and passwords and jobs would travel in clear text; name \
         a UNIX socket (`?host=/run/postgresql`) or 127.0.0.1, for example the end of a tunnel that encrypts"
    )]
    Remote(String),
    /// No host is named.
    #[error("the URL names no host; add one, such as `?host=/run/postgresql`")]
    NoHost,
    /// The URL asks for TLS.
    #[error(
        "the URL asks for TLS, which a connection within one machine does not have; leave `sslmode` out"
    )]
    Tls,
}

impl FromStr for PostgresUrl {
    type Err = UrlError;

    fn from_str(url: &str) -> Result<Self, UrlError> {
        if !["postgresql://", "postgres://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err(UrlError::Scheme);
        }
        let config: Config = url.parse().map_err(UrlError::Syntax)?;
        if config.get_ssl_mode() == SslMode::Require {
            return Err(UrlError::Tls);
        }
        // An address is connected to, whatever the name beside it is.
        let addresses = config.get_hostaddrs();
        if let Some(other) = addresses.iter().find(|ip| !ip.is_loopback()) {
            return Err(UrlError::Remote(other.to_string()));
        }
        if addresses.is_empty() && config.get_hosts().is_empty() {
            return Err(UrlError::NoHost);
        }
        for host in config.get_hosts().iter().filter(|_| addresses.is_empty()) {
            match host {
                Host::Unix(_) => {}
                // The answer to a look-up of a name is not ours to trust.
                Host::Tcp(name) if name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback()) => {}
                // An `@` in a password that is not encoded makes its rest a part of the host.
                Host::Tcp(name) => {
                    let host = name.rsplit('@').next().unwrap_or_default();
                    return Err(UrlError::Remote(host.to_owned()));
                }
            }
        }
        Ok(Self(Box::new(config)))
    }
}

impl PostgresUrl {
    pub(super) fn config(&self) -> &Config {
        &self.0
    }
}

/// The servers and the database.
impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = self.0.get_hosts().iter().map(|host| match host {
            Host::Unix(path) => path.display().to_string(),
            Host::Tcp(name) => name.clone(),
        });
        let hosts: Vec<String> =
            hosts.chain(self.0.get_hostaddrs().iter().map(IpAddr::to_string)).collect();
        write!(f, "PostgreSQL at {}", hosts.join(", "))?;
        match self.0.get_dbname().or(self.0.get_user()) {
            Some(database) => write!(f, ", database {database}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_this_machine_alone_are_accepted() {
        let check = |url: &str, expected: Result<&str, &str>| {
            let found = url.parse::<PostgresUrl>();
            let found = found.map(|it| it.to_string()).map_err(|e| e.to_string());
            match (&found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{url}"),
                (Err(found), Err(expected)) => assert!(found.contains(expected), "{url}: {found}"),
                _ => panic!("{url}: {found:?}"),
            }
        };
        let socket = "PostgreSQL at /run/postgresql, database skopos";
        check("postgresql:///skopos?host=/run/postgresql", Ok(socket));
        check("postgres://hub@%2Frun%2Fpostgresql/skopos", Ok(socket));
        let loopback = "PostgreSQL at 127.0.0.1, database skopos";
        check("postgresql://hub:secret@127.0.0.1:5433/skopos", Ok(loopback));
        check("postgresql://hub@[::1]/skopos", Ok("PostgreSQL at ::1, database skopos"));
        let tunnel = "PostgreSQL at db.example, 127.0.0.1, database d";
        check("postgresql://db.example/d?hostaddr=127.0.0.1", Ok(tunnel));
        check("postgresql://hub:secret@10.0.0.1/d", Err("the host `10.0.0.1` is not an address"));
        check("postgresql://127.0.0.1,db2.example/d", Err("the host `db2.example` is not"));
        check("postgresql://localhost/d?hostaddr=10.0.0.2", Err("the host `10.0.0.2` is not"));
        check("postgresql://localhost/d", Err("the host `localhost` is not"));
        check("postgresql:///d", Err("names no host"));
        check("postgresql://127.0.0.1/d?sslmode=require", Err("asks for TLS"));
        check("postgresql://127.0.0.1:port/d", Err("is not valid"));
        check("jobs.sqlite", Err("it is not the URL of a database"));
        check("host=/run dbname=skopos", Err("it is not the URL of a database"));
    }

    #[test]
    fn no_text_has_the_password() {
        let place: PostgresUrl = "postgresql://hub:secret@127.0.0.1/jobs".parse().expect("a URL");
        assert_eq!(format!("{place:?}"), "PostgreSQL at 127.0.0.1, database jobs");
    }
}
