//! The live plane: sessions that find each other, and what one publisher sends.
//!
//! # Keys
//! ```text
//! skopos/SITE/live/NODE/INCARNATION      batches, as they come
//! skopos/SITE/whole/NODE/INCARNATION/N   answers with a snapshot, in batches: `0of3`, `1of3`, `2of3`
//! skopos/SITE/ask/NODE                   answers what a topic is, measured now
//! skopos/SITE/alive/NODE/INCARNATION     a liveliness token: goes with its publisher
//! skopos/SITE/known/NODE                 followers answer with the incarnation that is there
//! skopos/SITE/history/NODE/INCARNATION/N answers with what a node has kept, in batches
//! ```
//! An incarnation is the time in nanoseconds when a publisher came, so that one that starts again is
//! another one, and of two with one name the second is known: it gives way, at once or, if both came
//! before they could see each other, when it sees the first. Two that only tell have no connection with
//! each other, so who follows them is asked too.
//!
//! # Who waits for whom
//! Batches are dropped where they cannot be sent at once. Snapshots are not, since half of one is none;
//! so they have a queue of their own on each link (another priority), and are answered on threads of
//! their own: a subscriber that stands still holds up the answer to itself, and nobody's batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use skopos_model::Topic;
use zenoh::Wait as _;
use zenoh::liveliness::LivelinessToken;
use zenoh::pubsub::Publisher;
use zenoh::qos::{CongestionControl, Priority};
use zenoh::query::{Query, Queryable};

use crate::follower::of_key;
use crate::{Batch, Error, PlaneConfig};

/// How long to wait for others to say that a name is theirs.
const PATIENCE_FOR_NAMES: Duration = Duration::from_millis(500);

/// Questions that one publisher answers at one time, each on a thread. Who asks more often gets no
/// answer, and asks again.
const MAX_ANSWERING: usize = 8;

/// A session of the live plane.
#[derive(Clone, Debug)]
pub struct Plane {
    pub(crate) session: zenoh::Session,
    pub(crate) site: String,
}

/// What a publisher can be asked for. It is asked from other threads.
pub trait Answers: Send + Sync + 'static {
    /// All that there is, as of the last batch that was sent.
    fn whole(&self) -> Vec<Batch>;

    /// What a topic is, measured now. May take as long as that takes.
    ///
    /// # Errors
    /// Why it cannot be measured, in words for people.
    fn refresh(&self, topic: &Topic) -> Result<Batch, String> {
        Err(format!("its node measures `{topic}` for nobody"))
    }
}

impl<F: Fn() -> Vec<Batch> + Send + Sync + 'static> Answers for F {
    fn whole(&self) -> Vec<Batch> {
        self()
    }
}

impl Plane {
    /// Opens a session. One that was open finds back to whom it lost by itself.
    ///
    /// # Errors
    /// A setting is none; nothing can be listened on; for a client, nobody answers where it connects to
    /// (see [`PlaneConfig::pauses`]).
    pub fn open(config: &PlaneConfig) -> Result<Self, Error> {
        let session = zenoh::open(config.zenoh()?).wait().map_err(|e| Error::plane(&e))?;
        Ok(Self { session, site: config.site.clone() })
    }

    /// Whether there is a connection with nobody: no hub, no node, no router.
    pub fn is_alone(&self) -> bool {
        let info = self.session.info();
        info.peers_zid().wait().chain(info.routers_zid().wait()).next().is_none()
    }

    /// Becomes the publisher of a node.
    ///
    /// # Errors
    /// [`Error::Taken`] if there is one of this name; the session is broken.
    pub fn announce(
        &self,
        node: &str,
        incarnation: i64,
        answers: impl Answers,
    ) -> Result<Outlet, Error> {
        let broken = |e: zenoh::Error| Error::plane(&e);
        let key = |what: &str| self.key(what, node, incarnation);
        let (sender, others) = std::sync::mpsc::channel();
        self.look_for(node, move |other| {
            let _ = sender.send(other);
        })?;
        // It ends when both questions are answered.
        if others.recv().is_ok() {
            return Err(Error::Taken { node: node.to_owned(), site: self.site.clone() });
        }
        let (answers, answering) = (Arc::new(answers), Arc::new(AtomicUsize::new(0)));
        let whole = {
            let (answers, answering) = (answers.clone(), answering.clone());
            let key = key("whole");
            let callback = move |query| {
                let (answers, key) = (answers.clone(), key.clone());
                aside(&answering, move || send_whole(&query, &key, &answers.whole()));
            };
            self.session
                .declare_queryable(format!("{}/*", self.key("whole", node, incarnation)))
                .callback(callback)
        };
        let ask = self.session.declare_queryable(self.ask_key(node)).callback(move |query| {
            let answers = answers.clone();
            aside(&answering, move || send_fresh(&query, &*answers));
        });
        Ok(Outlet {
            plane: self.clone(),
            node: node.to_owned(),
            incarnation,
            is_second: Arc::default(),
            queryables: [whole.wait().map_err(broken)?, ask.wait().map_err(broken)?],
            publisher: self
                .session
                .declare_publisher(key("live"))
                .congestion_control(CongestionControl::Drop)
                // It is gathered before it comes here, and waits for no more.
                .express(true)
                .wait()
                .map_err(broken)?,
            // Last: who sees it may ask at once.
            token: self.session.liveliness().declare_token(key("alive")).wait().map_err(broken)?,
        })
    }

    /// Asks which publishers of this name there are. `found` is dropped when all have answered.
    fn look_for(
        &self,
        node: &str,
        found: impl Fn(i64) + Clone + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let alive = format!("skopos/{}/alive/{node}/*", self.site);
        let alive = self.session.liveliness().get(&alive).timeout(PATIENCE_FOR_NAMES);
        let in_sight = found.clone();
        let alive = alive.callback(move |reply| {
            let other = reply.result().ok().and_then(|token| of_key(token.key_expr()));
            other.into_iter().for_each(|(_, incarnation)| in_sight(incarnation));
        });
        let known = self.session.get(format!("skopos/{}/known/{node}", self.site));
        let known = known.timeout(PATIENCE_FOR_NAMES).callback(move |reply| {
            let text = reply.result().ok().and_then(|known| known.payload().try_to_string().ok());
            text.and_then(|text| text.parse().ok()).into_iter().for_each(&found);
        });
        alive.wait().and_then(|()| known.wait()).map_err(|e| Error::plane(&e))
    }

    /// Has a topic measured now by the node that it is of: a batch that describes and tells it.
    ///
    /// # Errors
    /// [`Error::Refused`] by the node; [`Error::NoAnswer`] within `deadline`; [`Error::Nobody`] if no
    /// such node can be reached.
    pub fn refresh(&self, topic: &Topic, deadline: Duration) -> Result<Batch, Error> {
        let broken = |e: zenoh::Error| Error::plane(&e);
        let asked = self.session.get(self.ask_key(topic.node()));
        let asked = asked.payload(topic.as_str()).timeout(deadline).priority(Priority::DataLow);
        let replies = asked.wait().map_err(broken)?;
        let begun = Instant::now();
        let node = || topic.node().to_owned();
        loop {
            match replies.recv_timeout(deadline.saturating_sub(begun.elapsed())) {
                Err(_) if begun.elapsed() < deadline => return Err(Error::Nobody(node())),
                Err(_) | Ok(None) => {
                    return Err(Error::NoAnswer { node: node(), within: deadline });
                }
                Ok(Some(reply)) => match reply.result() {
                    Ok(sample) => return Batch::decode(&sample.payload().to_bytes()),
                    // Not the node's: the session says that time is over.
                    Err(_) if begun.elapsed() >= deadline => {}
                    Err(refused) => {
                        let bytes = refused.payload().to_bytes();
                        return Err(Error::Refused(String::from_utf8_lossy(&bytes).into_owned()));
                    }
                },
            }
        }
    }

    pub(crate) fn key(&self, what: &str, node: &str, incarnation: i64) -> String {
        format!("skopos/{}/{what}/{node}/{incarnation}", self.site)
    }

    pub(crate) fn known_key(&self) -> String {
        format!("skopos/{}/known/*", self.site)
    }

    fn ask_key(&self, node: &str) -> String {
        format!("skopos/{}/ask/{node}", self.site)
    }
}

/// Does something on a thread of its own, unless as many are at it as may be.
pub(crate) fn aside(busy: &Arc<AtomicUsize>, work: impl FnOnce() + Send + 'static) {
    let leave = |busy: &AtomicUsize| busy.fetch_sub(1, Ordering::Relaxed);
    if busy.fetch_add(1, Ordering::Relaxed) >= MAX_ANSWERING {
        leave(busy);
        return;
    }
    let done = busy.clone();
    let run = move || {
        work();
        leave(&done);
    };
    if std::thread::Builder::new().name("live-answer".to_owned()).spawn(run).is_err() {
        leave(busy);
    }
}

/// Answers with a snapshot. Each part has a key of its own, since one that replaces another would lose
/// it. Who asked and went away gets nothing.
fn send_whole(query: &Query, key: &str, parts: &[Batch]) {
    for (at, batch) in parts.iter().enumerate() {
        let _ = query.reply(format!("{key}/{at}of{}", parts.len()), batch.encode()).wait();
    }
}

/// Answers what a topic is now.
fn send_fresh(query: &Query, answers: &dyn Answers) {
    let asked = query.payload().map(|payload| payload.to_bytes().into_owned());
    let topic = asked.and_then(|bytes| String::from_utf8(bytes).ok());
    let topic = topic.and_then(|text| Topic::new(&text).ok());
    let answer = match topic {
        Some(topic) => answers.refresh(&topic),
        None => Err("what was asked for is no topic".to_owned()),
    };
    let _ = match answer {
        Ok(batch) => query.reply(query.key_expr().clone(), batch.encode()).wait(),
        Err(why) => query.reply_err(why).wait(),
    };
}

/// What one publisher sends through.
#[derive(Debug)]
pub struct Outlet {
    publisher: Publisher<'static>,
    queryables: [Queryable<()>; 2],
    token: LivelinessToken,
    /// Whose name it has. A session closes with its last owner, and what was declared on it is none.
    plane: Plane,
    node: String,
    incarnation: i64,
    is_second: Arc<AtomicBool>,
}

impl Outlet {
    /// Sends a batch to whoever follows. Never waits for any of them: one that does not keep up misses
    /// it. How many bytes it has.
    ///
    /// # Errors
    /// The session is closed.
    pub fn send(&self, batch: &Batch) -> Result<usize, Error> {
        let bytes = batch.encode();
        let length = bytes.len();
        self.send_bytes(bytes).map(|()| length)
    }

    /// Sends bytes that are no batch, as a broken or hostile publisher would: for tests.
    ///
    /// # Errors
    /// The session is closed.
    #[doc(hidden)]
    pub fn send_bytes(&self, bytes: Vec<u8>) -> Result<(), Error> {
        self.publisher.put(bytes).wait().map_err(|e| Error::plane(&e))
    }

    /// Asks who else has this name; [`is_second`](Self::is_second) will say. To be called now and then:
    /// others may not have been within sight when this one came. (A standing subscription would make
    /// the session answer for itself when it is asked who is there.)
    ///
    /// # Errors
    /// The session is closed.
    pub fn look_for_first(&self) -> Result<(), Error> {
        let (is_second, own) = (self.is_second.clone(), self.incarnation);
        self.plane.look_for(&self.node, move |incarnation| {
            if incarnation < own {
                is_second.store(true, Ordering::Relaxed);
            }
        })
    }

    /// Whether another node had this name before: this one is to [`close`](Self::close), and to say why.
    pub fn is_second(&self) -> bool {
        self.is_second.load(Ordering::Relaxed)
    }

    /// Says that the node goes, now rather than when others find out.
    pub fn close(self) {
        // What fails is already gone.
        let _ = self.token.undeclare().wait();
        for queryable in self.queryables {
            let _ = queryable.undeclare().wait();
        }
        let _ = self.publisher.undeclare().wait();
    }
}
