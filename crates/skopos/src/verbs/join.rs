//! `skopos join HUB --token TOKEN`: gets the certificate of this node from the hub of a site.

use std::io::{BufRead as _, Read as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::{Deserialize, Serialize};
use skopos_access::is_segment;
use skopos_agent::host_name;
use skopos_hub::pki::{fingerprint, fingerprint_in, hex, unhex};
use skopos_node::default_identity_folder;
use skopos_term::{Failure, Global, Out};
use skopos_wire::{Authority, Identity, new_key, possession};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use super::hub_http::{agent, refused};

/// Port of a hub's HTTP listener, by default.
const PORT: u16 = 7470;

/// The longest token that is read.
const MAX_TOKEN_BYTES: u64 = 1024;

/// The longest answer that is read.
const MAX_ANSWER_BYTES: u64 = 64 << 10;

#[derive(Debug, Args)]
pub(crate) struct JoinArgs {
    /// The hub, such as hub1 or hub1:7470: where its HTTP listener is
    hub: String,
    /// Token from `skopos pki token`, on the hub; `-` reads it from standard input, so that no other user of this
    /// machine sees it
    #[arg(long, value_name = "TOKEN")]
    token: String,
    /// Name of this node [default: the host's name]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Folder for the certificate [default: `pki` in $SKOPOS_STATE]
    #[arg(long, value_name = "DIR")]
    identity: Option<PathBuf>,
}

#[derive(Serialize)]
struct JoinRequest<'a> {
    node: &'a str,
    request: String,
}

#[derive(Deserialize)]
struct Joined {
    authority: String,
    certificate: String,
}

pub(crate) fn run(global: &Global, args: &JoinArgs) -> Result<ExitCode, Failure> {
    let node = args.node.clone().unwrap_or_else(host_name);
    if !is_segment(&node) {
        return Err(Failure::new(format!("`{node}` is not the name of a node")));
    }
    let token = token(&args.token)?;
    let known = fingerprint_in(&token).ok_or_else(|| {
        Failure::new("this is not a token to join with")
            .hint("`skopos pki token` prints one, on the machine of the hub")
    })?;
    let folder = args.identity.clone().or_else(default_identity_folder);
    let folder = folder.ok_or_else(|| {
        Failure::new("the environment does not say where certificates are kept")
            .hint("name a folder with --identity")
    })?;
    let broken = |e: &dyn std::error::Error| Failure::new("no certificate can be kept").because(e);
    // An identity that has expired is replaced. That of a hub lies beside the key of its authority.
    if Authority::is_in(&folder) {
        return Err(Failure::new(format!("{} has the certificate of a hub", folder.display()))
            .hint("name another folder with --identity"));
    }
    let url = url_of(&args.hub);
    let authority = authority(&url, known)?;
    let (pkcs8, _) = new_key().map_err(|e| broken(&e))?;
    let request = possession::prove(&pkcs8, &node).map(|request| hex(&request));
    let request = JoinRequest { node: &node, request: request.unwrap_or_default() };
    let joined = ask(&url, &token, &authority, &request)?;
    let (given, certificate) = (unhex(&joined.authority), unhex(&joined.certificate));
    if given.as_deref() != Some(&authority) {
        return Err(Failure::new("the hub's answer is damaged"));
    }
    let certificate = certificate.unwrap_or_default();
    Identity::save(&folder, &pkcs8, &certificate, Some(&authority)).map_err(|e| broken(&e))?;
    let identity = Identity::load(&folder).map_err(|e| broken(&e))?;
    let names = identity.map(|identity| identity.names());
    let names = names.ok_or_else(|| Failure::new("the certificate is gone"))?;
    let mut out = Out::new(global.style());
    out.line(format!("this is the {names}: its certificate is in {}", folder.display()))?;
    let host = url.trim_start_matches("https://").rsplit_once(':').map_or("HUB", |(host, _)| host);
    let next = match names.is_hub {
        true => "hub --listen tls/0.0.0.0:7447 --http 0.0.0.0:7470",
        false => "agent --live",
    };
    out.line(format!("next: skopos {next} --connect tls/{host}:7447"))?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a token that was given, or that is the first line of standard input.
fn token(given: &str) -> Result<String, Failure> {
    if given != "-" {
        return Ok(given.to_owned());
    }
    let mut line = String::new();
    let read = std::io::stdin().lock().take(MAX_TOKEN_BYTES).read_line(&mut line);
    read.map_err(|e| Failure::new("standard input cannot be read").because(&e))?;
    Ok(line.trim().to_owned())
}

/// Returns the URL of a hub that was given as host, with or without port and scheme.
fn url_of(hub: &str) -> String {
    let hub = hub.trim_start_matches("https://").trim_end_matches('/');
    let has_port = hub.rsplit_once(':').is_some_and(|(host, port)| {
        port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']'))
    });
    match has_port {
        true => format!("https://{hub}"),
        false if hub.contains(':') && !hub.starts_with('[') => format!("https://[{hub}]:{PORT}"),
        false => format!("https://{hub}:{PORT}"),
    }
}

fn unreachable(url: &str, e: &ureq::Error) -> Failure {
    Failure::new(format!("the hub does not answer at {url}"))
        .because(e)
        .hint("start it with `skopos hub --http 0.0.0.0:7470`, after `skopos pki init`")
}

/// Gets the certificate of the authority. Nothing is trusted before its fingerprint is that of the token.
fn authority(url: &str, known: &str) -> Result<Vec<u8>, Failure> {
    let blind = agent(TlsConfig::builder().disable_verification(true).build());
    let answer = blind.get(format!("{url}/api/v1/authority")).call();
    let mut answer = answer.map_err(|e| unreachable(url, &e))?;
    let found = answer.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_vec();
    let found = found.map_err(|e| unreachable(url, &e))?;
    match fingerprint(&found) == known {
        true => Ok(found),
        false => Err(Failure::new(format!("{url} is not the hub that made this token"))),
    }
}

/// Sends the request to a hub whose certificate `authority` must have signed.
fn ask(
    url: &str,
    token: &str,
    authority: &[u8],
    request: &JoinRequest<'_>,
) -> Result<Joined, Failure> {
    let roots = RootCerts::new_with_certs(&[Certificate::from_der(authority).to_owned()]);
    let sure = agent(TlsConfig::builder().root_certs(roots).build());
    let post = sure.post(format!("{url}/api/v1/join"));
    let post = post.header("Authorization", format!("Bearer {token}"));
    let text = serde_json::to_string(request).unwrap_or_default();
    let answer = post.header("Content-Type", "application/json").send(text);
    let mut answer = answer.map_err(|e| {
        unreachable(url, &e).hint("its certificate names the hosts of `skopos pki init --host`")
    })?;
    let status = answer.status();
    let body = answer.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_vec();
    let body = body.map_err(|e| unreachable(url, &e))?;
    if status.is_success() {
        let joined = serde_json::from_slice(&body);
        return joined.map_err(|e| Failure::new("the hub's answer is damaged").because(&e));
    }
    Err(refused(status, &body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_is_named_with_or_without_its_port() {
        for (hub, expected) in [
            ("hub1", "https://hub1:7470"),
            ("hub1:80", "https://hub1:80"),
            ("https://hub1:80/", "https://hub1:80"),
            ("10.0.0.1", "https://10.0.0.1:7470"),
            ("[::1]:80", "https://[::1]:80"),
            ("::1", "https://[::1]:7470"),
        ] {
            assert_eq!(url_of(hub), expected);
        }
    }
}
