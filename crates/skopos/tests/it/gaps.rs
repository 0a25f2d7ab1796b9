//! Samples that were lost on the way to a hub are read from the node, or the node is reported as
//! missing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value as Json, json};
use skopos_model::{Kind, Timestamp, Topic, Unit, ValueType};
use skopos_shm::{Publisher, VertexSpec, now};
use skopos_store::history::{Samples, Sealer, Series};
use tempfile::TempDir;

use crate::sql::Hub;
use crate::support::{Running, eventually, run, signal};

/// The time between two samples of a program. At this rate memory holds more than a minute of samples,
/// and a mirror holds three seconds of them.
const EVERY: Duration = Duration::from_millis(100);

/// Longer than the time after which a node gives up a silent hub: ten seconds.
const STILL: Duration = Duration::from_secs(15);

/// A program beside an agent. It publishes one topic often and another one seldom.
struct Program {
    rests: Arc<AtomicBool>,
    ends: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Program {
    fn start(agent: &Running) -> Self {
        let publisher = Publisher::builder("app").dir(agent.path()).node("a1").create();
        let publisher = publisher.expect("a segment");
        let writer = |topic| {
            let topic = Topic::new(topic).expect("a topic");
            publisher.register(VertexSpec::new(topic, ValueType::U64).slots(1024)).expect("it")
        };
        let (often, seldom) = (writer("a1/app/often"), writer("a1/app/seldom"));
        let (rests, ends) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (is_resting, is_ended) = (rests.clone(), ends.clone());
        let thread = std::thread::spawn(move || {
            let mut n = 0u64;
            while !is_ended.load(Ordering::SeqCst) {
                if !is_resting.load(Ordering::SeqCst) {
                    often.publish(n).expect("published");
                    if n.is_multiple_of(7) {
                        seldom.publish(n).expect("published");
                    }
                    n += 1;
                }
                publisher.heartbeat();
                std::thread::sleep(EVERY);
            }
        });
        Self { rests, ends, thread: Some(thread) }
    }

    /// Stops publishing, without the end of the program.
    fn rest(&self) {
        self.rests.store(true, Ordering::SeqCst);
        std::thread::sleep(EVERY * 2);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns the number of samples of each topic between two times, and the missing nodes.
fn counted(dir: &std::path::Path, from: i64, to: i64) -> (Json, Json) {
    let sql = format!(
        "SELECT topic, count(*) AS n FROM samples WHERE topic LIKE 'a1/app/%' \
         AND time BETWEEN to_timestamp_nanos({from}) AND to_timestamp_nanos({to}) \
         GROUP BY topic ORDER BY topic"
    );
    let ran = run(dir, &["sql", "--json", "--timeout", "30s", &sql]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let mut told = ran.json();
    (told["rows"].take(), told["missing"].take())
}

fn a_hub_that_stood_still_has_what_it_missed(more: &[&str]) {
    let hub = Hub::start();
    let live = ["--node", "a1", "--live", "--insecure", "--connect", &hub.at];
    let mut agent = Running::start(&[&live[..], more].concat());
    let program = Program::start(&agent);
    let held = "SELECT count(*) > 20 AS enough FROM samples WHERE topic = 'a1/app/often'";
    eventually("the hub receives the topic", || hub.ask(held) == json!([{"enough": true}]));
    let begun = now().as_nanos();
    signal(&hub.child, "STOP");
    std::thread::sleep(STILL);
    signal(&hub.child, "CONT");
    let ended = now().as_nanos();
    // From its first answer on, the hub has every sample, or it reports the node as missing.
    let truth = || counted(agent.path(), begun, ended).0;
    let first = counted(hub.dir.path(), begun, ended);
    assert!(first.0 == truth() || first.1 == json!(["a1"]), "{first:?} of {}", truth());
    let lost = "SELECT lost_batches > 0 AND alive AS so FROM nodes WHERE node = 'a1'";
    eventually("the hub counts the lost batches", || {
        let answer = counted(hub.dir.path(), begun, ended);
        assert!(answer.0 == truth() || answer.1 == json!(["a1"]), "{answer:?} of {}", truth());
        hub.ask(lost) == json!([{"so": true}])
    });
    eventually("the hub has the lost samples", || {
        counted(hub.dir.path(), begun, ended) == (truth(), json!([]))
    });
    program.rest();
    let ended = now().as_nanos();
    let truth = counted(agent.path(), begun, ended).0;
    eventually("the hub has all samples", || {
        counted(hub.dir.path(), begun, ended) == (truth.clone(), json!([]))
    });
    agent.kill();
    eventually("the hub reports the node as missing", || {
        let answer = counted(hub.dir.path(), begun, ended);
        answer.1 == json!(["a1"])
    });
}

#[test]
fn samples_that_a_hub_missed_come_from_the_memory_of_a_node() {
    a_hub_that_stood_still_has_what_it_missed(&[]);
}

#[test]
fn samples_that_a_hub_missed_come_from_the_history_of_a_node() {
    let history = TempDir::new().expect("a folder");
    let there = history.path().to_str().expect("UTF-8");
    a_hub_that_stood_still_has_what_it_missed(&["--history", there]);
}

/// A hub does not know what its nodes once had unless it asks them.
#[test]
fn a_topic_that_only_a_nodes_history_has_is_found_by_its_beginning() {
    let kept = tempfile::tempdir().expect("a directory");
    let folder = kept.path().to_str().expect("text");
    let mut sealer = Sealer::new(kept.path(), 1).expect("a part");
    for name in ["a", "b", "c"] {
        let topic = Topic::new(&format!("n0000/bench/{name}")).expect("a topic");
        let (unit, kind, value_type) = (Unit::NONE, Kind::Gauge, ValueType::F64);
        let series = Series { topic, unit, kind, value_type, since: Timestamp::default() };
        let mut samples = Samples::default();
        let begin = skopos_shm::now().as_nanos() - 200_000_000_000;
        for second in 0..200 {
            samples.push_measured(Timestamp::from_nanos(begin + second * 1_000_000_000), 1.0);
        }
        sealer.push(series, samples).expect("pushed");
    }
    sealer.finish().expect("sealed");
    let hub = Hub::start();
    let live = ["--node", "n0000", "--live", "--insecure", "--connect", &hub.at];
    let _agent = Running::start(&[&live[..], &["--history", folder]].concat());
    let is_there = "SELECT alive AND topics > 0 AS so FROM nodes WHERE node = 'n0000'";
    eventually("the hub has the node", || hub.ask(is_there) == json!([{"so": true}]));
    let count = "SELECT count(*) AS n FROM samples WHERE topic LIKE 'n0000/bench/%'";
    assert_eq!(hub.ask(count), json!([{"n": 600}]));
}
