//! The other process of a measurement: this binary again, told by JSON what to do.
//!
//! A worker says one JSON document a line on its standard output, and takes an empty line on its
//! standard input for "go on". It ends when its task is done, when its input ends, or by its
//! parent's hand.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Command, ExitCode, Stdio};

use rustix::process::{Signal, set_parent_process_death_signal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::agent::bursts;
use super::child::Process;
use super::dag;
use super::score::{latest, memory, publish, subscribe};
use skopos_term::Failure;

/// What a worker can be told to do.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub(crate) enum Task {
    LatestSkopos(latest::SkoposWriter),
    LatestRedis(latest::RedisWriter),
    PublishSkopos(publish::SkoposLoad),
    PublishRedis(publish::RedisLoad),
    SubscribeSkopos(subscribe::SkoposPublisher),
    SubscribeRedis(subscribe::RedisPublisher),
    MemoryPublisher(memory::Filler),
    MemoryReader(memory::Cursors),
    DagSkopos(dag::SkoposDag),
    DagRedis(dag::RedisDag),
    Bursts(bursts::Bursts),
}

/// The worker's side of the line to its parent.
#[derive(Debug)]
pub(crate) struct Line(());

impl Line {
    /// Tells the parent something.
    pub(crate) fn say(&self, message: &impl Serialize) -> Result<(), Failure> {
        let mut text = serde_json::to_vec(message).map_err(std::io::Error::from)?;
        text.push(b'\n');
        let mut stdout = std::io::stdout().lock();
        Ok(stdout.write_all(&text).and_then(|()| stdout.flush())?)
    }

    /// Waits until the parent says "go on", or has gone.
    pub(crate) fn wait(&self) {
        let _ = std::io::stdin().lock().read_line(&mut String::new());
    }
}

/// Does what `task` says.
pub(crate) fn run(task: &str) -> Result<ExitCode, Failure> {
    // A parent that is killed must not leave a worker behind that publishes for ever.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let task: Task = serde_json::from_str(task)
        .map_err(|e| Failure::new("a worker is not started by hand").because(&e))?;
    let line = Line(());
    match task {
        Task::LatestSkopos(task) => task.work(&line),
        Task::LatestRedis(task) => task.work(&line),
        Task::PublishSkopos(task) => task.work(&line),
        Task::PublishRedis(task) => task.work(&line),
        Task::SubscribeSkopos(task) => task.work(&line),
        Task::SubscribeRedis(task) => task.work(&line),
        Task::MemoryPublisher(task) => task.work(&line),
        Task::MemoryReader(task) => task.work(&line),
        Task::DagSkopos(task) => task.work(&line),
        Task::DagRedis(task) => task.work(&line),
        Task::Bursts(task) => task.work(),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// A worker, seen by its parent. Ends when dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    process: Process,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Worker {
    pub(crate) fn start(task: &Task) -> Result<Self, Failure> {
        let broken = |e: std::io::Error| Failure::new("cannot start a worker").because(&e);
        let text = serde_json::to_string(task).map_err(|e| broken(e.into()))?;
        let exe = std::env::current_exe().map_err(broken)?;
        let mut command = Command::new(exe);
        command.args(["worker", "--task", &text]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(&mut command).map_err(broken)?;
        let stdin = process.inner().stdin.take();
        let stdout = process.inner().stdout.take();
        let stdout = stdout.ok_or_else(|| Failure::new("a worker without output"))?;
        Ok(Self { process, stdin, stdout: BufReader::new(stdout) })
    }

    /// The worker's next message.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let broken = |e: std::io::Error| Failure::new("a worker failed").because(&e);
        let mut line = String::new();
        self.stdout.read_line(&mut line).map_err(broken)?;
        serde_json::from_str(&line).map_err(|e| broken(e.into()))
    }

    /// Lets the worker go on.
    pub(crate) fn go_on(&mut self) -> Result<(), Failure> {
        let broken = |e: std::io::Error| Failure::new("a worker failed").because(&e);
        match &mut self.stdin {
            Some(stdin) => stdin.write_all(b"\n").map_err(broken),
            None => Ok(()),
        }
    }

    /// True unless it has ended.
    pub(crate) fn runs(&mut self) -> bool {
        self.process.runs()
    }
}
