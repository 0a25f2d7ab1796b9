//! The processes of the service: a server with its providers, and a client with its load.
//!
//! Both speak with the process that started them by lines: each prints `ready` once it can work, a client waits for a line
//! before its load begins, and prints its report as a line of JSON.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use skopos_rpc::Stage;

use crate::call::Provider;
use crate::client::keyvalue;
use crate::client::object::Objects;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::load::{self, Client, Report, Size};
use crate::origin::{Origin, Role};
use crate::pool::Pool;
use crate::probe::{Probe, Recording};
use crate::provider::document::Document;
use crate::provider::keyvalue::KeyValue;
use crate::provider::object::Object;
use crate::provider::sequencer::{Clients, Sequencer};
use crate::server::{Options, Server};
use crate::tracer::Tracer;

/// The line that says that a process can work.
pub const READY: &str = "ready";

/// Sleeps end this long after their time: the system's default of 50 us would be half of the shortest sleep.
const TIMER_SLACK_NS: u64 = 1;

/// Settings that each process has.
#[derive(Clone, Debug)]
pub struct Common {
    /// Name of the process in traces.
    pub name: String,
    /// Number among the processes of its kind, from 0.
    pub number: u32,
    /// The amount that is recorded.
    pub stage: Stage,
    /// Folder of traces.
    pub trace: Option<PathBuf>,
    /// Folder of the recorder's segment, instead of the runtime directory.
    pub segments: Option<PathBuf>,
    /// Whether performance variables are left out.
    pub without_variables: bool,
    /// The recorder that records instead of Skopos.
    pub other: Option<Arc<dyn Tracer>>,
    /// The knobs.
    pub config: Config,
}

/// The work of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// Events in batches into databases.
    Hepnos,
    /// Objects by name.
    Mobject,
    /// Batches of JSON documents.
    Sonata,
    /// Puts for as long as each line on the standard input says, in milliseconds.
    Steady,
}

/// Runs a server at the socket `path` until its last client has gone. `output` gets the line `ready`.
///
/// # Errors
/// The socket, the trace or a thread cannot be made.
pub fn serve(common: &Common, path: &PathBuf, output: &mut impl Write) -> Result<()> {
    common.config.check()?;
    sleep_precisely()?;
    let pool = Pool::start(&common.name, common.config.execution_streams)?;
    let probe = common.probe(&pool)?;
    let sequencer = Arc::new(Sequencer::default());
    let providers: [Arc<dyn Provider>; 4] = [
        Arc::new(KeyValue::new(&common.config, common.number)),
        Arc::new(Object::new(&common.config)),
        Arc::new(Document::default()),
        Arc::<Sequencer>::clone(&sequencer),
    ];
    let options = Options { name: &common.name, path, ends_with_clients: true };
    let mut server = Server::start(&options, &common.config, &providers, &probe, pool)?;
    // The sequencer calls the other providers of its own process, over a socket as any client does.
    let own = [path.clone()];
    let origin = Origin::connect(&common.name, Role::Server, &own, &common.config, &probe, None)?;
    let databases = common.config.databases_of(common.number);
    sequencer.connect(Clients {
        keyvalue: keyvalue::KeyValue::new(origin.caller(), databases),
        objects: Objects::new(origin.caller(), 0),
    });
    say(output, READY)?;
    server.wait();
    drop(origin);
    drop(server);
    probe.close()
}

/// Runs a client of the servers at `paths`. `input` has the line that begins the load, `output` gets `ready` and reports.
///
/// # Errors
/// A server ends or fails a call, or a trace or thread cannot be made.
pub fn consume(
    common: &Common,
    work: Work,
    size: &Size,
    paths: &[PathBuf],
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> Result<()> {
    common.config.check()?;
    sleep_precisely()?;
    let pool = Pool::start(&common.name, 1)?;
    let probe = common.probe(&pool)?;
    let tasks = pool.tasks();
    let shared = (!common.config.progress_thread).then_some(&tasks);
    let origin =
        Origin::connect(&common.name, Role::Client, paths, &common.config, &probe, shared)?;
    let client = Client {
        caller: origin.caller(),
        tasks: pool.tasks(),
        config: common.config.clone(),
        number: common.number,
    };
    say(output, READY)?;
    let mut line = String::new();
    while read(input, &mut line)? {
        let report = match work {
            Work::Hepnos => load::hepnos::run(&client, size)?,
            Work::Mobject => load::mobject::run(&client, size)?,
            Work::Sonata => load::sonata::run(&client, size)?,
            Work::Steady => load::steady::run(&client, size.writers, milliseconds(&line))?,
        };
        say(output, &text(&report)?)?;
        if work != Work::Steady {
            break;
        }
    }
    drop(client);
    // The progress loop is a task of the pool, so the pool ends after the connections.
    drop(origin);
    drop(pool);
    probe.close()
}

fn text(report: &Report) -> Result<String> {
    serde_json::to_string(report).map_err(|source| Error::Json { doing: "write a report", source })
}

/// The time that a line asks for; a line that is not a number asks for a second.
fn milliseconds(line: &str) -> Duration {
    Duration::from_millis(line.trim().parse().unwrap_or(1000))
}

fn read(input: &mut impl BufRead, line: &mut String) -> Result<bool> {
    line.clear();
    Ok(input.read_line(line).map_err(Error::io("read a command"))? > 0)
}

fn say(output: &mut impl Write, line: &str) -> Result<()> {
    writeln!(output, "{line}")
        .and_then(|()| output.flush())
        .map_err(Error::io("write to the process that started this one"))
}

/// Makes the threads that this one starts from now on wake from sleeps in time.
fn sleep_precisely() -> Result<()> {
    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(TIMER_SLACK_NS))
        .map_err(Error::system("set the timer slack"))
}

impl Common {
    fn probe(&self, pool: &Pool) -> Result<Arc<Probe>> {
        let recording = Recording {
            stage: self.stage,
            trace: self.trace.as_deref(),
            segments: self.segments.as_deref(),
            without_variables: self.without_variables,
            other: self.other.as_ref(),
        };
        Probe::start(&self.name, &recording, &self.config, &pool.tasks())
    }
}
