//! The client: YCSB in a Java process, which takes commands by lines.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Stdio};

use serde::Deserialize;

use super::nodes::{Jars, last_words};
use super::place::{CLIENT, COORDINATOR, NODES, Place};
use crate::child::Process;
use crate::outcome::Outcome;

/// The version in `bench/cassandra/pom.xml`.
pub(super) const VERSION: &str = "0.17.0";

/// Rows of a kilobyte, as YCSB makes them.
pub(super) const ROWS: u32 = 20_000;

/// Threads that each have one request under way: more would queue for the two processors of a small machine.
const THREADS: u32 = 4;

/// The result of a turn, in the words of the client.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Ran {
    pub(super) operations: u64,
    pub(super) failures: u64,
    pub(super) seconds: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    cold_reads: [u64; NODES.len()],
    reads: [u64; NODES.len()],
}

impl Ran {
    /// Returns the percentage of reads that the fast replica served; `None` if there were none.
    pub(super) fn fast_percent(&self) -> Option<f64> {
        fast_percent(self.reads)
    }

    /// Returns the percentage of reads that the slow replicas served in the first five seconds.
    pub(super) fn cold_slow_percent(&self) -> Option<f64> {
        fast_percent(self.cold_reads).map(|fast| 100.0 - fast)
    }
}

/// The client names the coordinator first, and the fast replica after it.
fn fast_percent(reads: [u64; NODES.len()]) -> Option<f64> {
    let all: u64 = reads.iter().sum();
    (all > 0).then(|| 100.0 * reads[1] as f64 / all as f64)
}

/// The running client. It ends when this is dropped.
pub(super) struct Client {
    _process: Process,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    folder: PathBuf,
}

impl Client {
    pub(super) fn start(place: &Place, jars: &Jars, scratch: &Path) -> Outcome<Self> {
        let folder = scratch.join("client");
        fs::create_dir_all(&folder)?;
        let mut command = place.lab.command(CLIENT, "java")?;
        command.args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
        let log = "-Dlogback.configurationFile=";
        command.arg(format!("{log}{}", scratch.join(COORDINATOR).join("logback.xml").display()));
        command.args(["-cp", &jars.class_path(), "io.skopos.bench.Client"]);
        for node in [COORDINATOR, NODES[0], NODES[2]] {
            command.arg(place.address(node)?);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(File::create(folder.join("err"))?);
        let mut process = Process::start(&mut command)?;
        let pipes = (process.inner().stdin.take(), process.inner().stdout.take());
        let (Some(input), Some(output)) = pipes else {
            return Err("the client has no pipes".into());
        };
        let output = BufReader::new(output);
        let mut client = Self { _process: process, input, output, folder };
        client.expect("ready")?;
        Ok(client)
    }

    /// Makes the table and fills it.
    pub(super) fn load(&mut self) -> Outcome<()> {
        self.ask(&format!("load {ROWS}"))
    }

    /// Gives the coordinator a new snitch: `stock` or `skopos`.
    pub(super) fn snitch(&mut self, kind: &str) -> Outcome<()> {
        self.ask(&format!("snitch {kind}"))
    }

    /// Sets all severities to 0, and waits until the coordinator knows it. The coordinator has the stock snitch.
    pub(super) fn release(&mut self) -> Outcome<()> {
        self.ask("release")
    }

    /// Waits until the coordinator knows the severities of all nodes. It has the stock snitch.
    pub(super) fn gossip(&mut self) -> Outcome<()> {
        self.ask("gossip")
    }

    /// Runs a workload.
    pub(super) fn run(&mut self, workload: char, seconds: f64) -> Outcome<Ran> {
        self.send(&format!("run {workload} {ROWS} {THREADS} {seconds}"));
        let line = self.line()?;
        serde_json::from_str(&line).map_err(|_| line.into())
    }

    fn ask(&mut self, command: &str) -> Outcome<()> {
        self.send(command);
        self.expect("done")
    }

    fn send(&mut self, command: &str) {
        // A client that has ended takes no command. The end of its output then says so, with the reason.
        let _ = writeln!(self.input, "{command}");
    }

    fn expect(&mut self, word: &str) -> Outcome<()> {
        let line = self.line()?;
        if line == word { Ok(()) } else { Err(line.into()) }
    }

    /// Returns the next answer.
    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err(format!("the client has ended{}", last_words(&self.folder)).into());
        }
        Ok(line.trim_end().to_owned())
    }
}
