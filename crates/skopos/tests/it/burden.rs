//! An agent under a heavy load of queries keeps measuring.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use skopos_model::{Kind, Timestamp, Topic, Unit, ValueType};
use skopos_store::history::{Samples, Sealer, Series};
use tempfile::TempDir;

use crate::plane::value;
use crate::sql::Hub;
use crate::support::{Running, eventually, run};

/// The share of a core that the agent may use. It is several times the need of a debug build that polls
/// once a second, also on a slow machine whose other cores are busy; an answer needs far more.
const BUDGET: f64 = 0.05;

const TOPICS: u32 = 20;
const SAMPLES_OF_ONE: u32 = 10_000;

/// The statement reaches further back than a hub's memory, so the hub queries the node.
const SQL: &str = "SELECT count(*) AS n FROM samples";

/// Writes the history of twenty topics that an agent would have kept until an hour ago.
fn fill(folder: &Path) {
    let mut sealer = Sealer::new(folder, 1).expect("a folder");
    let end = skopos_shm::now().as_nanos() - 3_600_000_000_000;
    for topic in 0..TOPICS {
        let topic = Topic::new(&format!("n01/burden/metric_{topic:02}")).expect("a topic");
        let mut samples = Samples::default();
        for sample in 0..SAMPLES_OF_ONE {
            let before = i64::from(SAMPLES_OF_ONE - sample) * 1_000_000_000;
            samples.push_measured(Timestamp::from_nanos(end - before), f64::from(sample));
        }
        let (unit, kind, value_type) = (Unit::NONE, Kind::Gauge, ValueType::F64);
        let series = Series { topic, unit, kind, value_type, since: Timestamp::default() };
        sealer.push(series, samples).expect("written");
    }
    sealer.finish().expect("written");
}

/// Stops the querying threads, however the test ends.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn an_agent_under_endless_requests_for_history_polls_its_sensors_as_often_as_before() {
    let (hub, history) = (Hub::start(), TempDir::new().expect("a folder"));
    fill(history.path());
    let budget = format!("{}%", BUDGET * 100.0);
    let of_node = ["--interval", "1s", "--budget", &budget, "--live", "--insecure"];
    let folder = history.path().to_str().expect("UTF-8");
    let asked = ["--connect", &hub.at, "--history", folder];
    let agent = Running::start(&[&of_node[..], &asked].concat());
    let number = |topic: &str| value(&agent, topic).and_then(|v| v.as_f64()).unwrap_or_default();
    let all = u64::from(TOPICS * SAMPLES_OF_ONE);
    eventually("the agent has the whole history", || hub.ask(SQL)[0]["n"].as_u64() >= Some(all));

    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = Stop(&is_over);
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    run(hub.dir.path(), &["sql", "--json", "--timeout", "60s", SQL]);
                }
            });
        }
        eventually("the answers cost several budgets", || number("self/cpu_ratio") > 3.0 * BUDGET);
        let polls = || number("self/sensor/load/polls_total");
        let before = polls();
        eventually("the sensor is polled meanwhile", || polls() >= before + 15.0);
        let told = agent.run(&["get", "--json", "self/sensor/*/stretch"]).json();
        let told = told["readings"].as_array().expect("readings");
        assert!(told.iter().all(|reading| reading["value"] == 1.0), "{told:?}");
        assert!(number("self/sensing_ratio") < number("self/cpu_ratio"));
    });
}
