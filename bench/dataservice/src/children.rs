//! Processes of a case, which this one starts, listens to, and ends.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use skopos_rpc::Stage;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::load::Size;
use crate::process::{READY, Work};

/// The longest wait for a line of a process: it only ends a hang. The longest case takes seconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The pause between two looks at a process that shall end.
const PAUSE: Duration = Duration::from_millis(5);

/// A process of a case. It is ended when this is dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

/// The program and the settings that all processes of a case share.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// Path of the program `skopos-dataservice`.
    pub program: PathBuf,
    /// The amount that is recorded.
    pub stage: Stage,
    /// Folder of traces.
    pub trace: Option<PathBuf>,
    /// Folder of the recorders' segments, instead of the runtime directory.
    pub segments: Option<PathBuf>,
    /// Whether performance variables are left out.
    pub without_variables: bool,
    /// The collector of the recorder that the program brings, which records instead of Skopos.
    pub collector: Option<String>,
    /// The knobs.
    pub config: Config,
}

impl Launcher {
    /// Starts the server number `number` at the socket `path`, and waits until it can work.
    ///
    /// # Errors
    /// The process cannot be started, or ends before.
    pub fn server(&self, number: u32, path: &Path) -> Result<Process> {
        let mut command = self.command("server", &format!("server-{number}"), number)?;
        command.arg("--socket").arg(path);
        Process::start(command, format!("server-{number}"))
    }

    /// Starts the client number `number` of the servers at `paths`, and waits until it is connected.
    ///
    /// # Errors
    /// The process cannot be started, or ends before.
    pub fn client(
        &self,
        number: u32,
        work: Work,
        size: &Size,
        paths: &[PathBuf],
    ) -> Result<Process> {
        let mut command = self.command("client", &format!("client-{number}"), number)?;
        command.args(["--load", &json(&work)?.replace('"', ""), "--size", &json(size)?]);
        for path in paths {
            command.arg("--server").arg(path);
        }
        Process::start(command, format!("client-{number}"))
    }

    fn command(&self, verb: &str, name: &str, number: u32) -> Result<Command> {
        let mut command = Command::new(&self.program);
        command.args([verb, "--with-parent", "--name", name, "--stage", self.stage.name()]);
        command.args(["--number", &number.to_string(), "--config", &json(&self.config)?]);
        if let Some(folder) = &self.trace {
            command.arg("--trace").arg(folder);
        }
        if let Some(folder) = &self.segments {
            command.arg("--segments").arg(folder);
        }
        if self.without_variables {
            command.arg("--without-variables");
        }
        if let Some(collector) = &self.collector {
            command.args(["--collector", collector]);
        }
        Ok(command)
    }
}

impl Process {
    fn start(mut command: Command, name: String) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(Error::io("start a process of the case"))?;
        let input = child.stdin.take();
        let output = child.stdout.take();
        let (sender, lines) = std::sync::mpsc::channel();
        // Reads until the process ends, so that the wait for a line can have an end as well.
        std::thread::spawn(move || {
            let lines = output.into_iter().flat_map(|output| BufReader::new(output).lines());
            for line in lines.map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let process = Self { name, child, input, lines };
        let line = process.line()?;
        if line != READY {
            return Err(process.failure(&format!("it printed `{line}` instead of `{READY}`")));
        }
        Ok(process)
    }

    /// Id of the process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line that the process prints.
    ///
    /// # Errors
    /// The process ends before, or prints nothing for two minutes.
    pub fn line(&self) -> Result<String> {
        self.lines.recv_timeout(PATIENCE).map_err(|error| {
            self.failure(match error {
                RecvTimeoutError::Timeout => "it printed nothing for two minutes",
                RecvTimeoutError::Disconnected => "it ended; its messages say why",
            })
        })
    }

    /// Gives the process a line.
    ///
    /// # Errors
    /// The process has ended.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        let told = self.input.as_mut().map(|input| writeln!(input, "{line}"));
        match told {
            Some(Ok(())) => Ok(()),
            _ => Err(self.failure("it ended; its messages say why")),
        }
    }

    /// Closes the input of the process, and waits until it ends.
    ///
    /// # Errors
    /// It fails, or does not end within two minutes.
    pub fn wait(&mut self) -> Result<()> {
        self.input = None;
        let begin = Instant::now();
        loop {
            match self.child.try_wait().map_err(Error::io("wait for a process"))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(self.failure(&format!("{status}"))),
                None if begin.elapsed() > PATIENCE => {
                    return Err(self.failure("it did not end within two minutes"));
                }
                None => std::thread::sleep(PAUSE),
            }
        }
    }

    /// Ends the process at once.
    pub fn kill(&mut self) {
        // Fails only if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn failure(&self, reason: &str) -> Error {
        Error::Child { name: self.name.clone(), reason: reason.to_owned() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn json(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|source| Error::Json { doing: "write the options of a process", source })
}
