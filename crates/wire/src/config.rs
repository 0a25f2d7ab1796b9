//! Settings of a session: how it finds others, and where Zenoh's defaults do not fit a live plane.

use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use zenoh::config::Config;

use crate::drops::DropCounter;
use crate::error::{Error, without_places};
use crate::meeting::Meeting;
use crate::trust::{AUTHORITY, IDENTITY, Identity, ProofRules};

/// The longest message that a session accepts: many times the longest batch, so no batch is refused.
const MAX_MESSAGE_BYTES: u32 = 1 << 20;

/// The most sessions with others at one time: more nodes than one hub should follow.
const MAX_SESSIONS: u32 = 16_384;

/// The most sessions that may be opening at one time: all agents of a large site connect together when
/// their hub restarts.
const MAX_OPENING: u32 = 4096;

/// The longest piece of a message, in bytes. Each link has buffers of this length, and a hub has thousands of links; a
/// batch of a publisher fits.
const PIECE_BYTES: u16 = 8192;

/// The most pieces in the queue of a link: the greatest number that Zenoh allows.
/// It allocates them when they are needed. A publisher that starts describes all its topics at once.
const QUEUE: u32 = 16;

/// Milliseconds of silence after which a connection counts as broken. Followers notice a silent publisher earlier, by its
/// missing batches; a publisher notices by this that its hub is cut off, and looks for another one. The connection to a hub
/// that ends breaks at once.
const LEASE_MS: u32 = 10_000;

/// Keep-alives that an end sends in this time while it has nothing else to send: one every five seconds, which is longer
/// than the time between two batches, so that a publisher sends none. TCP loses none of them. A hub sends them to each
/// node, and both ends wake for each: about 0.1 ms of processor time.
const KEEP_ALIVES: u32 = 2;

/// The first and the longest pause, in milliseconds, before a retry of a lost connection. Each session
/// draws its first pause at random, so that the sessions of a site do not reach a restarted hub all at
/// one instant.
const FIRST_RETRY_MS: std::ops::Range<u64> = 200..1200;
const LONGEST_RETRY_MS: u64 = 4000;

/// A variable of the environment, and its value with which a program of a node should start: the transport reads it once.
/// One thread waits for sockets, handles their messages and runs timers, instead of four that wake each other, so a change
/// of a program is in a mirror two wake-ups sooner. The thread that sends stays apart: a message that finds the queue of a
/// link full waits for it. A session works without this setting too.
pub const RUNTIME: (&str, &str) =
    ("ZENOH_RUNTIME", "(rx: (handover: acc), app: (handover: acc), net: (handover: acc))");

/// Settings of a session.
#[derive(Clone, Debug)]
pub struct PlaneConfig {
    /// Name of the site. Nodes of one site share their data; sites on one network do not see each other.
    pub site: String,
    /// True for a client: it communicates only through the first endpoint of `connect` that answers (and
    /// another one when that is gone), and never listens.
    pub is_client: bool,
    /// True if it connects to every node that it learns of from others. A follower needs a connection
    /// with each node; two publishers need none with each other.
    pub follows: bool,
    /// Folder in which the sessions of this user on this machine meet, through UNIX sockets.
    pub folder: Option<PathBuf>,
    /// The identity of this program, which the endpoints `tls/…` need. Without it, messages are not signed.
    pub identity: Option<Arc<Identity>>,
    /// Endpoints to listen on, as `tls/10.0.0.1:7447`, or `tcp/…` without identity.
    pub listen: Vec<String>,
    /// Endpoints to connect to.
    pub connect: Vec<String>,
    /// Interface on which to look for others: its name, or `auto`. `None` turns the search off.
    pub look_on: Option<String>,
    /// Counts what the session drops. Sessions that follow one another have one counter.
    pub drops: DropCounter,
}

impl PlaneConfig {
    /// Returns the settings of a peer of a site that reaches no other session yet.
    pub fn alone(site: &str) -> Self {
        Self {
            site: site.to_owned(),
            is_client: false,
            follows: true,
            folder: None,
            identity: None,
            listen: Vec::new(),
            connect: Vec::new(),
            look_on: None,
            drops: DropCounter::default(),
        }
    }

    /// Checks all settings.
    ///
    /// # Errors
    /// The transport refuses a setting.
    pub fn check(&self) -> Result<(), Error> {
        self.rules()?;
        self.zenoh(None).map(drop)
    }

    /// Returns the rules of the session about proofs.
    ///
    /// # Errors
    /// An endpoint needs an identity, or the identity is one of another site.
    pub(crate) fn rules(&self) -> Result<ProofRules, Error> {
        let mut endpoints = self.listen.iter().chain(&self.connect);
        if let Some(identity) = &self.identity {
            let certified = identity.names().site;
            if certified != self.site {
                return Err(Error::OtherSite { certified, site: self.site.clone() });
            }
        } else if let Some(endpoint) = endpoints.find(|one| one.starts_with("tls/")) {
            return Err(Error::NoIdentity(endpoint.clone()));
        }
        let is_reached =
            !self.listen.is_empty() || !self.connect.is_empty() || self.look_on.is_some();
        Ok(ProofRules::new(self.identity.clone(), is_reached))
    }

    /// Returns the pauses before further attempts to open a session, without end. Each call draws other
    /// pauses.
    pub fn pauses(&self) -> impl Iterator<Item = Duration> + use<> {
        let first = Duration::from_millis(self.drawn());
        let longest = Duration::from_millis(LONGEST_RETRY_MS);
        std::iter::successors(Some(first), move |pause| Some((*pause * 2).min(longest)))
    }

    /// Draws a first pause.
    fn drawn(&self) -> u64 {
        // Each `RandomState` has random keys.
        let drawn = RandomState::new().hash_one(&self.site);
        FIRST_RETRY_MS.start + drawn % (FIRST_RETRY_MS.end - FIRST_RETRY_MS.start)
    }

    /// Returns the transport's settings. `meeting` has further endpoints.
    pub(crate) fn zenoh(&self, meeting: Option<&Meeting>) -> Result<Config, Error> {
        let (mut listen, mut connect) = (self.listen.clone(), self.connect.clone());
        if let Some(meeting) = meeting {
            listen.push(meeting.listen.clone());
            connect.extend_from_slice(&meeting.connect);
        }
        let list = |items: &[String]| {
            let quoted: Vec<String> = items.iter().map(|item| format!("{item:?}")).collect();
            format!("[{}]", quoted.join(","))
        };
        let mut config = Config::default();
        let mode = if self.is_client { "\"client\"" } else { "\"peer\"" };
        let looks = self.look_on.is_some().to_string();
        let pause = self.drawn();
        // A client's session is useless without the other end, so opening it fails if there is none. A
        // peer retries in the background: its node may restart before the others.
        let timeout_ms = if self.is_client { "0" } else { "-1" };
        let retry = format!(
            "{{period_init_ms:{pause},period_max_ms:{LONGEST_RETRY_MS},period_increase_factor:2}}"
        );
        let mut settings = vec![
            ("mode", mode.to_owned()),
            ("connect/endpoints", list(&connect)),
            ("scouting/multicast/enabled", looks),
            ("connect/exit_on_failure", "false".to_owned()),
            ("connect/timeout_ms", timeout_ms.to_owned()),
            ("connect/retry", retry),
            // A batch that cannot be sent at once is dropped: its number shows the gap, and followers
            // request a snapshot.
            ("transport/link/tx/queue/congestion_control/drop/wait_before_drop", "0".to_owned()),
            ("transport/link/tx/queue/size/data", QUEUE.to_string()),
            ("transport/link/tx/batch_size", PIECE_BYTES.to_string()),
            ("transport/link/tx/lease", LEASE_MS.to_string()),
            ("transport/link/tx/keep_alive", KEEP_ALIVES.to_string()),
            ("transport/link/rx/buffer_size", PIECE_BYTES.to_string()),
            ("transport/link/rx/max_message_size", MAX_MESSAGE_BYTES.to_string()),
            ("transport/unicast/max_sessions", MAX_SESSIONS.to_string()),
            ("transport/unicast/accept_pending", MAX_OPENING.to_string()),
        ];
        if !self.is_client {
            settings.push(("listen/endpoints", list(&listen)));
        }
        if !self.follows {
            settings.push(("scouting/gossip/autoconnect", "[]".to_owned()));
        }
        if let Some(interface) = &self.look_on {
            settings.push(("scouting/multicast/interface", format!("{interface:?}")));
        }
        if let Some(identity) = &self.identity {
            settings.extend(tls(identity.folder()));
        }
        for (key, value) in settings {
            config.insert_json5(key, &value).map_err(|e| Error::Setting {
                name: key,
                value: value.clone(),
                why: without_places(&e.to_string()),
            })?;
        }
        Ok(config)
    }
}

/// Returns the settings of TLS with the files of an identity. Each end shows its certificate; the end that connects
/// compares the name of the other.
fn tls(folder: &Path) -> Vec<(&'static str, String)> {
    let file = |name: &str| format!("{:?}", folder.join(name).to_string_lossy());
    vec![
        ("transport/link/tls/root_ca_certificate", file(AUTHORITY)),
        ("transport/link/tls/listen_private_key", file(IDENTITY)),
        ("transport/link/tls/listen_certificate", file(IDENTITY)),
        ("transport/link/tls/connect_private_key", file(IDENTITY)),
        ("transport/link/tls/connect_certificate", file(IDENTITY)),
        ("transport/link/tls/enable_mtls", "true".to_owned()),
        ("transport/link/tls/verify_name_on_connect", "true".to_owned()),
        // It connects again with its new certificate.
        ("transport/link/tls/close_link_on_expiration", "true".to_owned()),
    ]
}
