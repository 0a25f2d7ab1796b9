//! `skopos bench query`: what a placement engine waits for when it asks a hub, beside what it would
//! ask instead. Figure 12 of the paper, on one machine.
//!
//! Sixteen agents feed two hubs; a feeder writes the same values at the same pace into the peers. The
//! paper's resource query is then asked of all in turns: of 1 to 8 tables, over 1 to 16 nodes, by 1 to
//! 16 clients. Each of our doors stands beside those peers that are reached in the same way.

mod question;
mod load;
mod ours;
mod cluster;
mod feed;
mod redis_streams;
mod prometheus;
mod postgres;
mod sqlite;
mod duckdb;
mod peers;
mod found;
mod history;

use std::time::{Duration, Instant};

use super::machine::Machine;
use super::report::Report;
use super::scratch::Scratch;
use crate::plan::Plan;
use cluster::{Cluster, Doors};
use feed::Feeder;
use found::{Found, Setting};
use load::{Asked, Load};
use ours::{Flight, Http, InProcess, Socket};
use peers::Peers;
use question::{MAX_COMPLEXITY, Question};
use skopos_term::Failure;

/// Tables in one query (Figure 12b), the last being the most.
const COMPLEXITIES: [usize; 4] = [1, 2, 4, MAX_COMPLEXITY];
/// Nodes (Figure 12a), the last being all.
const NODES: [usize; 3] = [1, 4, 16];
/// Tables in a query while the nodes become more, as in the paper.
const PAPERS_COMPLEXITY: usize = 3;
/// Clients that ask at once.
const CLIENTS: [usize; 3] = [1, 4, 16];

/// How long a peer may take to hold what it was fed with.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who is asked, or why that cannot be.
struct Whom {
    name: &'static str,
    asked: Result<Box<dyn Asked>, String>,
}

impl Whom {
    fn new(name: &'static str, asked: impl Asked + 'static) -> Self {
        Self { name, asked: Ok(Box::new(asked)) }
    }
}

/// Runs every case.
pub(crate) fn run(plan: &Plan) -> Result<Report, Failure> {
    let scratch = Scratch::new()?;
    plan.say("starting the peers …");
    let Peers { mut whom, feeds, versions, duckdb } = peers::start(&scratch)?;
    let mut machine = Machine::this();
    versions.into_iter().for_each(|(name, version)| machine.version_is(name, version));
    let mut report = Report::new("query", machine);
    let mut cluster = Cluster::start(scratch.path())?;
    whom.extend(doors(&cluster));
    let feeder = Feeder::start(cluster.engine().clone(), feeds);
    let mut found = Found::default();
    for nodes in NODES {
        plan.say(&format!("{nodes} nodes …"));
        cluster.grow(nodes)?;
        wait_until_held(&mut whom, &Question::all(MAX_COMPLEXITY, nodes));
        let setting = Setting { complexity: PAPERS_COMPLEXITY, nodes, clients: 1 };
        measure(plan, &[setting], &whom, &mut found);
    }
    compare(&feeder, &mut whom);
    let nodes = NODES[NODES.len() - 1];
    let one = |complexity| Setting { complexity, nodes, clients: 1 };
    plan.say("1 to 8 tables …");
    measure(plan, &COMPLEXITIES.map(one), &whom, &mut found);
    let many = |clients| Setting { complexity: MAX_COMPLEXITY, nodes, clients };
    plan.say("1 to 16 clients …");
    measure(plan, &CLIENTS.map(many)[1..], &whom, &mut found);
    for whom in &mut whom {
        if let Some(why) = feeder.failure(whom.name) {
            found.fails(whom.name, &why);
        }
    }
    report.add(found.rows());
    notes(plan, &feeder, &mut report);
    // What comes now has the machine for itself.
    drop((feeder, cluster, whom));
    let disk = Scratch::on_disk()?;
    let duckdb = duckdb.as_ref().map(|duckdb| &**duckdb).map_err(Clone::clone);
    history::measure(plan, disk.path(), duckdb, &mut report)?;
    Ok(report)
}

/// Our own doors.
fn doors(cluster: &Cluster) -> Vec<Whom> {
    let Doors { dir, http, flight } = &cluster.doors;
    vec![
        Whom::new(found::IN_PROCESS, InProcess(cluster.engine().clone())),
        Whom::new(found::SOCKET, Socket { dir: dir.clone() }),
        Whom::new(found::HTTP, Http { at: http.clone() }),
        Whom::new(found::FLIGHT, Flight { at: flight.clone() }),
    ]
}

/// Whoever does not hold all values in time is not asked further.
fn wait_until_held(whom: &mut [Whom], questions: &[Question]) {
    for Whom { asked, .. } in whom {
        let Ok(holder) = asked else { continue };
        let started = Instant::now();
        let held = |question: &Question| match holder.values(question)?.len() {
            found if found == question.topics.len() => Ok(()),
            found => Err(format!("it has {found} of {} values", question.topics.len())),
        };
        while let Err(why) = questions.iter().try_for_each(held) {
            if started.elapsed() > PATIENCE {
                *asked = Err(format!("{why}, after {} s", PATIENCE.as_secs()));
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// All peers hold the very values that they were fed with, or are not asked further.
fn compare(feeder: &Feeder, whom: &mut [Whom]) {
    let still = feeder.still();
    // Who comes for the values does so each second.
    std::thread::sleep(3 * feed::EVERY);
    let questions = Question::all(MAX_COMPLEXITY, NODES[NODES.len() - 1]);
    for Whom { name, asked } in whom {
        // Ours change all the time.
        let is_ours = found::DOORS.iter().any(|(door, _)| door == name);
        let Ok(holder) = asked else { continue };
        if is_ours {
            continue;
        }
        let wrong = questions.iter().find_map(|question| {
            let fed = question.topics.iter().filter_map(|topic| still.value(topic)).collect();
            let held = holder.values(question).unwrap_or_default();
            (!are_same(fed, held)).then(|| question.topics.join(", "))
        });
        if let Some(topics) = wrong {
            *asked = Err(format!("it holds other values of {topics}"));
        }
    }
}

/// Whether they are the same values in any order, to the last digits that a text may lose.
fn are_same(mut one: Vec<f64>, mut other: Vec<f64>) -> bool {
    let is_near = |(a, b): (&f64, &f64)| (a - b).abs() <= a.abs() * 1e-9;
    one.sort_by(f64::total_cmp);
    other.sort_by(f64::total_cmp);
    one.len() == other.len() && one.iter().zip(&other).all(is_near)
}

/// Everybody in turns, some rounds.
fn measure(plan: &Plan, settings: &[Setting], whom: &[Whom], found: &mut Found) {
    for _ in 0..plan.rounds {
        for setting in settings {
            let questions = Question::all(setting.complexity, setting.nodes);
            let (clients, slice) = (setting.clients, plan.slice);
            let load = Load { questions: &questions, clients, slice };
            for Whom { name, asked } in whom {
                let result = match asked {
                    Ok(asked) => asked.measure(&load),
                    Err(why) => Err(why.clone()),
                };
                found.take(name, *setting, result);
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
        "{} rounds, everybody in turns; a client asks again when it has its answer, and takes all \
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
