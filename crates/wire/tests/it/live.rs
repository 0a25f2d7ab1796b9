//! Sessions on this machine's loopback: nodes start, publish, lose batches, end and start again.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use skopos_model::{Kind, Origin, Timestamp, Topic, TopicPattern, Unit, ValueType};
use skopos_wire::{
    Batch, Content, Description, Error, Follower, IndexedSample, Interest, MAX_BATCH_BYTES, Outlet,
    Plane, PlaneConfig, Responder,
};
use zenoh::Wait as _;

use crate::ports::free_port;

/// Longer than each step takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A plane that listens on its own port, and the settings of a client that connects to it. The search
/// for others is off, so tests do not see each other.
fn two() -> (Plane, PlaneConfig) {
    let (hub, client) = configs();
    (Plane::open(&hub).expect("a session"), client)
}

fn configs() -> (PlaneConfig, PlaneConfig) {
    let at = format!("tcp/127.0.0.1:{}", free_port());
    let alone = PlaneConfig::alone("test");
    let hub = PlaneConfig { listen: vec![at.clone()], ..alone.clone() };
    (hub, PlaneConfig { is_client: true, connect: vec![at], ..alone })
}

fn description(node: &str) -> Description {
    let topic = Topic::new(&format!("{node}/a/b")).expect("a topic");
    Description { index: 7, topic, unit: Unit::NONE, kind: Kind::Gauge, value_type: ValueType::U64 }
}

fn sample(n: u64) -> IndexedSample {
    let time = Timestamp::from_nanos(n as i64);
    IndexedSample { index: 7, time, origin: Origin::Measured, value: Content::Bits(n) }
}

/// A publisher of one vertex.
struct Publisher {
    outlet: Outlet,
    last: Arc<Mutex<u64>>,
}

impl Publisher {
    fn new(plane: &Plane, incarnation: i64) -> Result<Self, Error> {
        Self::named(plane, "n01", incarnation)
    }

    fn named(plane: &Plane, node: &str, incarnation: i64) -> Result<Self, Error> {
        let last = Arc::new(Mutex::new(0));
        let (now, name) = (last.clone(), node.to_owned());
        let snapshot = move || {
            let n = *now.lock().expect("a number");
            vec![Batch {
                sequence: n,
                described: vec![description(&name)],
                samples: vec![sample(n)],
                ..Batch::default()
            }]
        };
        Ok(Self { outlet: plane.announce(node, incarnation, snapshot)?, last })
    }

    fn send(&self) {
        let mut last = self.last.lock().expect("a number");
        *last += 1;
        self.outlet
            .send(&Batch { sequence: *last, samples: vec![sample(*last)], ..Batch::default() })
            .expect("sent");
    }

    /// Uses a sequence number without sending its batch.
    fn skip(&self) {
        *self.last.lock().expect("a number") += 1;
    }
}

fn latest(follower: &Follower) -> Option<i64> {
    let node = follower.site().node("n01")?;
    let state = node.state();
    state.mirror.vertices().next()?.recent.last_time().map(|time| time.as_nanos())
}

fn is_alive(follower: &Follower) -> bool {
    follower.site().node("n01").is_some_and(|node| node.state().is_alive)
}

#[test]
fn a_node_starts_publishes_ends_and_starts_again() {
    let (hub, client) = two();
    let follower = Follower::start(&hub).expect("it follows");
    let agent = Plane::open(&client).expect("a session");
    let publisher = Publisher::new(&agent, 1).expect("announced");
    until("the node is alive", || is_alive(&follower));
    until("the snapshot is there", || latest(&follower) == Some(0));
    publisher.send();
    publisher.send();
    until("its batches are there", || latest(&follower) == Some(2));
    publisher.skip();
    publisher.send();
    until("the value after a gap is there", || latest(&follower) == Some(4));
    let lost = || follower.site().node("n01").map(|node| node.state().mirror.lost());
    assert_eq!(lost(), Some(1));

    let Err(refused) = Publisher::new(&agent, 2) else { panic!("two nodes have one name") };
    assert_eq!(refused.to_string(), "there is a node `n01` in the site `test` already");

    publisher.outlet.close();
    until("the node is gone", || !is_alive(&follower));
    assert_eq!(latest(&follower), Some(4), "its last value stays");
    let again = Publisher::new(&agent, 3).expect("the name is free");
    until("the node is alive again", || is_alive(&follower) && latest(&follower) == Some(0));
    again.send();
    until("its batch is there", || latest(&follower) == Some(1));
}

#[test]
fn a_node_whose_version_has_other_keys_is_counted() {
    let (hub, client) = two();
    let mut config = zenoh::Config::default();
    for (key, value) in [
        ("mode", "\"client\"".to_owned()),
        ("connect/endpoints", format!("[{:?}]", client.connect[0])),
        ("scouting/multicast/enabled", "false".to_owned()),
    ] {
        config.insert_json5(key, &value).expect("a setting");
    }
    let other = zenoh::open(config).wait().expect("a session");
    let token = |key: &str| other.liveliness().declare_token(key).wait().expect("declared");
    // The first version had no hash of the name.
    let early = token("skopos/test/alive/n09/1");
    let follower = Follower::start(&hub).expect("it follows");
    let others = || follower.site().failed_messages().other_versions;
    until("one that was there before is counted", || others() == 1);
    let late = token("skopos/test/alive/cd/n01/1/further");
    until("one that comes later is counted", || others() == 2);
    let agent = Plane::open(&client).expect("a session");
    let publisher = Publisher::new(&agent, 1).expect("announced");
    until("a node of this version is there", || latest(&follower) == Some(0));
    publisher.outlet.close();
    drop((early, late));
    until("it is gone", || !is_alive(&follower));
    assert_eq!((others(), follower.site().failed_messages().malformed), (2, 0));
}

#[test]
fn the_second_of_two_nodes_with_one_name_gives_way() {
    let (hub, client) = configs();
    // A client cannot start without the hub.
    let peer = PlaneConfig { is_client: false, ..client };
    let planes = [1, 2].map(|_| Plane::open(&peer).expect("a session"));
    let first = Publisher::new(&planes[0], 1).expect("announced");
    let second = Publisher::new(&planes[1], 2).expect("no other node is visible yet");
    let follower = Follower::start(&Plane::open(&hub).expect("a session")).expect("it follows");
    until("the second knows of the first", || {
        for node in [&first, &second] {
            node.outlet.look_for_first().expect("asked");
        }
        second.outlet.is_second()
    });
    assert!(!first.outlet.is_second());
    let followed = || follower.site().node("n01").map(|node| node.state().incarnation);
    until("the first is followed", || followed() == Some(1));
    second.outlet.close();
    until("its snapshot is there", || latest(&follower) == Some(0));
    first.send();
    until("its batch is there", || latest(&follower) == Some(1));
    assert_eq!(followed(), Some(1));
}

/// A cable to a port, which can be pulled.
struct Cable {
    at: String,
    is_pulled: Arc<AtomicBool>,
    ends: Arc<Mutex<Vec<TcpStream>>>,
}

impl Cable {
    fn to(endpoint: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = format!("tcp/{}", listener.local_addr().expect("an address"));
        let cable = Self { at, is_pulled: Arc::default(), ends: Arc::default() };
        let (is_pulled, ends) = (cable.is_pulled.clone(), cable.ends.clone());
        let there = endpoint.trim_start_matches("tcp/").to_owned();
        std::thread::spawn(move || {
            for here in listener.incoming().flatten() {
                let Ok(there) = TcpStream::connect(&there) else { continue };
                if is_pulled.load(Ordering::SeqCst) {
                    continue;
                }
                for (from, to) in [(&here, &there), (&there, &here)] {
                    let copy = || Some((from.try_clone().ok()?, to.try_clone().ok()?));
                    let (mut from, mut to) = copy().expect("descriptors");
                    std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                }
                ends.lock().expect("ends").extend([here, there]);
            }
        });
        cable
    }

    fn pull(&self) {
        self.is_pulled.store(true, Ordering::SeqCst);
        for end in self.ends.lock().expect("ends").drain(..) {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

#[test]
fn a_node_that_took_the_name_of_one_that_was_cut_off_gives_way_when_it_is_back() {
    let (hub, client) = configs();
    let follower = Follower::start(&Plane::open(&hub).expect("a session")).expect("it follows");
    let cable = Cable::to(&client.connect[0]);
    let far = PlaneConfig { is_client: false, connect: vec![cable.at.clone()], ..client.clone() };
    let first = Publisher::new(&Plane::open(&far).expect("a session"), 1).expect("announced");
    until("the first is followed", || is_alive(&follower));
    cable.pull();
    until("the first is gone", || !is_alive(&follower));
    let near = Plane::open(&client).expect("a session");
    let second = Publisher::new(&near, 2).expect("the first is not there");
    let followed = || follower.site().node("n01").map(|node| node.state().incarnation);
    until("the second is followed", || is_alive(&follower) && followed() == Some(2));
    cable.is_pulled.store(false, Ordering::SeqCst);
    until("the second knows of the first", || {
        second.outlet.look_for_first().expect("asked");
        second.outlet.is_second()
    });
    assert!(!first.outlet.is_second());
    second.outlet.close();
    until("the first is followed again", || is_alive(&follower) && followed() == Some(1));
}

#[test]
fn a_client_without_its_hub_fails_to_open_and_may_retry() {
    let (hub, client) = configs();
    let away = PlaneConfig { connect: vec!["tcp/127.0.0.1:1".to_owned()], ..client.clone() };
    let Err(Error::Plane(why)) = Plane::open(&away) else { panic!("no hub is listening") };
    assert!(why.contains("Unable to connect"), "{why}");
    let nowhere = PlaneConfig { connect: vec!["hub1".to_owned()], ..client.clone() };
    assert!(matches!(nowhere.check(), Err(Error::Setting { .. })));
    // The first of several endpoints that answers is used, and a client may start before the hub.
    let both = PlaneConfig { connect: [away.connect, client.connect].concat(), ..client };
    let agent = std::thread::spawn(move || {
        for pause in both.pauses().take(10) {
            std::thread::sleep(pause);
            if let Ok(plane) = Plane::open(&both) {
                return plane;
            }
        }
        panic!("the hub has been there for long");
    });
    let follower = Follower::start(&Plane::open(&hub).expect("a session")).expect("it follows");
    let publisher = Publisher::new(&agent.join().expect("a session"), 1).expect("announced");
    until("the snapshot is there", || latest(&follower) == Some(0));
    drop(publisher);
}

#[test]
fn nodes_and_hubs_meet_at_a_router() {
    let (router_at, node) = configs();
    let mut router = zenoh::Config::default();
    for (key, value) in [
        ("mode", "\"router\"".to_owned()),
        ("listen/endpoints", format!("[\"{}\"]", router_at.listen[0])),
        ("scouting/multicast/enabled", "false".to_owned()),
    ] {
        router.insert_json5(key, &value).expect("a setting");
    }
    let _router = zenoh::open(router).wait().expect("a router");
    let hub = PlaneConfig {
        listen: vec!["tcp/127.0.0.1:0".to_owned()],
        connect: router_at.listen,
        ..router_at
    };
    let hub = Plane::open(&hub).expect("a session");
    let follower = Follower::start(&hub).expect("it follows");
    let publisher = Publisher::new(&Plane::open(&node).expect("a session"), 1).expect("announced");
    until("the snapshot is there", || latest(&follower) == Some(0));
    publisher.send();
    until("its batch is there", || latest(&follower) == Some(1));
    let Err(Error::NameTaken { .. }) = Publisher::new(&Plane::open(&node).expect("a session"), 2)
    else {
        panic!("two nodes have one name");
    };
}

#[test]
fn pauses_are_random_and_grow_to_a_limit() {
    let (_, client) = configs();
    let all = || client.pauses().take(8).collect::<Vec<_>>();
    let (one, other) = (all(), all());
    assert_ne!(one, other, "sessions retry at different times");
    assert!(one.is_sorted() && one[0] < Duration::from_millis(1200), "{one:?}");
    assert_eq!(one.last(), Some(&Duration::from_secs(4)));
}

#[test]
fn a_hub_that_starts_later_has_all_values_and_notices_a_death() {
    let (hub, client) = two();
    let agent = Plane::open(&client).expect("a session");
    let publisher = Publisher::new(&agent, 1).expect("announced");
    publisher.send();
    let follower = Follower::start(&hub).expect("it follows");
    until("the values are there", || is_alive(&follower) && latest(&follower) == Some(1));
    drop((publisher, agent));
    until("the death is noticed", || !is_alive(&follower));
}

#[test]
fn sessions_of_one_user_find_each_other() {
    let dir = std::env::temp_dir().join(format!("skopos-live-{}", std::process::id()));
    let config = PlaneConfig { folder: Some(dir.clone()), ..PlaneConfig::alone("test") };
    // A session that ended without removing its socket.
    std::fs::DirBuilder::new().mode(0o700).create(&dir).expect("a folder");
    drop(UnixListener::bind(dir.join("1-0-follower.sock")).expect("bound"));
    let publishes = PlaneConfig { follows: false, ..config.clone() };
    let early = Publisher::named(&Plane::open(&publishes).expect("a session"), "n02", 1);
    let early = early.expect("announced");
    let hub = Plane::open(&config).expect("a session");
    let follower = Follower::start(&hub).expect("it follows");
    let agent = Plane::open(&publishes).expect("a session");
    let publisher = Publisher::new(&agent, 1).expect("announced");
    let sends = Instant::now();
    until("the node is alive", || {
        if sends.elapsed() > Duration::from_millis(500) {
            publisher.send();
        }
        is_alive(&follower)
    });
    until("the values are there", || latest(&follower).is_some());
    let is_early = || follower.site().node("n02").is_some_and(|node| node.state().is_alive);
    until("a node that was there before is found", is_early);
    let Err(Error::NameTaken { .. }) =
        Publisher::new(&Plane::open(&publishes).expect("a session"), 2)
    else {
        panic!("two nodes have one name");
    };
    drop((publisher, early, agent, follower, hub));
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn malformed_messages_are_counted_for_their_sender_and_do_no_harm() {
    let (hub, client) = two();
    let follower = Follower::start(&hub).expect("it follows");
    let agent = Plane::open(&client).expect("a session");
    let publisher = Publisher::new(&agent, 1).expect("announced");
    until("the snapshot is there", || latest(&follower) == Some(0));
    let mut damaged = Batch { sequence: 1, samples: vec![sample(1)], ..Batch::default() }.encode();
    damaged.truncate(damaged.len() - 1);
    // Longer than a batch can be, and short enough for the queue of the link, beside the others.
    let long = vec![0xff; MAX_BATCH_BYTES + 1];
    for bytes in [vec![], b"SKB".to_vec(), long, damaged] {
        publisher.outlet.send_bytes(bytes).expect("sent");
    }
    publisher.send();
    until("a good batch arrives", || latest(&follower) == Some(1));
    let node = follower.site().node("n01").expect("a node");
    assert_eq!((node.state().malformed, follower.site().failed_messages().malformed), (4, 4));
    assert!(node.state().is_alive && node.state().mirror.is_complete());
}

/// A publisher that measures one topic on request.
struct OnRequest;

impl Responder for OnRequest {
    fn snapshot(&self) -> Vec<Batch> {
        vec![Batch {
            described: vec![description("n01")],
            samples: vec![sample(1)],
            ..Batch::default()
        }]
    }

    fn refresh(&self, topic: &Topic) -> Result<Batch, String> {
        match topic.as_str() {
            "n01/a/b" => {
                let (described, samples) = (vec![description("n01")], vec![sample(2)]);
                Ok(Batch { described, samples, ..Batch::default() })
            }
            _ => Err(format!("`{topic}` is not measured here")),
        }
    }
}

#[test]
fn a_topic_that_is_measured_on_request_is_in_the_mirror() {
    let (hub, client) = two();
    let follower = Follower::start(&hub).expect("it follows");
    let agent = Plane::open(&client).expect("a session");
    let _outlet = agent.announce("n01", 1, OnRequest).expect("announced");
    until("the snapshot is there", || latest(&follower) == Some(1));
    let refresh = |topic: &str| {
        let topic = Topic::new(topic).expect("a topic");
        follower.refresher().refresh(&topic, TIMEOUT).map_err(|e| e.to_string())
    };
    assert_eq!((refresh("n01/a/b"), latest(&follower)), (Ok(()), Some(2)));
    assert_eq!(refresh("n01/a/c"), Err("`n01/a/c` is not measured here".to_owned()));
    assert_eq!(refresh("n02/a/b"), Err("no node `n02` can be reached".to_owned()));
}

#[test]
fn only_wanted_nodes_are_followed() {
    let (hub, client) = two();
    let pattern = TopicPattern::new("n02/**").expect("a pattern");
    let interest = Interest::new(&[pattern], "n03");
    let follower = Follower::start_with(&hub, interest, ()).expect("it follows");
    let agent = Plane::open(&client).expect("a session");
    let outlets = ["n01", "n02"].map(|node| agent.announce(node, 1, OnRequest).expect("announced"));
    until("the wanted node is there", || follower.site().node("n02").is_some());
    outlets.iter().for_each(|outlet| drop(outlet.send(&Batch::default())));
    assert!(follower.site().node("n01").is_none());
}

#[test]
fn a_death_is_noticed_although_the_queue_is_full() {
    let (hub, client) = two();
    let follower = Follower::start(&hub).expect("it follows");
    let agent = Plane::open(&client).expect("a session");
    let publisher = Publisher::new(&agent, 1).expect("announced");
    until("the values are there", || latest(&follower) == Some(0));
    let node = follower.site().node("n01").expect("a node");
    // The thread of the follower waits for it; callbacks of the session do not.
    let closed = node.state();
    until("the queue is full", || {
        (0..500).for_each(|_| publisher.send());
        follower.site().failed_messages().overflowed > 0
    });
    publisher.outlet.close();
    // Longer than the end of the publisher takes to arrive here.
    std::thread::sleep(Duration::from_millis(500));
    drop(closed);
    until("the death is noticed", || !is_alive(&follower));
}

#[test]
fn a_publisher_that_says_nothing_counts_as_gone_until_its_next_batch() {
    let (hub, client) = two();
    let follower = Follower::start(&hub).expect("it follows");
    let agent = Plane::open(&client).expect("a session");
    let publisher = Publisher::new(&agent, 1).expect("announced");
    until("the values are there", || is_alive(&follower) && latest(&follower) == Some(0));
    until("its silence is noticed", || !is_alive(&follower));
    assert_eq!(latest(&follower), Some(0), "its last value stays");
    publisher.send();
    until("it is back", || is_alive(&follower) && latest(&follower) == Some(1));
    publisher.outlet.close();
    until("its end is noticed", || !is_alive(&follower));
}

#[test]
fn an_old_batch_that_is_sent_again_does_not_keep_a_dead_node_alive() {
    let (hub, client) = two();
    let follower = Follower::start(&hub).expect("it follows");
    let agent = Plane::open(&client).expect("a session");
    let publisher = Publisher::new(&agent, 1).expect("announced");
    until("the values are there", || is_alive(&follower) && latest(&follower) == Some(0));
    publisher.send();
    until("its batch is there", || latest(&follower) == Some(1));
    let old = Batch { sequence: 1, samples: vec![sample(1)], ..Batch::default() };
    let again = || {
        publisher.outlet.send(&old).expect("sent");
    };
    until("its silence is noticed", || {
        again();
        !is_alive(&follower)
    });
    // It would come back with each of them.
    for _ in 0..100 {
        again();
        assert!(!is_alive(&follower), "an old batch is no sign of life");
        std::thread::sleep(Duration::from_millis(5));
    }
    publisher.send();
    until("it is back", || is_alive(&follower) && latest(&follower) == Some(2));
}

#[test]
fn a_publisher_that_floods_its_followers_takes_no_room_from_others() {
    let (hub, client) = two();
    let follower = Follower::start(&hub).expect("it follows");
    // Has each message when the session does.
    let beside = Follower::start(&hub).expect("it follows");
    let planes = [1, 2].map(|_| Plane::open(&client).expect("a session"));
    let flood = Publisher::new(&planes[0], 1).expect("announced");
    let other = Publisher::named(&planes[1], "n02", 1).expect("announced");
    let latest_of_other = |follower: &Follower| {
        let node = follower.site().node("n02")?;
        let state = node.state();
        state.mirror.vertices().next()?.recent.last_time().map(|time| time.as_nanos())
    };
    until("the values are there", || {
        let of_other = [&follower, &beside].map(latest_of_other);
        latest(&follower) == Some(0) && of_other == [Some(0); 2]
    });
    let node = follower.site().node("n01").expect("a node");
    // The thread of the follower waits for it, and messages gather.
    let closed = node.state();
    until("its room is full", || {
        (0..500).for_each(|_| flood.send());
        follower.site().failed_messages().overflowed > 0
    });
    let dropped = || follower.site().failed_messages().overflowed;
    for n in 1..=100 {
        other.send();
        // One after the other: the transport drops what it cannot send at once.
        until("the other's batch has come", || latest_of_other(&beside) == Some(n));
    }
    let before = dropped();
    flood.send();
    until("its room is still full", || dropped() > before);
    drop(closed);
    until("the other's batches are there", || latest_of_other(&follower) == Some(100));
    let node = follower.site().node("n02").expect("a node");
    assert_eq!(node.state().mirror.lost(), 0);
}

#[test]
fn requests_for_snapshots_that_find_no_place_are_counted() {
    let (hub, client) = two();
    let agent = Plane::open(&client).expect("a session");
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().expect("a gate");
    let of_publisher = gate.clone();
    let snapshot = move || {
        drop(of_publisher.lock());
        Vec::new()
    };
    let _outlet = agent.announce("n01", 1, snapshot).expect("announced");
    // More than a publisher answers at one time.
    let followers = (0..40).map(|_| Follower::start(&hub).expect("it follows"));
    let followers: Vec<_> = followers.collect();
    let dropped = || agent.drops().numbers()[0].1;
    until("a request is dropped", || dropped() > 0);
    drop(closed);
    drop(followers);
}
