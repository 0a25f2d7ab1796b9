//! The database of a catalogue, by its URL: on a UNIX socket, on this machine, or with TLS on another one.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// A database of PostgreSQL. Neither of its texts has the password.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl {
    config: Box<Config>,
    /// File with the certificate of the server's authority, for TLS.
    authority: Option<PathBuf>,
}

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
        "the host `{0}` is not an address of this machine, and passwords and jobs would travel in clear text; add \
         `sslmode=verify-full&sslrootcert=/FILE.pem`, or name a UNIX socket (`?host=/run/postgresql`) or 127.0.0.1"
    )]
    Remote(String),
    /// No host is named.
    #[error("the URL names no host; add one, such as `?host=/run/postgresql`")]
    NoHost,
    /// The URL asks for a kind of TLS that does not check which server answers.
    #[error(
        "the URL asks for TLS without a check of the server; write `sslmode=verify-full&sslrootcert=/FILE.pem`, with \
         the certificate of the server's authority, or leave both out for a server on this machine"
    )]
    Unchecked,
    /// No certificate of an authority is named.
    #[error(
        "`sslmode=verify-full` needs the certificate of the server's authority; add `sslrootcert=/FILE.pem`, an absolute \
         path"
    )]
    NoAuthority,
    /// The URL asks for TLS on a UNIX socket, or names no server.
    #[error("TLS needs the name of a server; leave `sslmode` out for a UNIX socket")]
    NoServer,
}

impl FromStr for PostgresUrl {
    type Err = UrlError;

    fn from_str(url: &str) -> Result<Self, UrlError> {
        if !["postgresql://", "postgres://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err(UrlError::Scheme);
        }
        let (url, authority) = without_tls(url)?;
        let mut config: Config = url.parse().map_err(UrlError::Syntax)?;
        if config.get_ssl_mode() == SslMode::Require {
            return Err(UrlError::Unchecked);
        }
        match authority {
            Some(_) => {
                let is_server = |host: &Host| matches!(host, Host::Tcp(_));
                let hosts = config.get_hosts();
                if hosts.is_empty() || !hosts.iter().all(is_server) {
                    return Err(UrlError::NoServer);
                }
                config.ssl_mode(SslMode::Require);
            }
            None => check_local(&config)?,
        }
        Ok(Self { config: Box::new(config), authority })
    }
}

/// Returns the URL without the parameters of TLS, and the file with the certificate of the server's authority.
fn without_tls(url: &str) -> Result<(String, Option<PathBuf>), UrlError> {
    let Some((base, query)) = url.rsplit_once('?') else { return Ok((url.to_owned(), None)) };
    let (mut rest, mut mode, mut file) = (Vec::new(), None, None);
    for parameter in query.split('&') {
        match parameter.split_once('=') {
            Some(("sslmode", value)) if !matches!(value, "disable" | "prefer") => {
                mode = Some(value);
            }
            Some(("sslrootcert", value)) => file = Some(value),
            _ => rest.push(parameter),
        }
    }
    let authority = match (mode, file) {
        (None, None) => None,
        (Some("verify-full"), file) => {
            let file = file.and_then(decoded).map(PathBuf::from);
            Some(file.filter(|file| file.is_absolute()).ok_or(UrlError::NoAuthority)?)
        }
        _ => return Err(UrlError::Unchecked),
    };
    let query = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
    Ok((format!("{base}{query}"), authority))
}

/// Returns a text of a URL, in which a byte may be written as `%` and two digits; `None` if it is not one.
fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = rest.get(2..)?;
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Checks that a connection in clear text does not leave this machine.
fn check_local(config: &Config) -> Result<(), UrlError> {
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
    Ok(())
}

impl PostgresUrl {
    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the file with the certificate of the server's authority; `None` for clear text.
    pub(super) fn authority(&self) -> Option<&Path> {
        self.authority.as_deref()
    }
}

/// The servers and the database.
impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = self.config.get_hosts().iter().map(|host| match host {
            Host::Unix(path) => path.display().to_string(),
            Host::Tcp(name) => name.clone(),
        });
        let hosts: Vec<String> =
            hosts.chain(self.config.get_hostaddrs().iter().map(IpAddr::to_string)).collect();
        write!(f, "PostgreSQL at {}", hosts.join(", "))?;
        match self.config.get_dbname().or(self.config.get_user()) {
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
        for mode in ["require", "verify-ca", "allow", "VERIFY-FULL"] {
            check(&format!("postgresql://127.0.0.1/d?sslmode={mode}"), Err("without a check of"));
        }
        check("postgresql://127.0.0.1/d?%73slmode=require", Err("without a check of"));
        check("postgresql://127.0.0.1/d?sslrootcert=/ca.pem", Err("without a check of"));
        check(
            "postgresql://127.0.0.1/d?sslmode=disable",
            Ok("PostgreSQL at 127.0.0.1, database d"),
        );
        let tls = "PostgreSQL at db.example, database d";
        let url = "postgresql://hub@db.example/d?sslmode=verify-full&sslrootcert=";
        check(&format!("{url}/ca.pem"), Ok(tls));
        check(&format!("{url}/ca%20x.pem&connect_timeout=3"), Ok(tls));
        for file in ["", "ca.pem", "/ca%2", "/ca%zz"] {
            check(&format!("{url}{file}"), Err("an absolute path"));
        }
        check("postgresql://db.example/d?sslmode=verify-full", Err("an absolute path"));
        let socket = "postgresql:///d?host=/run&sslmode=verify-full&sslrootcert=/ca.pem";
        check(socket, Err("TLS needs the name of a server"));
        check("postgresql:///d?sslmode=verify-full&sslrootcert=/ca.pem", Err("TLS needs the name"));
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
