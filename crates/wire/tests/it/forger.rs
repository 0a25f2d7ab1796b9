//! A site with certificates: what strangers, and a node that pretends to be another one, can do.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use skopos_access::Names;
use skopos_model::{Kind, Origin, Timestamp, Topic, Unit, ValueType};
use skopos_wire::{
    Authority, Batch, Content, Description, Error, Extent, Follower, Identity, IndexedSample,
    Issuer, Outlet, Plane, PlaneConfig, Question, new_key, possession,
};
use tempfile::TempDir;
use zenoh::Wait as _;
use zenoh::config::Config;
use zenoh::qos::CongestionControl;

use crate::ports::free_port;

/// Longer than each step takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn names(node: &str, is_hub: bool) -> Names {
    Names { site: "test".to_owned(), node: node.to_owned(), is_hub }
}

/// A site with an authority, and a hub that follows it.
pub(crate) struct Site {
    dir: TempDir,
    pub(crate) at: String,
}

impl Site {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let at = format!("tls/127.0.0.1:{}", free_port());
        let hosts = ["127.0.0.1".to_owned()];
        Authority::create(&dir.path().join("hub"), &names("hub", true), &hosts).expect("made");
        Self { dir, at }
    }

    fn authority(&self) -> Authority {
        let folder = self.dir.path().join("hub");
        Authority::load(&folder, "test").expect("readable").expect("there")
    }

    /// Returns the folder of a node that has joined.
    pub(crate) fn joined(&self, node: &str) -> PathBuf {
        let hub = Identity::load(&self.dir.path().join("hub")).expect("readable").expect("there");
        let (pkcs8, public) = new_key().expect("a key");
        let issued = self.authority().issue(&names(node, false), &[], public).expect("issued");
        let folder = self.dir.path().join(node);
        Identity::save(&folder, &pkcs8, &issued, Some(hub.authority())).expect("saved");
        folder
    }

    pub(crate) fn hub(&self) -> Plane {
        let listen = vec![self.at.clone()];
        let config = PlaneConfig { listen, ..config_of(&self.dir.path().join("hub")) };
        Plane::open(&config).expect("a session")
    }

    pub(crate) fn client(&self, folder: &Path) -> Plane {
        Plane::open(&self.client_config(folder)).expect("a session")
    }

    fn client_config(&self, folder: &Path) -> PlaneConfig {
        PlaneConfig { is_client: true, connect: vec![self.at.clone()], ..config_of(folder) }
    }

    /// A session of Zenoh itself, with the certificate in `folder`.
    pub(crate) fn raw(&self, folder: &Path) -> zenoh::Session {
        raw(folder, "client", "connect", &self.at)
    }

    /// A session of Zenoh itself that listens, with the certificate of the hub.
    pub(crate) fn raw_hub(&self) -> zenoh::Session {
        raw(&self.dir.path().join("hub"), "router", "listen", &self.at)
    }
}

/// Opens a session of Zenoh itself that connects to an endpoint or listens there.
fn raw(folder: &Path, mode: &str, does: &str, at: &str) -> zenoh::Session {
    let mut config = Config::default();
    let file = |name: &str| format!("{:?}", folder.join(name).to_string_lossy());
    for (key, value) in [
        ("mode", format!("{mode:?}")),
        (&format!("{does}/endpoints"), format!("[{at:?}]")),
        ("scouting/multicast/enabled", "false".to_owned()),
        ("transport/link/tls/root_ca_certificate", file("authority.pem")),
        (&format!("transport/link/tls/{does}_private_key"), file("identity.pem")),
        (&format!("transport/link/tls/{does}_certificate"), file("identity.pem")),
        ("transport/link/tls/enable_mtls", "true".to_owned()),
    ] {
        config.insert_json5(key, &value).expect("a setting");
    }
    zenoh::open(config).wait().expect("a session")
}

fn config_of(folder: &Path) -> PlaneConfig {
    let identity = Identity::load(folder).expect("readable").expect("there");
    PlaneConfig { identity: Some(Arc::new(identity)), ..PlaneConfig::alone("test") }
}

fn batch(node: &str, sequence: u64, value: u64) -> Batch {
    let topic = Topic::new(&format!("{node}/a/b")).expect("a topic");
    let (unit, kind, value_type) = (Unit::NONE, Kind::Gauge, ValueType::U64);
    let time = Timestamp::from_nanos(sequence as i64);
    let sample =
        IndexedSample { index: 7, time, origin: Origin::Measured, value: Content::Bits(value) };
    Batch {
        sequence,
        described: vec![Description { index: 7, topic, unit, kind, value_type }],
        samples: vec![sample],
        ..Batch::default()
    }
}

/// A node that publishes one topic. Its snapshot has the value 1, and later batches 2 and so on.
struct Publisher {
    outlet: Outlet,
    sent: Arc<AtomicU64>,
    /// Number of its snapshots that were asked for.
    snapshots: Arc<AtomicU64>,
}

impl Publisher {
    fn new(plane: &Plane, node: &'static str, incarnation: i64) -> Result<Self, Error> {
        let sent = Arc::new(AtomicU64::new(1));
        let last = sent.clone();
        let snapshots = Arc::new(AtomicU64::new(0));
        let asked = snapshots.clone();
        let snapshot = move || {
            asked.fetch_add(1, Ordering::SeqCst);
            let n = last.load(Ordering::SeqCst);
            vec![batch(node, n, n)]
        };
        Ok(Self { outlet: plane.announce(node, incarnation, snapshot)?, sent, snapshots })
    }

    fn send(&self, node: &str) {
        let n = self.sent.fetch_add(1, Ordering::SeqCst) + 1;
        self.outlet.send(&batch(node, n, n)).expect("sent");
    }
}

fn latest(follower: &Follower, node: &str) -> Option<i64> {
    let node = follower.site().node(node)?;
    let state = node.state();
    state.mirror.vertices().next()?.recent.last_time().map(|time| time.as_nanos())
}

fn is_alive(follower: &Follower, node: &str) -> bool {
    follower.site().node(node).is_some_and(|node| node.state().is_alive)
}

/// Asks for the history of `n01`, and returns the number of its batches if it answers.
fn asked_history(hub: &Plane) -> Option<usize> {
    let question = vec![("n01".to_owned(), 1, Question::default())];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let until = Instant::now() + Duration::from_secs(2);
    let answers = runtime.expect("a runtime").block_on(hub.ask_history(question, until));
    answers[0].batches.as_ref().map(Vec::len)
}

#[test]
fn a_node_with_a_certificate_publishes_and_answers_over_tls() {
    let site = Site::new();
    let hub = site.hub();
    let follower = Follower::start(&hub).expect("it follows");
    let agent = site.client(&site.joined("n01"));
    let publisher = Publisher::new(&agent, "n01", 1).expect("announced");
    until("the snapshot is there", || latest(&follower, "n01") == Some(1));
    publisher.send("n01");
    publisher.send("n01");
    until("its batches are there", || latest(&follower, "n01") == Some(3));
    let answer = |_: &Question, send: &mut dyn FnMut(&Batch)| {
        send(&batch("n01", 1, 5));
        Extent::Whole
    };
    let _answering = agent.answer_history("n01", 1, answer).expect("it answers");
    until("its history is there", || asked_history(&hub).is_some_and(|count| count == 1));
    assert_eq!(follower.site().failed_messages().forged, 0);
}

#[test]
fn strangers_cannot_connect() {
    let site = Site::new();
    let hub = site.hub();
    let _follower = Follower::start(&hub).expect("it follows");
    let elsewhere = Site::new();
    let stranger = site.client_config(&elsewhere.joined("n01"));
    assert!(Plane::open(&stranger).is_err(), "a certificate of another authority");
    let clear = PlaneConfig {
        is_client: true,
        connect: vec![site.at.replace("tls/", "tcp/")],
        ..PlaneConfig::alone("test")
    };
    assert!(Plane::open(&clear).is_err(), "clear text");
    let bare = PlaneConfig { identity: None, ..site.client_config(&site.joined("n01")) };
    assert!(matches!(Plane::open(&bare), Err(Error::NoIdentity(_))), "no certificate");
    let other = PlaneConfig { site: "other".to_owned(), ..site.client_config(&site.joined("n02")) };
    assert!(matches!(Plane::open(&other), Err(Error::OtherSite { .. })), "another site");
}

#[test]
fn a_node_cannot_announce_another_name() {
    let site = Site::new();
    let _hub = site.hub();
    let agent = site.client(&site.joined("n02"));
    assert!(matches!(Publisher::new(&agent, "n01", 1), Err(Error::OtherNode { .. })));
}

/// A node with a certificate of its own uses Zenoh directly: it sends batches of another node, claims the other's name
/// with the smallest incarnation, answers its questions, and says that it is gone.
#[test]
fn a_forger_with_a_certificate_of_its_own_changes_nothing() {
    let site = Site::new();
    let hub = site.hub();
    let follower = Follower::start(&hub).expect("it follows");
    let forger = site.raw(&site.joined("n02"));
    let whole = |incarnation: i64| format!("skopos/test/whole/cd/n01/{incarnation}");
    let answer = |key: String, sequence| {
        let reply_key = key.clone();
        let queryable = forger.declare_queryable(key).complete(true).callback(move |query| {
            let parts = reply_key.trim_end_matches('*').to_owned() + "0of1";
            let parts = if reply_key.ends_with('*') { parts } else { reply_key.clone() };
            let _ = query.reply(parts, batch("n01", sequence, 666).encode()).wait();
        });
        queryable.wait().expect("it answers")
    };
    let _answering = [
        answer(whole(1) + "/*", 900),
        answer(whole(0) + "/*", 900),
        answer("skopos/test/ask/cd/n01".to_owned(), 900),
        answer("skopos/test/history/cd/n01/1/*".to_owned(), 900),
        answer("skopos/test/known/cd/n01".to_owned(), 900),
    ];
    // It is there first, with the smallest incarnation.
    let liveliness = forger.liveliness();
    let first = liveliness.declare_token("skopos/test/alive/cd/n01/0").wait().expect("declared");
    std::thread::sleep(Duration::from_millis(200));
    assert!(!is_alive(&follower, "n01"));

    let agent = site.client(&site.joined("n01"));
    let publisher = Publisher::new(&agent, "n01", 1).expect("the name is free");
    until("the snapshot is there", || latest(&follower, "n01") == Some(1));
    publisher.outlet.look_for_first().expect("it asks");
    for _ in 0..3 {
        forger
            .put("skopos/test/live/cd/n01/1", batch("n01", 500, 666).encode())
            .wait()
            .expect("put");
        let forged = forger.put("skopos/test/live/cd/n01/1", batch("n01", 501, 666).encode());
        forged.attachment(vec![7; 48]).wait().expect("put");
        publisher.send("n01");
    }
    until("its batches are there", || latest(&follower, "n01") == Some(4));
    // The other one says that the node is gone.
    let gone = liveliness.declare_token("skopos/test/alive/cd/n01/1").wait().expect("declared");
    gone.undeclare().wait().expect("undeclared");
    first.undeclare().wait().expect("undeclared");
    std::thread::sleep(Duration::from_millis(200));
    publisher.send("n01");
    until("the next batch is there", || latest(&follower, "n01") == Some(5));
    assert!(is_alive(&follower, "n01") && !publisher.outlet.is_second());
    let node = follower.site().node("n01").expect("known");
    let state = node.state();
    assert_eq!((state.mirror.lost(), state.incarnation), (0, 1));
    drop(state);
    assert!(follower.site().failed_messages().forged >= 3, "each is counted");
    // The node does not measure on request; the forger would.
    let topic = Topic::new("n01/a/b").expect("a topic");
    let refreshed = hub.refresh(&topic, Duration::from_secs(2));
    assert!(matches!(refreshed, Err(Error::Refused(_))), "{refreshed:?}");
    assert_eq!(asked_history(&hub), None, "the forger's history");
}

/// A node floods a hub with messages under the key of another one, some invented and some that the other one sent before.
#[test]
fn a_forger_that_floods_under_another_name_takes_no_room_from_it() {
    let site = Site::new();
    let hub = site.hub();
    let follower = Follower::start(&hub).expect("it follows");
    let forger = site.raw(&site.joined("n02"));
    let (heard, batches) = std::sync::mpsc::channel();
    let listening =
        forger.declare_subscriber("skopos/test/live/cd/n01/1").callback(move |sample| {
            let tags = sample.attachment().map(|bytes| bytes.to_bytes().into_owned());
            let _ = heard.send((sample.payload().to_bytes().into_owned(), tags));
        });
    let listening = listening.wait().expect("it subscribes");
    let agent = site.client(&site.joined("n01"));
    let publisher = Publisher::new(&agent, "n01", 1).expect("announced");
    until("the snapshot is there", || latest(&follower, "n01") == Some(1));
    publisher.send("n01");
    until("its batch is there", || latest(&follower, "n01") == Some(2));
    let (old, tags) = batches.recv_timeout(TIMEOUT).expect("a batch");
    listening.undeclare().wait().expect("undeclared");

    let node = follower.site().node("n01").expect("known");
    // The thread of the follower waits for it, and messages gather.
    let closed = node.state();
    let flood = forger.declare_publisher("skopos/test/live/cd/n01/1");
    let flood = flood.congestion_control(CongestionControl::Block).wait().expect("declared");
    until("the room of all such messages is full", || {
        for _ in 0..200 {
            flood.put(vec![7; 6000]).wait().expect("put");
            for _ in 0..2 {
                flood.put(old.clone()).attachment(tags.clone()).wait().expect("put");
            }
        }
        follower.site().failed_messages().overflowed > 0
    });
    // Another node hears what the hub has heard: the transport drops what it cannot send at once.
    let witness = site.raw(&site.joined("n03"));
    let (heard, batches) = std::sync::mpsc::channel();
    let hearing = witness.declare_subscriber("skopos/test/live/cd/n01/1").callback(move |sample| {
        let _ = Batch::decode(&sample.payload().to_bytes()).map(|batch| heard.send(batch.sequence));
    });
    let _hearing = hearing.wait().expect("it subscribes");
    until("the other node hears", || {
        publisher.send("n01");
        batches.recv_timeout(Duration::from_millis(10)).is_ok()
    });
    for _ in 0..100 {
        publisher.send("n01");
        let sent = publisher.sent.load(Ordering::SeqCst);
        until("its batch has come", || batches.try_iter().any(|sequence| sequence == sent));
    }
    drop(closed);
    let sent = publisher.sent.load(Ordering::SeqCst) as i64;
    until("all its batches are there", || latest(&follower, "n01") == Some(sent));
    assert_eq!(node.state().mirror.lost(), 0);
}

#[test]
fn invented_batches_do_not_make_a_hub_ask_for_one_snapshot_after_the_other() {
    /// Silence after which a hub asks again for the snapshot of a node from which batches without a tag come.
    const SILENCE: Duration = Duration::from_millis(1800);
    let site = Site::new();
    let hub = site.hub();
    let follower = Follower::start(&hub).expect("it follows");
    let agent = site.client(&site.joined("n01"));
    let publisher = Publisher::new(&agent, "n01", 1).expect("announced");
    until("the snapshot is there", || latest(&follower, "n01") == Some(1));
    let forger = site.raw(&site.joined("n02"));
    let flood = forger.declare_publisher("skopos/test/live/cd/n01/1");
    let flood = flood.congestion_control(CongestionControl::Block).wait().expect("declared");
    let begun = Instant::now();
    until("the invented batches are counted", || {
        (0..20).for_each(|_| flood.put(vec![7; 60]).wait().expect("put"));
        publisher.send("n01");
        follower.site().failed_messages().forged >= 1000
    });
    let most = 2 + begun.elapsed().div_duration_f64(SILENCE) as u64;
    let snapshots = publisher.snapshots.load(Ordering::SeqCst);
    assert!(snapshots <= most, "{snapshots} snapshots of at most {most}");
}

#[test]
fn questions_that_get_no_answer_are_counted() {
    let site = Site::new();
    let hub = site.hub();
    let forger = site.raw(&site.joined("n02"));
    let whole = "skopos/test/whole/cd/n01/1/*";
    let (heard, questions) = std::sync::mpsc::channel();
    let listening = forger.declare_queryable(whole).callback(move |query| {
        let proof = query.attachment().map(|bytes| bytes.to_bytes().into_owned());
        let _ = proof.map(|proof| heard.send(proof));
    });
    let _listening = listening.wait().expect("declared");
    let follower = Follower::start(&hub).expect("it follows");
    let agent = site.client(&site.joined("n01"));
    let _publisher = Publisher::new(&agent, "n01", 1).expect("announced");
    let answer = |_: &Question, _: &mut dyn FnMut(&Batch)| Extent::Whole;
    let _answering = agent.answer_history("n01", 1, answer).expect("it answers");
    until("the snapshot is there", || latest(&follower, "n01") == Some(1));
    let proof = questions.recv_timeout(TIMEOUT).expect("a question");
    let counted = |metric: &str| {
        let numbers = agent.drops().numbers();
        numbers.into_iter().find(|(of, _)| of.name == metric).map(|(_, number)| number)
    };
    let history = "skopos/test/history/cd/n01/1/*";
    for (key, proof, metric) in [
        (whole, None, "snapshot_requests_dropped_total"),
        (whole, Some(proof), "followers_refused_total"),
        (history, None, "history_requests_dropped_total"),
    ] {
        let before = counted(metric);
        let _replies = forger.get(key).attachment(proof).wait().expect("asked");
        until(metric, || counted(metric) > before);
    }
}

/// A hub's answer to renewals, with the number of certificates that it made.
struct Renewing(Authority, Arc<AtomicU64>);

impl Issuer for Renewing {
    fn issue(&self, names: &Names, _old: [u8; 32], new: [u8; 32]) -> Result<Vec<u8>, String> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.issue(names, &[], new)
    }
}

#[test]
fn a_node_renews_its_certificate_and_nobody_elses() {
    let site = Site::new();
    let (hub, made) = (site.hub(), Arc::<AtomicU64>::default());
    let issuer = Renewing(site.authority(), made.clone());
    let _renewing = hub.serve_renewals(issuer).expect("it answers");
    let (folder, other) = (site.joined("n01"), site.joined("n02"));
    // Another node of the site hears the questions of the first.
    let (forger, (heard, questions)) = (site.raw(&other), std::sync::mpsc::channel());
    let listening = forger.declare_queryable("skopos/test/renew/*/*").callback(move |query| {
        let proof = query.attachment().map(|bytes| bytes.to_bytes().into_owned());
        let _ = proof.map(|proof| heard.send(proof));
    });
    let _listening = listening.wait().expect("declared");
    let before = std::fs::read_to_string(folder.join("identity.pem")).expect("a file");
    let agent = site.client(&folder);
    let mut proof = None;
    until("the forger has heard a question", || {
        agent.renew().expect("renewed");
        proof = questions.try_recv().ok();
        proof.is_some()
    });
    let after = std::fs::read_to_string(folder.join("identity.pem")).expect("a file");
    assert_ne!(before, after);
    let renewed = Identity::load(&folder).expect("sound").expect("there");
    assert_eq!(renewed.names(), names("n01", false));
    // The session goes on with the new key.
    let follower = Follower::start(&hub).expect("it follows");
    let _publisher = Publisher::new(&agent, "n01", 1).expect("announced");
    until("the snapshot is there", || latest(&follower, "n01") == Some(1));
    // The forger asks for a certificate of this name with a key of its own, without a proof and with the one it heard.
    let genuine = made.load(Ordering::SeqCst);
    let (pkcs8, _) = new_key().expect("a key");
    let request = possession::prove(&pkcs8, "n01").expect("signed");
    for proof in [None, proof] {
        let question = forger.get("skopos/test/renew/cd/n01").payload(request.clone());
        let replies = question.attachment(proof).wait().expect("asked");
        let refused = std::iter::from_fn(|| replies.recv().ok());
        let refused: Vec<_> =
            refused.map(|reply| reply.into_result().expect_err("forged")).collect();
        assert!(!refused.is_empty(), "the hub says why");
        assert_eq!(made.load(Ordering::SeqCst), genuine);
    }
}
