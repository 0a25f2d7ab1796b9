//! Sessions on this machine's loopback: nodes come, tell, miss, go and come again.

use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use skopos_model::{Kind, Origin, Timestamp, Topic, TopicPattern, Unit, ValueType};
use skopos_wire::{
    Answers, Batch, Content, Description, Error, Follower, Interest, Outlet, Plane, PlaneConfig,
    State, Told, Watcher,
};
use zenoh::Wait as _;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A plane that listens on a port of its own, and one that connects to it. Nobody is looked for, so
/// tests do not see each other.
fn two() -> (Plane, PlaneConfig) {
    let (hub, client) = configs();
    (Plane::open(&hub).expect("a session"), client)
}

fn configs() -> (PlaneConfig, PlaneConfig) {
    let port =
        TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
    let at = format!("tcp/127.0.0.1:{port}");
    let alone = PlaneConfig { look_on: None, ..PlaneConfig::on_this_machine("test") };
    let hub = PlaneConfig { listen: vec![at.clone()], ..alone.clone() };
    (hub, PlaneConfig { is_client: true, connect: vec![at], ..alone })
}

fn description() -> Description {
    let topic = Topic::new("n01/a/b").expect("a topic");
    Description { index: 7, topic, unit: Unit::NONE, kind: Kind::Gauge, value_type: ValueType::U64 }
}

fn told(n: u64) -> Told {
    let time = Timestamp::from_nanos(n as i64);
    Told { index: 7, time, origin: Origin::Measured, value: Content::Bits(n) }
}

/// A publisher of one vertex.
struct Publisher {
    outlet: Outlet,
    last: Arc<Mutex<u64>>,
}

impl Publisher {
    fn new(plane: &Plane, incarnation: i64) -> Result<Self, Error> {
        let last = Arc::new(Mutex::new(0));
        let now = last.clone();
        let whole = move || {
            let n = *now.lock().expect("a number");
            vec![Batch {
                sequence: n,
                described: vec![description()],
                samples: vec![told(n)],
                ..Batch::default()
            }]
        };
        Ok(Self { outlet: plane.announce("n01", incarnation, whole)?, last })
    }

    fn send(&self) {
        let mut last = self.last.lock().expect("a number");
        *last += 1;
        self.outlet
            .send(&Batch { sequence: *last, samples: vec![told(*last)], ..Batch::default() })
            .expect("sent");
    }

    /// One that is never sent.
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
fn a_node_comes_tells_goes_and_comes_again() {
    let (hub, client) = two();
    let follower = Follower::start(&hub).expect("it follows");
    let agent = Plane::open(&client).expect("a session");
    let publisher = Publisher::new(&agent, 1).expect("announced");
    until("it is there", || is_alive(&follower));
    until("its snapshot is there", || latest(&follower) == Some(0));
    publisher.send();
    publisher.send();
    until("its changes are there", || latest(&follower) == Some(2));
    publisher.skip();
    publisher.send();
    until("it is right after a gap", || latest(&follower) == Some(4));
    let lost = || follower.site().node("n01").map(|node| node.state().mirror.lost());
    assert_eq!(lost(), Some(1));

    let Err(taken) = Publisher::new(&agent, 2) else { panic!("two of one name") };
    assert_eq!(taken.to_string(), "there is a node `n01` in the site `test` already");

    publisher.outlet.close();
    until("it is gone", || !is_alive(&follower));
    assert_eq!(latest(&follower), Some(4), "what it told last stays");
    let again = Publisher::new(&agent, 3).expect("the name is free");
    until("it is there again", || is_alive(&follower) && latest(&follower) == Some(0));
    again.send();
    until("and tells", || latest(&follower) == Some(1));
}

#[test]
fn of_two_that_could_not_see_each_other_the_second_gives_way() {
    let (hub, client) = configs();
    // A client is nobody without the hub.
    let peer = PlaneConfig { is_client: false, ..client };
    let planes = [1, 2].map(|_| Plane::open(&peer).expect("a session"));
    let first = Publisher::new(&planes[0], 1).expect("announced");
    let second = Publisher::new(&planes[1], 2).expect("nobody is there to refuse it");
    let follower = Follower::start(&Plane::open(&hub).expect("a session")).expect("it follows");
    until("the second is told", || {
        for node in [&first, &second] {
            node.outlet.look_for_first().expect("asked");
        }
        second.outlet.is_second()
    });
    assert!(!first.outlet.is_second());
    let followed = || follower.site().node("n01").map(|node| node.state().incarnation);
    until("the first is the node", || followed() == Some(1));
    second.outlet.close();
    until("its values are there", || latest(&follower) == Some(0));
    first.send();
    until("and its changes", || latest(&follower) == Some(1));
    assert_eq!(followed(), Some(1));
}

#[test]
fn a_client_is_told_that_its_hub_is_away_and_may_try_again() {
    let (hub, client) = configs();
    let away = PlaneConfig { connect: vec!["tcp/127.0.0.1:1".to_owned()], ..client.clone() };
    let Err(Error::Plane(why)) = Plane::open(&away) else { panic!("nobody is there") };
    assert!(why.contains("Unable to connect"), "{why}");
    let nowhere = PlaneConfig { connect: vec!["hub1".to_owned()], ..client.clone() };
    assert!(matches!(nowhere.check(), Err(Error::Setting { .. })));
    // Of several the first that answers will do, and whoever connects may come before the hub.
    let both = PlaneConfig { connect: [away.connect, client.connect].concat(), ..client };
    let agent = std::thread::spawn(move || {
        for pause in both.pauses().take(10) {
            std::thread::sleep(pause);
            if let Ok(plane) = Plane::open(&both) {
                return plane;
            }
        }
        panic!("the hub is there for long");
    });
    let follower = Follower::start(&Plane::open(&hub).expect("a session")).expect("it follows");
    let publisher = Publisher::new(&agent.join().expect("a session"), 1).expect("announced");
    until("its snapshot is there", || latest(&follower) == Some(0));
    drop(publisher);
}

#[test]
fn nodes_and_hubs_meet_at_a_router() {
    let (there, node) = configs();
    let mut router = zenoh::Config::default();
    for (key, value) in [
        ("mode", "\"router\"".to_owned()),
        ("listen/endpoints", format!("[\"{}\"]", there.listen[0])),
        ("scouting/multicast/enabled", "false".to_owned()),
    ] {
        router.insert_json5(key, &value).expect("a setting");
    }
    let _router = zenoh::open(router).wait().expect("a router");
    let hub =
        PlaneConfig { listen: vec!["tcp/127.0.0.1:0".to_owned()], connect: there.listen, ..there };
    let hub = Plane::open(&hub).expect("a session");
    let follower = Follower::start(&hub).expect("it follows");
    let publisher = Publisher::new(&Plane::open(&node).expect("a session"), 1).expect("announced");
    until("its snapshot is there", || latest(&follower) == Some(0));
    publisher.send();
    until("and its changes", || latest(&follower) == Some(1));
    let Err(Error::Taken { .. }) = Publisher::new(&Plane::open(&node).expect("a session"), 2)
    else {
        panic!("two of one name");
    };
}

#[test]
fn pauses_are_drawn_and_grow_to_an_end() {
    let (_, client) = configs();
    let all = || client.pauses().take(8).collect::<Vec<_>>();
    let (one, other) = (all(), all());
    assert_ne!(one, other, "a thousand that come back do not come at once");
    assert!(one.is_sorted() && one[0] < Duration::from_millis(1200), "{one:?}");
    assert_eq!(one.last(), Some(&Duration::from_secs(4)));
}

#[test]
fn a_hub_that_comes_later_knows_all_and_finds_out_who_died() {
    let (hub, client) = two();
    let agent = Plane::open(&client).expect("a session");
    let publisher = Publisher::new(&agent, 1).expect("announced");
    publisher.send();
    let follower = Follower::start(&hub).expect("it follows");
    until("all is there", || is_alive(&follower) && latest(&follower) == Some(1));
    drop((publisher, agent));
    until("its death is found out", || !is_alive(&follower));
}

#[test]
fn peers_of_one_machine_find_each_other() {
    let site = format!("test-{}", std::process::id());
    let config = PlaneConfig::on_this_machine(&site);
    let hub = Plane::open(&config).expect("a session");
    let follower = Follower::start(&hub).expect("it follows");
    let agent = Plane::open(&config).expect("a session");
    let publisher = Publisher::new(&agent, 1).expect("announced");
    let sends = Instant::now();
    until("it is there", || {
        if sends.elapsed() > Duration::from_millis(500) {
            publisher.send();
        }
        is_alive(&follower)
    });
    until("all is there", || latest(&follower).is_some());
}

#[test]
fn what_is_no_batch_is_counted_for_who_sent_it_and_harms_nobody() {
    let (hub, client) = two();
    let follower = Follower::start(&hub).expect("it follows");
    let agent = Plane::open(&client).expect("a session");
    let publisher = Publisher::new(&agent, 1).expect("announced");
    until("its snapshot is there", || latest(&follower) == Some(0));
    let mut damaged = Batch { sequence: 1, samples: vec![told(1)], ..Batch::default() }.encode();
    damaged.truncate(damaged.len() - 1);
    for bytes in [vec![], b"SKB".to_vec(), vec![0xff; 100_000], damaged] {
        publisher.outlet.send_bytes(bytes).expect("sent");
    }
    publisher.send();
    until("what is a batch comes", || latest(&follower) == Some(1));
    let node = follower.site().node("n01").expect("a node");
    assert_eq!((node.state().malformed, follower.site().failed_messages()), (4, (0, 4)));
    assert!(node.state().is_alive && node.state().mirror.is_whole());
}

/// A publisher that can be asked.
struct Asked;

impl Answers for Asked {
    fn whole(&self) -> Vec<Batch> {
        vec![Batch { described: vec![description()], samples: vec![told(1)], ..Batch::default() }]
    }

    fn refresh(&self, topic: &Topic) -> Result<Batch, String> {
        match topic.as_str() {
            "n01/a/b" => {
                let (described, samples) = (vec![description()], vec![told(2)]);
                Ok(Batch { described, samples, ..Batch::default() })
            }
            _ => Err(format!("`{topic}` is not measured here")),
        }
    }
}

#[test]
fn a_topic_is_measured_when_asked_for_and_then_in_the_mirror() {
    let (hub, client) = two();
    let follower = Follower::start(&hub).expect("it follows");
    let agent = Plane::open(&client).expect("a session");
    let _outlet = agent.announce("n01", 1, Asked).expect("announced");
    until("its snapshot is there", || latest(&follower) == Some(1));
    let refresh = |topic: &str| {
        let topic = Topic::new(topic).expect("a topic");
        follower.refresher().refresh(&topic, PATIENCE).map_err(|e| e.to_string())
    };
    assert_eq!((refresh("n01/a/b"), latest(&follower)), (Ok(()), Some(2)));
    assert_eq!(refresh("n01/a/c"), Err("`n01/a/c` is not measured here".to_owned()));
    assert_eq!(refresh("n02/a/b"), Err("no node `n02` can be reached".to_owned()));
}

#[test]
fn only_nodes_that_are_of_interest_are_followed() {
    let (hub, client) = two();
    let pattern = TopicPattern::new("n02/**").expect("a pattern");
    let interest = Interest::new(&[pattern], "n03");
    let follower = Follower::start_with(&hub, interest, ()).expect("it follows");
    let agent = Plane::open(&client).expect("a session");
    let outlets = ["n01", "n02"].map(|node| agent.announce(node, 1, Asked).expect("announced"));
    until("one is there", || follower.site().node("n02").is_some());
    outlets.iter().for_each(|outlet| drop(outlet.send(&Batch::default())));
    assert!(follower.site().node("n01").is_none());
}

/// A watcher that stands still until it is let go.
struct Stands(Arc<Mutex<()>>);

impl Watcher for Stands {
    fn heard(&mut self, _: &str, _: &State) {
        drop(self.0.lock());
    }
    fn came(&mut self, _: &Description) {}
    fn told(&mut self, _: &Topic, _: &skopos_model::Sample) {}
    fn checked(&mut self, _: &Topic, _: Timestamp) {}
    fn went(&mut self, _: &Topic) {}
}

#[test]
fn a_death_is_known_also_where_there_was_no_room_for_another_message() {
    let (hub, client) = two();
    let gate = Arc::new(Mutex::new(()));
    let watcher = Stands(gate.clone());
    let follower = Follower::start_with(&hub, Interest::default(), watcher).expect("it follows");
    let agent = Plane::open(&client).expect("a session");
    let publisher = Publisher::new(&agent, 1).expect("announced");
    until("all is there", || latest(&follower) == Some(0));
    let closed = gate.lock().expect("a gate");
    until("there is no room", || {
        (0..500).for_each(|_| publisher.send());
        follower.site().failed_messages().0 > 0
    });
    publisher.outlet.close();
    // Longer than its going takes to come here.
    std::thread::sleep(Duration::from_millis(500));
    drop(closed);
    until("its death is known", || !is_alive(&follower));
}
