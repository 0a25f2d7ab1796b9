//! `skopos pki`: the certificates and tokens of a site, on the machine of its hub.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use serde::Serialize;
use skopos_access::{Names, Role, is_segment};
use skopos_agent::host_name;
use skopos_hub::pki::{self, Certified, Grant, Register, Token};
use skopos_model::duration;
use skopos_node::default_identity_folder;
use skopos_term::{Failure, Global, Out, Style};
use skopos_wire::{Authority, Identity};

#[derive(Debug, Args)]
pub(crate) struct PkiArgs {
    /// Folder of the certificates [default: `pki` in $SKOPOS_STATE]
    #[arg(long, value_name = "DIR", global = true)]
    identity: Option<PathBuf>,
    #[command(subcommand)]
    verb: PkiVerb,
}

#[derive(Debug, Subcommand)]
enum PkiVerb {
    /// Make the authority of a site, and the certificate of its hub on this machine
    #[command(before_help = "Example: skopos pki init --site hpc1 --host hub1.example.org")]
    Init(InitArgs),
    /// Make a token with which nodes join
    #[command(before_help = "Example: skopos pki token --for 1h")]
    Token(TokenArgs),
    /// Make a token with which a user asks the hub over HTTP and Flight
    #[command(before_help = "Example: skopos pki user ann --role support --for 30d")]
    User(UserArgs),
    /// Renew the certificate of the hub with the authority, also one that has ended
    #[command(before_help = "Example: skopos pki renew")]
    Renew,
    /// List nodes with certificates, and tokens
    #[command(before_help = "Example: skopos pki ls")]
    Ls,
    /// Forget a node: its certificate ends within a week, and another node may have its name
    #[command(before_help = "Example: skopos pki forget n01")]
    Forget {
        /// Name of the node
        node: String,
    },
    /// End all tokens of a user, or all tokens to join
    #[command(before_help = "Example: skopos pki revoke ann")]
    Revoke {
        /// Name of the user
        #[arg(required_unless_present = "join", conflicts_with = "join")]
        user: Option<String>,
        /// All tokens with which nodes join
        #[arg(long)]
        join: bool,
    },
}

#[derive(Debug, Args)]
struct InitArgs {
    /// Name of the site
    #[arg(long, value_name = "NAME", default_value = "default")]
    site: String,
    /// Name of this node [default: the host's name]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Name or address at which others reach this hub; repeat it for several [default: the host's name
    /// and `localhost`]
    #[arg(long, value_name = "HOST", value_parser = host)]
    host: Vec<String>,
}

#[derive(Debug, Args)]
struct TokenArgs {
    /// Time until the token ends
    #[arg(long = "for", value_name = "DURATION", default_value = "1h", value_parser = duration::parse, allow_hyphen_values = true)]
    life: Duration,
    /// The only node that may join with it, even if there is one of this name [default: any new one]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Name or address at which others reach the node, which joins as a second hub; repeat it for several
    #[arg(long, value_name = "HOST", requires = "node", value_parser = host)]
    hub_at: Vec<String>,
}

#[derive(Debug, Args)]
struct UserArgs {
    /// Name of the user
    name: String,
    /// Role: `member` reads facts and own jobs, `support` all jobs, `admin` does what the owner does
    #[arg(long, value_name = "ROLE", default_value = "member", value_parser = role)]
    role: Role,
    /// Project whose jobs the user reads, as its lead; repeat it for several
    #[arg(long, value_name = "PROJECT")]
    leads: Vec<String>,
    /// Time until the token ends
    #[arg(long = "for", value_name = "DURATION", default_value = "30d", value_parser = duration::parse, allow_hyphen_values = true)]
    life: Duration,
}

/// Finds a role by its name.
fn role(text: &str) -> Result<Role, String> {
    Role::of_name(text)
        .ok_or_else(|| format!("the roles are {}", Role::ALL.map(Role::name).join(", ")))
}

/// `docs/json/pki.schema.json`.
#[derive(Serialize)]
struct Listing {
    site: String,
    nodes: Vec<Node>,
    tokens: Vec<Token>,
}

#[derive(Serialize)]
struct Node {
    node: String,
    hosts: Vec<String>,
    issued_at: u64,
}

pub(crate) fn run(global: &Global, args: &PkiArgs) -> Result<ExitCode, Failure> {
    let folder = args.identity.clone().or_else(default_identity_folder);
    let folder = folder.ok_or_else(|| {
        Failure::new("the environment does not say where certificates are kept")
            .hint("name a folder with --identity")
    })?;
    let mut out = Out::new(global.style());
    match &args.verb {
        PkiVerb::Init(args) => init(&folder, args, &mut out)?,
        PkiVerb::Token(args) => token(&folder, args, &mut out)?,
        PkiVerb::User(args) => user(&folder, args, &mut out)?,
        PkiVerb::Renew => renew(&folder, &mut out)?,
        PkiVerb::Ls => list(&folder, &mut out)?,
        PkiVerb::Forget { node } => forget(&folder, node, &mut out)?,
        PkiVerb::Revoke { user, join } => revoke(&folder, user.as_deref(), *join, &mut out)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn broken(e: &dyn std::error::Error) -> Failure {
    Failure::new("the certificates of this site cannot be used").because(e)
}

/// Returns the identity of the hub in a folder.
fn hub(folder: &Path) -> Result<Identity, Failure> {
    let found = Identity::load(folder).map_err(|e| broken(&e))?;
    let found = found.filter(|identity| identity.names().is_hub);
    found.ok_or_else(|| {
        Failure::new(format!("there is no hub's certificate in {}", folder.display()))
            .hint("`skopos pki init` makes it, on the machine of the hub")
    })
}

fn init(folder: &Path, args: &InitArgs, out: &mut Out) -> Result<(), Failure> {
    let node = args.node.clone().unwrap_or_else(host_name);
    for (what, name) in [("site", &args.site), ("node", &node)] {
        if !is_segment(name) {
            return Err(Failure::new(format!("`{name}` is not the name of a {what}")));
        }
    }
    let mut hosts = args.host.clone();
    if hosts.is_empty() {
        hosts = vec![node.clone(), "localhost".to_owned()];
    }
    let names = Names { site: args.site.clone(), node, is_hub: true };
    pki::init(folder, &names, hosts.clone()).map_err(|e| broken(&e))?;
    out.line(format!("made the authority of the site {} in {}", args.site, folder.display()))?;
    out.line(format!("others reach this hub at {}", hosts.join(", ")))?;
    out.line("next: skopos hub --listen tls/0.0.0.0:7447 --http 0.0.0.0:7470")?;
    out.line("      skopos pki token          for nodes, to join")?;
    out.line("      skopos pki user NAME      for users, to ask from other machines")?;
    Ok(())
}

/// Checks the name or the address of a host.
fn host(text: &str) -> Result<String, String> {
    let is_name = text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    match text.parse::<IpAddr>().is_ok() || is_name && !text.is_empty() {
        true => Ok(text.to_owned()),
        false => Err("this is not the name or address of a host; write it without scheme and port"
            .to_owned()),
    }
}

fn renew(folder: &Path, out: &mut Out) -> Result<(), Failure> {
    let names = pki::renew(folder).map_err(|e| broken(&e))?;
    out.line(format!("the {names} has a new certificate; restart `skopos hub` to use it"))?;
    Ok(())
}

fn token(folder: &Path, args: &TokenArgs, out: &mut Out) -> Result<(), Failure> {
    let identity = hub(folder)?;
    if !Authority::is_in(folder) {
        return Err(Failure::new("this hub has no authority, so that nobody can join here")
            .hint("make the token on the first hub of the site"));
    }
    let grant = Grant::Join { node: args.node.clone(), hub_at: args.hub_at.clone() };
    let secret = Register::new(folder).grant(grant, args.life).map_err(|e| broken(&e))?;
    Ok(out.line(pki::join_token(&identity, &secret))?)
}

fn user(folder: &Path, args: &UserArgs, out: &mut Out) -> Result<(), Failure> {
    hub(folder)?;
    let leads: BTreeSet<String> = args.leads.iter().cloned().collect();
    let (user, role) = (args.name.clone(), args.role.name().to_owned());
    let granted = Register::new(folder).grant(Grant::User { user, role, leads }, args.life);
    Ok(out.line(granted.map_err(|e| broken(&e))?)?)
}

fn list(folder: &Path, out: &mut Out) -> Result<(), Failure> {
    let (site, register) = (hub(folder)?.names().site, Register::new(folder));
    let nodes = register.nodes().map_err(|e| broken(&e))?;
    let tokens = register.tokens().map_err(|e| broken(&e))?;
    if out.style == Style::Json {
        let node = |Certified { node, hosts, issued_at, .. }| Node { node, hosts, issued_at };
        let nodes = nodes.into_iter().map(node).collect();
        return Ok(out.json(&Listing { site, nodes, tokens })?);
    }
    out.line(format!("site {site}: {} nodes with certificates", nodes.len()))?;
    for node in nodes {
        out.line(format!("  {}\t{}", node.node, node.hosts.join(", ")))?;
    }
    for token in tokens {
        let what = match token.grant {
            Grant::Join { node: Some(node), hub_at } if hub_at.is_empty() => {
                format!("to join as {node}")
            }
            Grant::Join { node: Some(node), .. } => format!("to join as the hub {node}"),
            Grant::Join { node: None, .. } => "to join".to_owned(),
            Grant::User { user, role, leads } if leads.is_empty() => format!("{user} ({role})"),
            Grant::User { user, role, leads } => {
                let leads: Vec<String> = leads.into_iter().collect();
                format!("{user} ({role}), leads {}", leads.join(", "))
            }
        };
        let left = Duration::from_secs(token.expires_at.saturating_sub(since_epoch()));
        out.line(format!("  token {what}\tfor {}", duration::human(left)))?;
    }
    Ok(())
}

/// Returns the seconds of UNIX time.
fn since_epoch() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn revoke(folder: &Path, name: Option<&str>, join: bool, out: &mut Out) -> Result<(), Failure> {
    let is_meant = |grant: &Grant| match grant {
        Grant::Join { .. } => join,
        Grant::User { user, .. } => Some(user.as_str()) == name,
    };
    let what = name.map_or_else(|| "to join".to_owned(), |name| format!("of {name}"));
    match Register::new(folder).revoke(is_meant).map_err(|e| broken(&e))? {
        0 => Err(Failure::no(format!("there is no token {what}"))
            .hint("`skopos pki ls` lists the tokens")),
        1 => Ok(out.line(format!("1 token {what} ended"))?),
        ended => Ok(out.line(format!("{ended} tokens {what} ended"))?),
    }
}

fn forget(folder: &Path, node: &str, out: &mut Out) -> Result<(), Failure> {
    let is_hub = hub(folder)?.names().node == node;
    if is_hub {
        return Err(Failure::new(format!("`{node}` is the hub itself")));
    }
    match Register::new(folder).forget(node).map_err(|e| broken(&e))? {
        true => Ok(out.line(format!("{node} is forgotten; its certificate ends within a week"))?),
        false => Err(Failure::no(format!("there is no node `{node}`"))
            .hint("`skopos pki ls` lists the nodes")),
    }
}
