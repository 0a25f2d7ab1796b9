//! `skopos-bench query`: the latency of a placement engine's queries to a hub, beside other stores
//! (Figure 12 of the paper, on one machine).
//!
//! Sixteen agents feed two hubs, and a feeder writes the same values at the same pace into the peers.
//! Then clients ask all stores the paper's resource query in turns: of 1 to 8 tables, over 1 to 16 nodes,
//! by 1 to 16 clients. Each of our listeners stands beside the peers that are reached in the same way.

mod names;
mod settings;
mod question;
mod load;
mod ours;
mod cluster;
mod feed;
mod redis_streams;
mod prometheus;
pub(crate) mod postgres;
mod sqlite;
mod duckdb;
mod target;
mod peers;
mod results;
mod history;

use std::time::{Duration, Instant};

use super::machine::Machine;
use super::report::Report;
use super::scratch::Scratch;
use crate::plan::Plan;
use cluster::{Cluster, Listeners};
use feed::Feeder;
use load::Load;
use ours::{Flight, Http, InProcess, Socket};
use peers::Peers;
use prometheus::Kind;
use question::{MAX_COMPLEXITY, Question};
use results::Results;
use settings::{CLIENTS, COMPLEXITIES, NODES, PAPERS_COMPLEXITY, Setting};
use skopos_term::Failure;
use target::Target;

/// The longest time until a peer holds the values that it was fed with.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs every case.
pub(crate) fn run(plan: &Plan) -> Result<Report, Failure> {
    let scratch = Scratch::new()?;
    plan.say("starting the peers …");
    let Peers { mut targets, feeds, versions, duckdb } = peers::start(&scratch)?;
    let mut machine = Machine::this();
    machine.version(names::REDIS, "redis-server", &["--version"]);
    machine.version(names::PROMETHEUS, Kind::Prometheus.program(), &["--version"]);
    machine.version(names::VICTORIA, Kind::VictoriaMetrics.program(), &["-version"]);
    versions.into_iter().for_each(|(name, version)| machine.version_is(name, version));
    let mut report = Report::new("query", machine);
    let mut cluster = Cluster::start(scratch.path())?;
    targets.extend(listeners(&cluster));
    let feeder = Feeder::start(cluster.engine().clone(), feeds);
    let mut results = Results::default();
    for nodes in NODES {
        plan.say(&format!("{nodes} nodes …"));
        cluster.grow(nodes)?;
        wait_until_held(&mut targets, &Question::all(MAX_COMPLEXITY, nodes));
        let setting = Setting { complexity: PAPERS_COMPLEXITY, nodes, clients: 1 };
        measure(plan, &[setting], &targets, &mut results);
    }
    compare(&feeder, &mut targets);
    let nodes = NODES[NODES.len() - 1];
    let one = |complexity| Setting { complexity, nodes, clients: 1 };
    plan.say("1 to 8 tables …");
    measure(plan, &COMPLEXITIES.map(one), &targets, &mut results);
    let many = |clients| Setting { complexity: MAX_COMPLEXITY, nodes, clients };
    plan.say("1 to 16 clients …");
    measure(plan, &CLIENTS.map(many)[1..], &targets, &mut results);
    for target in &targets {
        if let Some(why) = feeder.failure(target.name) {
            results.fail(target.name, &why);
        }
    }
    report.add(results.rows());
    notes(plan, &feeder, &mut report);
    // The next measurement has the machine for itself.
    drop((feeder, cluster, targets));
    let disk = Scratch::on_disk()?;
    let duckdb = duckdb.as_ref().map(|duckdb| &**duckdb).map_err(Clone::clone);
    history::measure(plan, disk.path(), duckdb, &mut report)?;
    Ok(report)
}

/// The listeners of our hub.
fn listeners(cluster: &Cluster) -> Vec<Target> {
    let Listeners { dir, http, flight } = &cluster.listeners;
    vec![
        Target::new(names::IN_PROCESS, InProcess(cluster.engine().clone())),
        Target::new(names::SOCKET, Socket { dir: dir.clone() }),
        Target::new(names::HTTP, Http { at: http.clone() }),
        Target::new(names::FLIGHT, Flight { at: flight.clone() }),
    ]
}

/// Waits until every target holds all values. A target that does not in time is left out.
fn wait_until_held(targets: &mut [Target], questions: &[Question]) {
    for Target { store, .. } in targets {
        let Ok(holder) = store else { continue };
        let started = Instant::now();
        let held = |question: &Question| match holder.values(question)?.len() {
            found if found == question.topics.len() => Ok(()),
            found => Err(format!("it has {found} of {} values", question.topics.len())),
        };
        while let Err(why) = questions.iter().try_for_each(held) {
            if started.elapsed() > PATIENCE {
                *store = Err(format!("{why}, after {} s", PATIENCE.as_secs()));
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Compares the values of all peers with the values that they were fed with. A peer with other values
/// is left out.
fn compare(feeder: &Feeder, targets: &mut [Target]) {
    let still = feeder.still();
    // Peers that scrape do so each second.
    std::thread::sleep(3 * feed::EVERY);
    let questions = Question::all(MAX_COMPLEXITY, NODES[NODES.len() - 1]);
    for Target { name, store } in targets {
        // The values of our hub change all the time.
        let is_ours = names::LISTENERS.iter().any(|(listener, _)| listener == name);
        let Ok(holder) = store else { continue };
        if is_ours {
            continue;
        }
        let wrong = questions.iter().find_map(|question| {
            let fed = question.topics.iter().filter_map(|topic| still.value(topic)).collect();
            let held = holder.values(question).unwrap_or_default();
            (!are_same(fed, held)).then(|| question.topics.join(", "))
        });
        if let Some(topics) = wrong {
            *store = Err(format!("it holds other values of {topics}"));
        }
    }
}

/// True for the same values in any order, except for the last digits, which a text may lose.
fn are_same(mut one: Vec<f64>, mut other: Vec<f64>) -> bool {
    let is_near = |(a, b): (&f64, &f64)| (a - b).abs() <= a.abs() * 1e-9;
    one.sort_by(f64::total_cmp);
    other.sort_by(f64::total_cmp);
    one.len() == other.len() && one.iter().zip(&other).all(is_near)
}

/// Measures all targets in turns, some rounds.
fn measure(plan: &Plan, settings: &[Setting], targets: &[Target], results: &mut Results) {
    for _ in 0..plan.rounds {
        for setting in settings {
            let questions = Question::all(setting.complexity, setting.nodes);
            let (clients, slice) = (setting.clients, plan.slice);
            let load = Load { questions: &questions, clients, slice };
            for Target { name, store } in targets {
                let result = match store {
                    Ok(store) => store.measure(&load),
                    Err(why) => Err(why.clone()),
                };
                results.add(name, *setting, result);
            }
        }
    }
}

fn notes(plan: &Plan, feeder: &Feeder, report: &mut Report) {
    let (topics, changes) = feeder.size();
    report.note(format!(
        "16 real agents on this machine, each followed by two hubs; {topics} numbers are known and \
         {changes:.0} of them change in a second, which is what every peer is fed with",
    ));
    report.note(format!(
        "{} rounds, all stores in turns; a client asks again when it has its answer, and takes all \
         values out of it; clients, servers and agents share the cores",
        plan.rounds
    ));
    report.note(
        "the query is the paper's UNION of MAX(timestamp) selects, as many statements as there are \
         nodes; the SQL peers have a row for each topic, the topic being the key, and are asked by \
         prepared statements with IN, which is quicker there; Prometheus and VictoriaMetrics by `or` \
         of series over HTTP, Redis by XREVRANGE COUNT 1 of each stream in one write, PostgreSQL by \
         its pgbench",
    );
}

#[cfg(test)]
mod tests {
    use super::are_same;

    #[test]
    fn values_are_compared_in_any_order() {
        assert!(are_same(vec![1.0, 3e9, 0.1], vec![3e9, 0.1, 1.0]));
        assert!(are_same(vec![0.1 + 0.2], vec![0.3]));
        assert!(!are_same(vec![1.0, 2.0], vec![1.0, 1.0]));
        assert!(!are_same(vec![1.0], vec![1.0, 1.0]));
    }
}
