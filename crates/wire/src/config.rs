//! How a session finds others, and what of Zenoh's defaults does not fit a live plane.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use zenoh::config::Config;

use crate::Error;
use crate::error::without_places;

/// The longest message that is taken in: many times that of a batch, so that what is refused is no batch.
const MAX_MESSAGE_BYTES: u32 = 1 << 20;

/// Sessions with others at one time: more nodes than one hub should follow.
const MAX_SESSIONS: u32 = 16_384;

/// Sessions that may be in the middle of opening: all agents of a large site come at once when their hub
/// is started again.
const MAX_OPENING: u32 = 4096;

/// Batches of Zenoh, 64 KB each, that wait on one link: as many as it allows. They are made as they are
/// needed. What a publisher that starts has to say of all its topics comes at once.
const QUEUE: u32 = 16;

/// After so many milliseconds without a word a peer is taken for dead. It says something four times as
/// often.
const LEASE_MS: u32 = 1500;

/// The first and the longest pause, in milliseconds, before a lost connection is tried again. Each
/// session draws its first pause from the first second, so that a hub that starts again does not get
/// everybody at one instant.
const FIRST_RETRY_MS: std::ops::Range<u64> = 200..1200;
const LONGEST_RETRY_MS: u64 = 4000;

/// How a session finds others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaneConfig {
    /// Who share what they know: sites on one network do not see each other.
    pub site: String,
    /// Whether this process only speaks through the one that it connects to, and never listens: the first
    /// of several that answers, and another one when that is gone.
    pub is_client: bool,
    /// Whether it connects to those whom others tell it of: who follows nodes does, and needs a
    /// connection with each. Two that only tell need none with each other.
    pub follows: bool,
    /// Where to listen, as `tcp/127.0.0.1:7447`.
    pub listen: Vec<String>,
    /// Whom to connect to.
    pub connect: Vec<String>,
    /// The interface on which to look for others: its name, or `auto`; nobody is looked for without.
    pub look_on: Option<String>,
}

impl PlaneConfig {
    /// Of a site, on this machine alone.
    pub fn on_this_machine(site: &str) -> Self {
        Self {
            site: site.to_owned(),
            is_client: false,
            follows: true,
            listen: vec!["tcp/127.0.0.1:0".to_owned()],
            connect: Vec::new(),
            look_on: Some("lo".to_owned()),
        }
    }

    /// Whether all of it can be.
    ///
    /// # Errors
    /// A setting is none.
    pub fn check(&self) -> Result<(), Error> {
        self.zenoh().map(drop)
    }

    /// How long to wait before each further attempt to open a session, without end. Every caller has
    /// pauses of its own.
    pub fn pauses(&self) -> impl Iterator<Item = Duration> + use<> {
        let first = Duration::from_millis(self.drawn());
        let longest = Duration::from_millis(LONGEST_RETRY_MS);
        std::iter::successors(Some(first), move |pause| Some((*pause * 2).min(longest)))
    }

    /// A first pause.
    fn drawn(&self) -> u64 {
        // Keys of a hash are drawn at random for each.
        let drawn = RandomState::new().hash_one(&self.site);
        FIRST_RETRY_MS.start + drawn % (FIRST_RETRY_MS.end - FIRST_RETRY_MS.start)
    }

    pub(crate) fn zenoh(&self) -> Result<Config, Error> {
        let list = |items: &[String]| {
            let quoted: Vec<String> = items.iter().map(|item| format!("{item:?}")).collect();
            format!("[{}]", quoted.join(","))
        };
        let mut config = Config::default();
        let mode = if self.is_client { "\"client\"" } else { "\"peer\"" };
        let looks = self.look_on.is_some().to_string();
        let pause = self.drawn();
        // A client's session is nothing without the other end, so who opens it is told that nobody is
        // there. A peer tries by itself: a node of ours may restart before others.
        let patience = if self.is_client { "0" } else { "-1" };
        let retry = format!(
            "{{period_init_ms:{pause},period_max_ms:{LONGEST_RETRY_MS},period_increase_factor:2}}"
        );
        let mut settings = vec![
            ("mode", mode.to_owned()),
            ("connect/endpoints", list(&self.connect)),
            ("scouting/multicast/enabled", looks),
            ("connect/exit_on_failure", "false".to_owned()),
            ("connect/timeout_ms", patience.to_owned()),
            ("connect/retry", retry),
            // What cannot be sent at once is dropped: it is numbered, and asked for again.
            ("transport/link/tx/queue/congestion_control/drop/wait_before_drop", "0".to_owned()),
            ("transport/link/tx/queue/size/data", QUEUE.to_string()),
            ("transport/link/tx/lease", LEASE_MS.to_string()),
            ("transport/link/rx/max_message_size", MAX_MESSAGE_BYTES.to_string()),
            ("transport/unicast/max_sessions", MAX_SESSIONS.to_string()),
            ("transport/unicast/accept_pending", MAX_OPENING.to_string()),
        ];
        if !self.is_client {
            settings.push(("listen/endpoints", list(&self.listen)));
        }
        if !self.follows {
            settings.push(("scouting/gossip/autoconnect", "[]".to_owned()));
        }
        if let Some(interface) = &self.look_on {
            settings.push(("scouting/multicast/interface", format!("{interface:?}")));
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
