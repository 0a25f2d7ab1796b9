//! Turns: each variant once in each cell and round, so that the noise of the machine meets all of them.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use super::agents::Agents;
use super::cells::{Cell, Variant, extent};
use super::client::{Client, Ran};
use super::nodes::{Jars, Nodes};
use super::place::{COORDINATOR, NODES, Place};
use crate::child::{Process, wait_for};
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::scratch::Scratch;

/// Time in which the agent notices a new delay: the shortest round trip of five seconds counts.
const NOTICE: Duration = Duration::from_secs(6);

/// Time in which a severity that was set reaches the coordinator, and in which it is given back: two turns of gossip.
const GOSSIP: Duration = Duration::from_secs(2);

/// Time in which a Java program starts and sets severities.
const START: Duration = Duration::from_secs(60);

/// The time of the first turn, in which programs become as fast as they stay.
const WARM_UP_SECONDS: f64 = 15.0;

/// The turn in which the disks of all replicas are read for the first time.
const WARM_UP: Cell = Cell { workload: 'A', delay_ms: 0.0, is_cached: false, seek_ms: 2.0 };

/// The result of a turn.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) cell: Cell,
    pub(super) variant: Variant,
    pub(super) ran: Ran,
}

/// Starts everything, and takes all turns.
pub(super) fn measure(plan: &Plan) -> Outcome<Vec<Turn>> {
    let jars = Jars::find()?;
    let extent = extent(plan);
    // Commit logs lie on disk and segments of agents in memory.
    let failed = |e: skopos_term::Failure| e.in_one_line();
    let (disk, memory) = (Scratch::on_disk().map_err(failed)?, Scratch::new().map_err(failed)?);
    let place = Place::up()?;
    let agents = Agents::start(&place, memory.path())?;
    plan.say("three nodes start …");
    let mut nodes = Nodes::start(&place, &jars, disk.path(), agents.segments())?;
    let mut client = Client::start(&place, &jars, disk.path())?;
    plan.say("rows are loaded …");
    client.load()?;
    let seconds = extent.turn.as_secs_f64();
    // Without a rank, all three are read: the disks are known after it.
    place.without_caches(WARM_UP, || client.run(WARM_UP.workload, WARM_UP_SECONDS))?;
    agents.wait_for_rank()?;
    let mut turns = Vec::new();
    for round in 0..extent.rounds {
        let mut delay = None;
        for cell in &extent.cells {
            if delay.replace(cell.delay_ms) != Some(cell.delay_ms) {
                place.set_delay(cell.delay_ms)?;
                thread::sleep(NOTICE);
            }
            place.set_seek(cell.seek_ms)?;
            for at in 0..Variant::ALL.len() {
                // A later round has another order.
                let variant = Variant::ALL[(at + round) % Variant::ALL.len()];
                let severity = match variant {
                    Variant::JarLess => Some(severity(&place, &jars, &agents, disk.path())?),
                    _ => None,
                };
                client.snitch(if variant == Variant::Jar { "skopos" } else { "stock" })?;
                let ran = place.without_caches(*cell, || client.run(cell.workload, seconds))?;
                plan.say(&format!("{}, {}: {ran:?}", cell.name(), variant.name()));
                nodes.check(disk.path())?;
                turns.push(Turn { cell: *cell, variant, ran });
                if let Some(running) = severity {
                    drop(running);
                    thread::sleep(GOSSIP);
                }
            }
        }
    }
    Ok(turns)
}

/// Starts the program that sets the severities of all nodes, and waits until the coordinator knows them.
fn severity(place: &Place, jars: &Jars, agents: &Agents, scratch: &Path) -> Outcome<Process> {
    let said = scratch.join("severity");
    let mut command = place.lab.command(COORDINATOR, "java")?;
    command.args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
    command.arg(format!("-Dskopos.dir={}", agents.segments().display()));
    command.arg("-jar").arg(jars.severity()).args(["severity", "cassandra"]);
    for node in NODES {
        command.arg(format!("{}:7199", place.address(node)?));
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&said)?);
    let mut running = Process::start(&mut command)?;
    let all_are_set = || {
        let said = fs::read_to_string(&said).ok()?;
        (said.matches(": severity").count() >= NODES.len()).then_some(())
    };
    wait_for(&mut running, START, all_are_set).map_err(|why| {
        let text = fs::read_to_string(&said).unwrap_or_default();
        format!("the severities are not set: {why}: {}", text.lines().last().unwrap_or_default())
    })?;
    thread::sleep(GOSSIP);
    Ok(running)
}
