//! The live plane: sessions that find each other, and the outlet of one publisher.
//!
//! # Names
//! The keys are in `keys`. Of two publishers with one name the one with the later incarnation gives
//! way: at once, or, if both started before they could see each other, when it sees the first one. Two
//! nodes that only publish have no connection with each other, so a publisher also asks its followers
//! for the incarnation that they know.
//!
//! With signed messages (see `trust`), such claims count only from a hub: any node could claim a name.
//!
//! # Backpressure
//! A batch is dropped where it cannot be sent at once. The parts of a snapshot are not dropped, because
//! an incomplete snapshot is worthless. They have a queue of their own on each link (another priority),
//! and threads of their own send them: a slow subscriber delays the answer to its own request, and no
//! batches.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use skopos_access::{Action, Caller};
use skopos_model::Topic;
use zenoh::Wait as _;
use zenoh::handlers::DefaultHandler;
use zenoh::liveliness::LivelinessToken;
use zenoh::pubsub::Publisher;
use zenoh::qos::{CongestionControl, Priority};
use zenoh::query::{ConsolidationMode, Query, QueryTarget, Queryable};
use zenoh::session::SessionGetBuilder;

use crate::batch::Batch;
use crate::config::PlaneConfig;
use crate::drops::{DropCounter, Dropped};
use crate::error::Error;
use crate::keys;
use crate::meeting::Meeting;
use crate::places::{Checking, Places};
use crate::trust::{Exchange, Message, ProofRules, Received, Sessions};

/// Time that others have to claim a name.
const NAME_TIMEOUT: Duration = Duration::from_millis(500);

/// A session of the live plane.
#[derive(Clone, Debug)]
pub struct Plane {
    pub(crate) session: zenoh::Session,
    pub(crate) site: String,
    pub(crate) rules: ProofRules,
    pub(crate) drops: DropCounter,
}

/// Answers the requests to a publisher, on other threads.
pub trait Responder: Send + Sync + 'static {
    /// Returns every vertex and its latest sample, as of the last batch that was sent.
    fn snapshot(&self) -> Vec<Batch>;

    /// Measures a topic now, and returns its vertex with the new sample. May take as long as the
    /// measurement takes.
    ///
    /// # Errors
    /// The reason for which the topic cannot be measured, in words for people.
    fn refresh(&self, topic: &Topic) -> Result<Batch, String> {
        Err(format!("this node does not measure `{topic}` on request"))
    }
}

impl<F: Fn() -> Vec<Batch> + Send + Sync + 'static> Responder for F {
    fn snapshot(&self) -> Vec<Batch> {
        self()
    }
}

impl Plane {
    /// Opens a session. An open session restores lost connections by itself.
    ///
    /// # Errors
    /// A setting is refused, an address cannot be listened on, the folder of this user's sessions cannot be used, an
    /// endpoint needs an identity that is missing or of another site, or, for a client, no endpoint of `connect` answers
    /// (see [`PlaneConfig::pauses`]).
    pub fn open(config: &PlaneConfig) -> Result<Self, Error> {
        let rules = config.rules()?;
        let begin = |folder: &PathBuf| Meeting::begin(folder, config.follows);
        let meeting = config.folder.as_ref().map(begin).transpose()?;
        let zenoh = config.zenoh(meeting.as_ref())?;
        let session = zenoh::open(zenoh).wait().map_err(|e| Error::plane(&e))?;
        // The next session finds this one.
        drop(meeting);
        Ok(Self { session, site: config.site.clone(), rules, drops: config.drops.clone() })
    }

    /// Returns the counts of requests and answers that this session dropped.
    pub fn drops(&self) -> &DropCounter {
        &self.drops
    }

    /// Returns true if there is no connection to a hub, a node or a router.
    pub fn is_alone(&self) -> bool {
        let info = self.session.info();
        info.peers_zid().wait().chain(info.routers_zid().wait()).next().is_none()
    }

    /// Becomes the publisher of a node.
    ///
    /// # Errors
    /// [`Error::NameTaken`] if another node has this name; [`Error::OtherNode`] if the certificate is for another node;
    /// the session is closed.
    pub fn announce(
        &self,
        node: &str,
        incarnation: i64,
        responder: impl Responder,
    ) -> Result<Outlet, Error> {
        if let Some(names) = self.rules.names()
            && self.rules.demands()
            && names.node != node
        {
            return Err(Error::OtherNode { certified: names.node, node: node.to_owned() });
        }
        let failed = |e: zenoh::Error| Error::plane(&e);
        let key = |what: &str| keys::of_publisher(&self.site, what, node, incarnation);
        let (sender, others) = std::sync::mpsc::channel();
        self.look_for(node, move |other| {
            let _ = sender.send(other);
        })?;
        // The channel closes when both requests are answered.
        if others.recv().is_ok() {
            return Err(Error::NameTaken { node: node.to_owned(), site: self.site.clone() });
        }
        let sessions = Arc::<Sessions>::default();
        let answers = Arc::new(Answers {
            rules: self.rules.clone(),
            sessions: sessions.clone(),
            responder: Box::new(responder),
            whole: key("whole"),
            drops: self.drops.clone(),
        });
        let snapshots = self.serve(
            format!("{}/*", key("whole")),
            Dropped::SnapshotRequest,
            &answers,
            Answers::send_snapshot,
        )?;
        // The client of a dropped request waits until its deadline, and reports that.
        let ask = self.ask_key(node);
        let asked = self.serve(ask, Dropped::MeasureRequest, &answers, Answers::send_refreshed)?;
        Ok(Outlet {
            plane: self.clone(),
            node: node.to_owned(),
            incarnation,
            is_second: Arc::default(),
            queryables: [snapshots, asked],
            sessions,
            live: key("live"),
            publisher: self
                .session
                .declare_publisher(key("live"))
                .congestion_control(CongestionControl::Drop)
                // The caller has gathered the batch, so the transport need not wait for more.
                .express(true)
                .wait()
                .map_err(failed)?,
            // Last, because a follower that sees the token may send requests at once.
            token: self.session.liveliness().declare_token(key("alive")).wait().map_err(failed)?,
        })
    }

    /// Answers the requests of a key, each on a thread of its own, and counts those that find no place. Each key has places
    /// of its own: a follower may ask for a snapshot while it has a topic measured.
    fn serve(
        &self,
        key: String,
        dropped: Dropped,
        answers: &Arc<Answers>,
        answer: fn(&Answers, &Query, Checking),
    ) -> Result<Queryable<()>, Error> {
        let (places, answers, drops) = (Places::default(), answers.clone(), self.drops.clone());
        let callback = move |query| {
            let answers = answers.clone();
            if !places.on_thread(move |checking| answer(&answers, &query, checking)) {
                drops.count(dropped);
            }
        };
        let queryable = self.session.declare_queryable(key).callback(callback);
        queryable.wait().map_err(|e| Error::plane(&e))
    }

    /// Asks for the publishers of this name, and passes their incarnations to `found`, which is dropped
    /// when all have answered.
    fn look_for(
        &self,
        node: &str,
        found: impl Fn(i64) + Clone + Send + Sync + 'static,
    ) -> Result<(), Error> {
        if !self.rules.demands() {
            let alive = keys::of_publisher(&self.site, "alive", node, "*");
            let alive = self.session.liveliness().get(&alive).timeout(NAME_TIMEOUT);
            let visible = found.clone();
            let alive = alive.callback(move |reply| {
                let other = reply.result().ok().and_then(|token| keys::publisher(token.key_expr()));
                other.into_iter().for_each(|(_, incarnation)| visible(incarnation));
            });
            alive.wait().map_err(|e| Error::plane(&e))?;
        }
        let key = keys::of_name(&self.site, "known", node);
        let (rules, sent) = (self.rules.clone(), self.rules.ask(&key, &[])?);
        let known = self.ask_all(key).attachment(sent.proof).timeout(NAME_TIMEOUT);
        let known = known.callback(move |reply| {
            let Ok(sample) = reply.result() else { return };
            let message = Message::from(sample);
            if rules.check(&sent.nonce, &message, Action::Vouch).is_ok() {
                let text = String::from_utf8(message.payload).ok();
                text.and_then(|text| text.parse().ok()).into_iter().for_each(&found);
            }
        });
        known.wait().map_err(|e| Error::plane(&e))
    }

    /// Asks the node of a topic to measure it now. Returns a batch with its vertex and its sample.
    ///
    /// # Errors
    /// [`Error::Refused`] by the node; [`Error::NoAnswer`] within `deadline`; [`Error::Unreachable`] if
    /// no connection leads to the node.
    pub fn refresh(&self, topic: &Topic, deadline: Duration) -> Result<Batch, Error> {
        let failed = |e: zenoh::Error| Error::plane(&e);
        let key = self.ask_key(topic.node());
        let sent = self.rules.ask(&key, topic.as_str().as_bytes())?;
        let request = self.ask_all(key).payload(topic.as_str()).attachment(sent.proof);
        let request = request.timeout(deadline).priority(Priority::DataLow);
        let replies = request.wait().map_err(failed)?;
        let begun = Instant::now();
        let node = || topic.node().to_owned();
        // A refusal has no signature: anybody may have sent it, so that an answer still counts.
        let mut refusal = None;
        loop {
            match replies.recv_timeout(deadline.saturating_sub(begun.elapsed())) {
                Err(_) if begun.elapsed() < deadline => {
                    return Err(refusal.unwrap_or_else(|| Error::Unreachable(node())));
                }
                Err(_) | Ok(None) => {
                    let none = || Error::NoAnswer { node: node(), within: deadline };
                    return Err(refusal.unwrap_or_else(none));
                }
                Ok(Some(reply)) => match reply.result() {
                    Ok(sample) => {
                        let (message, publish) =
                            (Message::from(sample), Action::Publish { node: topic.node() });
                        // An answer of another node is none.
                        if self.rules.check(&sent.nonce, &message, publish).is_ok() {
                            return Batch::decode(&message.payload);
                        }
                    }
                    // From the session and not from the node: the time is over.
                    Err(_) if begun.elapsed() >= deadline => {}
                    Err(refused) => refusal = Some(Error::refused(&refused.payload().to_bytes())),
                },
            }
        }
    }

    /// Begins a question to everybody who answers this key. With Zenoh's defaults, a forger who claims to know
    /// everything would be the only one asked, and its reply would replace a genuine one with the same key.
    pub(crate) fn ask_all(&self, key: String) -> SessionGetBuilder<'_, '_, DefaultHandler> {
        let question = self.session.get(key).target(QueryTarget::All);
        question.consolidation(ConsolidationMode::None)
    }

    fn ask_key(&self, node: &str) -> String {
        keys::of_name(&self.site, "ask", node)
    }
}

/// Answers the requests to one publisher.
struct Answers {
    rules: ProofRules,
    sessions: Arc<Sessions>,
    responder: Box<dyn Responder>,
    /// Key of the parts of a snapshot.
    whole: String,
    drops: DropCounter,
}

impl Answers {
    /// Answers with a snapshot. Each part has its own key, because a reply replaces an earlier one with the
    /// same key. Replies to a client that has disconnected are lost.
    fn send_snapshot(&self, query: &Query, checking: Checking) {
        let received = self.rules.receive(query, Action::ReadFacts).ok();
        let admit = |received: Received| Some((checking.admit(&received.caller)?, received));
        let Some((_place, received)) = received.and_then(admit) else {
            return self.drops.count(Dropped::SnapshotRequest);
        };
        // From here on batches have a tag for this follower.
        let Ok(half) = self.begin_session(&received) else {
            return self.drops.count(Dropped::Follower);
        };
        let parts = self.responder.snapshot();
        for (at, batch) in parts.iter().enumerate() {
            let (key, bytes) = (format!("{}/{at}of{}", self.whole, parts.len()), batch.encode());
            let proof = self.rules.answer(&received, &key, &bytes, &half);
            let _ = query.reply(key, bytes).attachment(proof).wait();
        }
    }

    /// Agrees on a key with a follower, and returns the own half of the exchange.
    fn begin_session(&self, received: &Received) -> Result<Vec<u8>, Error> {
        let Caller::Node(follower) = &received.caller else { return Ok(Vec::new()) };
        if !self.sessions.is_first(&follower.node, &received.nonce) {
            return Err(Error::Proof("the question was asked before".to_owned()));
        }
        let exchange = Exchange::begin()?;
        let half = exchange.public.to_vec();
        let session = exchange.agree(&received.nonce, &received.nonce)?;
        if !self.sessions.add(follower, session, Instant::now()) {
            return Err(Error::Refused("too many programs follow this node".to_owned()));
        }
        Ok(half)
    }

    /// Answers with a topic that was measured now.
    fn send_refreshed(&self, query: &Query, checking: Checking) {
        let key = query.key_expr().as_str().to_owned();
        let received = self.rules.receive(query, Action::Measure).map_err(|e| e.to_string());
        let answer = received.and_then(|received| {
            let place = checking.admit(&received.caller);
            let _place = place.ok_or("the node measures for too many requests; ask again")?;
            Ok((self.refreshed(query)?.encode(), received))
        });
        let _ = match answer {
            Ok((bytes, received)) => {
                let proof = self.rules.answer(&received, &key, &bytes, &[]);
                query.reply(key, bytes).attachment(proof).wait()
            }
            Err(why) => query.reply_err(why).wait(),
        };
    }

    fn refreshed(&self, query: &Query) -> Result<Batch, String> {
        let payload = query.payload().map(|payload| payload.to_bytes().into_owned());
        let topic = payload.and_then(|bytes| String::from_utf8(bytes).ok());
        match topic.and_then(|text| Topic::new(&text).ok()) {
            Some(topic) => self.responder.refresh(&topic),
            None => Err("the request does not name a topic".to_owned()),
        }
    }
}

/// Sends the batches of one publisher.
#[derive(Debug)]
pub struct Outlet {
    publisher: Publisher<'static>,
    queryables: [Queryable<()>; 2],
    sessions: Arc<Sessions>,
    /// Key of the batches.
    live: String,
    token: LivelinessToken,
    /// Keeps the session open: it closes with its last owner, and its declarations end with it.
    plane: Plane,
    node: String,
    incarnation: i64,
    is_second: Arc<AtomicBool>,
}

impl Outlet {
    /// The longest time between two batches of a publisher, the last of which may be empty. Followers count a publisher
    /// as gone after two thirds more.
    pub const LONGEST_PAUSE: Duration = Duration::from_millis(1100);

    /// Sends a batch to all followers, and returns its length in bytes. Never waits for a follower: one
    /// that does not keep up misses the batch. Call it at least once in each [`LONGEST_PAUSE`](Self::LONGEST_PAUSE).
    ///
    /// # Errors
    /// The session is closed.
    pub fn send(&self, batch: &Batch) -> Result<usize, Error> {
        let bytes = batch.encode();
        let length = bytes.len();
        self.send_bytes(bytes).map(|()| length)
    }

    /// Sends bytes that need not be a batch, as a broken or hostile publisher would. For tests.
    ///
    /// # Errors
    /// The session is closed.
    #[doc(hidden)]
    pub fn send_bytes(&self, bytes: Vec<u8>) -> Result<(), Error> {
        let tags = self.sessions.tags(&self.live, &bytes);
        let tags = Some(tags).filter(|tags| !tags.is_empty());
        self.publisher.put(bytes).attachment(tags).wait().map_err(|e| Error::plane(&e))
    }

    /// Asks for other publishers of this name; [`is_second`](Self::is_second) has the answer later. Call
    /// it now and then, because other publishers may not have been visible when this one started. (With
    /// a standing subscription instead, the session would answer for itself when others ask for
    /// publishers.)
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

    /// Returns true if another publisher had this name before. Then this one must
    /// [`close`](Self::close) and report the reason.
    pub fn is_second(&self) -> bool {
        self.is_second.load(Ordering::Relaxed)
    }

    /// Ends the publisher, and lets its followers know at once.
    pub fn close(self) {
        // An error means that the declaration has already ended.
        let _ = self.token.undeclare().wait();
        for queryable in self.queryables {
            let _ = queryable.undeclare().wait();
        }
        let _ = self.publisher.undeclare().wait();
    }
}
