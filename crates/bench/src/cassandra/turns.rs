//! Turns: each variant once in each cell and round, so that the noise of the machine meets all of them.
//!
//! A turn that fails costs its own result alone. Each turn first takes back what the last one may have left.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use super::agents::Agents;
use super::cells::{Cell, Extent, Variant};
use super::client::{Client, Ran};
use super::nodes::{Jars, Nodes};
use super::place::{COORDINATOR, NODES, Place};
use crate::child::{Process, wait_for};
use crate::ending;
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::scratch::Scratch;

/// Time in which the agent notices a new delay: the shortest round trip of five seconds counts.
const NOTICE: Duration = Duration::from_secs(6);

/// Time in which a Java program starts and sets severities from a valid rank.
const START: Duration = Duration::from_secs(60);

/// The time of the first turn, in which programs become as fast as they stay.
const WARM_UP_SECONDS: f64 = 15.0;

/// The turn in which the disks of all replicas are read for the first time.
const WARM_UP: Cell = Cell { workload: 'A', delay_ms: 0.0, is_cached: false, seek_ms: 2.0 };

/// Number of failed turns that end the run. The cluster and not a turn is at fault then, and each failure may cost [`START`].
pub(super) const MOST_FAILURES: usize = 3;

/// The result of a turn.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) cell: Cell,
    pub(super) variant: Variant,
    /// The measured numbers, or the reason why there are none.
    pub(super) ran: Result<Ran, String>,
}

/// Starts everything, and takes all turns, or as many as there are until [`MOST_FAILURES`] have failed.
///
/// # Errors
/// The cluster does not start, or a signal ends the benchmark.
pub(super) fn measure(plan: &Plan, extent: &Extent) -> Outcome<Vec<Turn>> {
    let jars = Jars::find()?;
    // Commit logs lie on disk and segments of agents in memory.
    let failed = |e: skopos_term::Failure| e.in_one_line();
    let (disk, memory) = (Scratch::on_disk().map_err(failed)?, Scratch::new().map_err(failed)?);
    let mut cluster = Cluster::start(plan, &jars, disk.path(), memory.path())?;
    let mut turns = Vec::new();
    let mut failures = 0;
    for round in 0..extent.rounds {
        for cell in &extent.cells {
            for at in 0..Variant::ALL.len() {
                ending::check()?;
                // A later round has another order.
                let variant = Variant::ALL[(at + round) % Variant::ALL.len()];
                let ran = cluster.turn(*cell, variant, extent.turn).map_err(|e| e.to_string());
                plan.say(&format!("{}, {}: {ran:?}", cell.name(), variant.name()));
                failures += usize::from(ran.is_err());
                turns.push(Turn { cell: *cell, variant, ran });
                if failures == MOST_FAILURES {
                    return Ok(turns);
                }
            }
        }
    }
    Ok(turns)
}

/// The running programs, in the order in which they end.
struct Cluster<'a> {
    client: Client,
    nodes: Nodes,
    agents: Agents,
    place: Place,
    jars: &'a Jars,
    scratch: &'a Path,
    /// The delay that the agent has noticed.
    delay_ms: f64,
}

impl<'a> Cluster<'a> {
    /// Starts all programs, loads the rows, and waits until the coordinator has a rank.
    fn start(plan: &Plan, jars: &'a Jars, scratch: &'a Path, memory: &Path) -> Outcome<Self> {
        let place = Place::up()?;
        let agents = Agents::start(&place, memory)?;
        plan.say("three nodes start …");
        let nodes = Nodes::start(&place, jars, scratch, agents.segments())?;
        let mut client = Client::start(&place, jars, scratch)?;
        plan.say("rows are loaded …");
        client.load()?;
        // Without a rank, all three are read: the disks are known after it.
        place.without_caches(WARM_UP, || client.run(WARM_UP.workload, WARM_UP_SECONDS))?;
        agents.wait_for_rank()?;
        Ok(Self { client, nodes, agents, place, jars, scratch, delay_ms: WARM_UP.delay_ms })
    }

    /// Takes a turn.
    fn turn(&mut self, cell: Cell, variant: Variant, length: Duration) -> Outcome<Ran> {
        let ran = self.attempt(cell, variant, length);
        // The end of a node is the reason of whatever else failed.
        self.nodes.check(self.scratch)?;
        ran
    }

    fn attempt(&mut self, cell: Cell, variant: Variant, length: Duration) -> Outcome<Ran> {
        if self.delay_ms != cell.delay_ms {
            self.place.set_delay(cell.delay_ms)?;
            self.delay_ms = cell.delay_ms;
            thread::sleep(NOTICE);
        }
        self.place.set_seek(cell.seek_ms)?;
        // Only a dynamic snitch takes a severity, and the coordinator may have that of Skopos from the last turn.
        self.client.snitch("stock")?;
        self.client.release()?;
        let mut severities = None;
        match variant {
            Variant::Stock => {}
            Variant::Jar => self.client.snitch("skopos")?,
            Variant::JarLess => {
                severities = Some(self.severities()?);
                self.client.gossip()?;
                // This one has seen no request either.
                self.client.snitch("stock")?;
            }
        }
        let Self { client, place, .. } = self;
        let run = || client.run(cell.workload, length.as_secs_f64());
        let ran = place.without_caches(cell, run);
        drop(severities);
        ran
    }

    /// Starts the program that sets the severities of all nodes, and waits until each node has one from the rank.
    fn severities(&self) -> Outcome<Process> {
        let path = self.scratch.join("severity");
        let mut command = self.place.lab.command(COORDINATOR, "java")?;
        command.args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
        command.arg(format!("-Dskopos.dir={}", self.agents.segments().display()));
        command.arg("-jar").arg(self.jars.severity()).args(["severity", "cassandra"]);
        let mut addresses = Vec::new();
        for node in NODES {
            addresses.push(format!("{}:7199", self.place.address(node)?));
        }
        command.args(&addresses);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&path)?);
        let mut running = Process::start(&mut command)?;
        let missing = || {
            let said = fs::read_to_string(&path).unwrap_or_default();
            without_severity(&said, &addresses)
        };
        let all_are_set = || missing().is_none().then_some(());
        wait_for(&mut running, START, all_are_set).map_err(|why| {
            let missing = missing().unwrap_or_default();
            format!("the severities are not set: {why}; {missing}")
        })?;
        Ok(running)
    }
}

/// Returns the first address whose node has no severity from a rank, with the last line about it; `None` if all have one. The
/// program writes `ADDRESS: severity NUMBER`, with `: REASON` behind it where there is no score, each time that it changes.
fn without_severity(said: &str, addresses: &[String]) -> Option<String> {
    // The last line may not be complete.
    let lines = said.rsplit_once('\n').map_or("", |(whole, _)| whole);
    addresses.iter().find_map(|address| {
        let about = lines.lines().rfind(|line| line.contains(&format!("{address}: ")));
        let Some(line) = about else {
            let last = lines.lines().next_back().unwrap_or("the program says nothing");
            return Some(format!("nothing is said of {address}; last: {last}"));
        };
        let number = line.strip_prefix(&format!("{address}: severity "));
        let is_set = number.is_some_and(|number| number.parse::<f64>().is_ok());
        (!is_set).then(|| line.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn severities_are_set_once_each_node_has_one_from_the_rank() {
        let addresses = ["10.77.0.1:7199", "10.77.0.2:7199"].map(str::to_owned);
        let one = "10.77.0.1:7199: severity 0.00";
        let refused = "warning: 10.77.0.2:7199: InstanceNotFoundException: no snitch; trying again";
        let stale = "10.77.0.2:7199: severity 0.00: the rank is too old";
        let two = "10.77.0.2:7199: severity 4.25";
        for (lines, expected) in [
            (vec![one, two], None),
            (vec![one, stale, refused, two], None),
            // The lines of a node do not count for another one.
            (vec![one, "10.77.0.1:7199: severity 0.31", refused], Some(refused)),
            (vec![one, two, stale], Some(stale)),
            (vec![], Some("nothing is said of 10.77.0.1:7199; last: the program says nothing")),
        ] {
            let said: String = lines.iter().map(|line| format!("{line}\n")).collect();
            assert_eq!(without_severity(&said, &addresses).as_deref(), expected, "{said}");
        }
        let cut = format!("{one}\n10.77.0.2:7199: severity 4");
        assert!(without_severity(&cut, &addresses).is_some(), "the second line is not complete");
    }
}
