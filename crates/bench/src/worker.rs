//! The other process of a measurement: this binary again, with a role as its argument.
//!
//! A worker prints one JSON document on each line of its standard output, and takes an empty line on
//! its standard input for "go on". It ends when its role is finished, when its input ends, or when
//! its parent kills it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::child::Process;
use skopos_term::Failure;

/// The work of a worker, with its parameters.
pub(crate) trait Role: Serialize + DeserializeOwned {
    /// The name of the role, which must be unique.
    const NAME: &'static str;

    /// Does the work.
    fn work(self, line: &Line) -> Result<(), Failure>;
}

/// The argument of a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    /// [`Role::NAME`].
    pub(crate) role: String,
    /// The parameters of the role.
    pub(crate) parameters: Json,
}

/// The worker's side of the connection to its parent.
#[derive(Debug)]
pub(crate) struct Line;

impl Line {
    /// Sends a message to the parent.
    pub(crate) fn send(&self, message: &impl Serialize) -> Result<(), Failure> {
        let mut text = serde_json::to_vec(message).map_err(std::io::Error::from)?;
        text.push(b'\n');
        let mut stdout = std::io::stdout().lock();
        Ok(stdout.write_all(&text).and_then(|()| stdout.flush())?)
    }

    /// Waits until the parent sends "go on", or has ended.
    pub(crate) fn wait(&self) {
        let _ = std::io::stdin().lock().read_line(&mut String::new());
    }
}

/// A worker, from its parent's side. Ends when dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    process: Process,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts a worker in this role.
    pub(crate) fn start<R: Role>(role: &R) -> Result<Self, Failure> {
        let broken = |e: std::io::Error| Failure::new("cannot start a worker").because(&e);
        let parameters = serde_json::to_value(role).map_err(|e| broken(e.into()))?;
        let task = Task { role: R::NAME.to_owned(), parameters };
        let text = serde_json::to_string(&task).map_err(|e| broken(e.into()))?;
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

    /// Receives the worker's next message.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
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
