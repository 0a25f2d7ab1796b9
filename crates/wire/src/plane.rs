//! The live plane: sessions that find each other, and what one publisher sends.
//!
//! # Keys
//! ```text
//! skopos/SITE/live/NODE/INCARNATION      batches, as they come
//! skopos/SITE/whole/NODE/INCARNATION/N   answers with a snapshot, in batches
//! skopos/SITE/alive/NODE/INCARNATION     a liveliness token: goes with its publisher
//! ```
//! An incarnation is the time in nanoseconds when a publisher came, so that one that starts again is
//! another one, and of two with one name the second is known: it gives way, at once or, if both came
//! before they could see each other, when it sees the first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use zenoh::Wait as _;
use zenoh::config::Config;
use zenoh::liveliness::LivelinessToken;
use zenoh::pubsub::Publisher;
use zenoh::qos::CongestionControl;
use zenoh::query::Queryable;

use crate::{Batch, Error, site};

/// How long to wait for others to say that a name is theirs.
const PATIENCE_FOR_NAMES: Duration = Duration::from_millis(500);

/// How a session finds others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaneConfig {
    /// Who share what they know: sites on one network do not see each other.
    pub site: String,
    /// Whether this process only speaks with those it is told to connect to, and never listens: an
    /// agent among a thousand.
    pub is_client: bool,
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
            listen: vec!["tcp/127.0.0.1:0".to_owned()],
            connect: Vec::new(),
            look_on: Some("lo".to_owned()),
        }
    }

    fn zenoh(&self) -> Result<Config, Error> {
        let list = |items: &[String]| {
            let quoted: Vec<String> = items.iter().map(|item| format!("{item:?}")).collect();
            format!("[{}]", quoted.join(","))
        };
        let mut config = Config::default();
        let mode = if self.is_client { "\"client\"" } else { "\"peer\"" };
        let looks = self.look_on.is_some().to_string();
        let mut settings = vec![
            ("mode", mode.to_owned()),
            ("connect/endpoints", list(&self.connect)),
            ("scouting/multicast/enabled", looks),
            // A node of ours may restart before its peers: they try again until it is there.
            ("connect/exit_on_failure", "false".to_owned()),
            ("connect/timeout_ms", "-1".to_owned()),
            // What cannot be sent at once is dropped: it is numbered, and asked for again.
            ("transport/link/tx/queue/congestion_control/drop/wait_before_drop", "0".to_owned()),
            // A peer that is gone without a word is found out after so many milliseconds of silence.
            ("transport/link/tx/lease", "1500".to_owned()),
        ];
        if !self.is_client {
            settings.push(("listen/endpoints", list(&self.listen)));
        }
        if let Some(interface) = &self.look_on {
            settings.push(("scouting/multicast/interface", format!("{interface:?}")));
        }
        for (key, value) in settings {
            config.insert_json5(key, &value).map_err(|e| Error::Setting {
                name: key,
                value: value.clone(),
                why: e.to_string(),
            })?;
        }
        Ok(config)
    }
}

/// A session of the live plane.
#[derive(Clone, Debug)]
pub struct Plane {
    pub(crate) session: zenoh::Session,
    pub(crate) site: String,
}

impl Plane {
    /// Opens a session.
    ///
    /// # Errors
    /// A setting is none; nothing can be listened on.
    pub fn open(config: &PlaneConfig) -> Result<Self, Error> {
        let session = zenoh::open(config.zenoh()?).wait().map_err(|e| Error::plane(&e))?;
        Ok(Self { session, site: config.site.clone() })
    }

    /// Becomes the publisher of a node. `whole` says all that there is, as of the last batch that was
    /// sent; it is called from another thread.
    ///
    /// # Errors
    /// [`Error::Taken`] if there is one of this name; the session is broken.
    pub fn announce(
        &self,
        node: &str,
        incarnation: i64,
        whole: impl Fn() -> Vec<Batch> + Send + Sync + 'static,
    ) -> Result<Outlet, Error> {
        let broken = |e: zenoh::Error| Error::plane(&e);
        let key = |what: &str| format!("skopos/{}/{what}/{node}/{incarnation}", self.site);
        let alive = format!("skopos/{}/alive/{node}/*", self.site);
        let others = self.session.liveliness().get(&alive).timeout(PATIENCE_FOR_NAMES);
        let others = others.wait().map_err(broken)?;
        while let Ok(reply) = others.recv() {
            if reply.result().is_ok() {
                return Err(Error::Taken { node: node.to_owned(), site: self.site.clone() });
            }
        }
        let answered = key("whole");
        let whole = Arc::new(whole);
        let queryable =
            self.session.declare_queryable(format!("{answered}/*")).callback(move |query| {
                for (at, batch) in whole().iter().enumerate() {
                    // Each part has a key of its own, since one that replaces another would lose it. Who
                    // asked and went away gets nothing.
                    let _ = query.reply(format!("{answered}/{at}"), batch.encode()).wait();
                }
            });
        Ok(Outlet {
            session: self.session.clone(),
            alive,
            incarnation,
            is_second: Arc::default(),
            queryable: queryable.wait().map_err(broken)?,
            publisher: self
                .session
                .declare_publisher(key("live"))
                .congestion_control(CongestionControl::Drop)
                .wait()
                .map_err(broken)?,
            // Last: who sees it may ask at once.
            token: self.session.liveliness().declare_token(key("alive")).wait().map_err(broken)?,
        })
    }
}

/// What one publisher sends through.
#[derive(Debug)]
pub struct Outlet {
    publisher: Publisher<'static>,
    queryable: Queryable<()>,
    token: LivelinessToken,
    /// The key of all that have this name.
    alive: String,
    incarnation: i64,
    is_second: Arc<AtomicBool>,
    /// A session closes with its last owner, and what was declared on it is none.
    session: zenoh::Session,
}

impl Outlet {
    /// Sends a batch to whoever follows. Never waits for any of them: one that does not keep up misses
    /// it.
    ///
    /// # Errors
    /// The session is closed.
    pub fn send(&self, batch: &Batch) -> Result<(), Error> {
        self.publisher.put(batch.encode()).wait().map_err(|e| Error::plane(&e))
    }

    /// Asks who else has this name; [`is_second`](Self::is_second) will say. To be called now and then:
    /// others may not have been within sight when this one came. (A standing subscription would make
    /// the session answer for itself when it is asked who is there.)
    ///
    /// # Errors
    /// The session is closed.
    pub fn look_for_first(&self) -> Result<(), Error> {
        let (is_second, own) = (self.is_second.clone(), self.incarnation);
        let asked = self.session.liveliness().get(&self.alive).timeout(PATIENCE_FOR_NAMES);
        let asked = asked.callback(move |reply| {
            let first = reply.result().ok().and_then(|token| site::of_key(token.key_expr()));
            if first.is_some_and(|(_, incarnation)| incarnation < own) {
                is_second.store(true, Ordering::Relaxed);
            }
        });
        asked.wait().map_err(|e| Error::plane(&e))
    }

    /// Whether another node had this name before: this one is to [`close`](Self::close), and to say why.
    pub fn is_second(&self) -> bool {
        self.is_second.load(Ordering::Relaxed)
    }

    /// Says that the node goes, now rather than when others find out.
    pub fn close(self) {
        // What fails is already gone.
        let _ = self.token.undeclare().wait();
        let _ = self.queryable.undeclare().wait();
        let _ = self.publisher.undeclare().wait();
    }
}
