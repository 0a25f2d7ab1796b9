//! A hub or simulated nodes, started as a user starts them.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use skopos_access::Names;
use skopos_query::Limits;
use skopos_query::arrow::array::AsArray as _;
use skopos_query::arrow::compute::cast;
use skopos_query::arrow::datatypes::{DataType, Float64Type};

use crate::agent::place::Place;
use crate::child::{Process, wait_for};
use skopos_hub::client::ask;
use skopos_hub::messages::socket_path;
use skopos_term::Failure;
use skopos_wire::Authority;

/// The longest time until a role is ready.
const START: Duration = Duration::from_secs(20);

/// A port of the loopback that was free just now.
pub(super) fn endpoint() -> Result<String, Failure> {
    Transport::Clear.endpoint()
}

/// The connection of nodes with their hub.
#[derive(Clone, Debug)]
pub(super) enum Transport {
    /// In clear text: `--insecure`.
    Clear,
    /// With TLS and signed messages. The folder has the authority of the site.
    Certified(PathBuf),
}

impl Transport {
    /// Makes the certificates of a site, for a hub on the loopback.
    pub(super) fn certified(folder: PathBuf) -> Result<Self, Failure> {
        let names = Names { site: "default".to_owned(), node: "hub".to_owned(), is_hub: true };
        Authority::create(&folder, &names, &["127.0.0.1".to_owned()])
            .map_err(|e| Failure::new("no certificates can be made").because(&e))?;
        Ok(Self::Certified(folder))
    }

    /// The options of a role.
    pub(super) fn options(&self) -> Vec<String> {
        match self {
            Self::Clear => vec!["--insecure".to_owned()],
            Self::Certified(folder) => {
                vec!["--identity".to_owned(), folder.display().to_string()]
            }
        }
    }

    fn endpoint(&self) -> Result<String, Failure> {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
        let port = port.map_err(|e| Failure::new("no port is free").because(&e))?.port();
        let scheme = if matches!(self, Self::Clear) { "tcp" } else { "tls" };
        Ok(format!("{scheme}/127.0.0.1:{port}"))
    }
}

/// Starts the program of `place` with its output in a file, and returns both.
pub(super) fn start(
    place: &Place,
    dir: &Path,
    args: &[&str],
) -> Result<(Process, PathBuf), Failure> {
    let broken = |e: std::io::Error| Failure::new(format!("cannot start {}", args[0])).because(&e);
    let log = dir.with_extension("log");
    let mut command = Command::new(&place.program);
    command.arg("--json").arg("--dir").arg(dir).args(args);
    command.env_remove(skopos_shm::DIR_VARIABLE);
    command.stdin(Stdio::null()).stdout(File::create(&log).map_err(broken)?);
    command.stderr(File::create(dir.with_extension("err")).map_err(broken)?);
    Ok((Process::start(&mut command).map_err(broken)?, log))
}

/// A hub that follows all nodes that connect to it. Ends when dropped.
pub(super) struct Hub {
    pub(super) process: Process,
    dir: PathBuf,
    pub(super) at: String,
    transport: Transport,
}

impl Hub {
    pub(super) fn start(place: &Place, name: &str) -> Result<Self, Failure> {
        Self::start_with(place, name, Transport::Clear)
    }

    pub(super) fn start_with(
        place: &Place,
        name: &str,
        transport: Transport,
    ) -> Result<Self, Failure> {
        let at = transport.endpoint()?;
        Self::start_at(place, place.memory.dir(name)?, at, transport)
    }

    fn start_at(
        place: &Place,
        dir: PathBuf,
        at: String,
        transport: Transport,
    ) -> Result<Self, Failure> {
        let options = transport.options();
        // Two hubs at one time would share the default ports.
        let mut args = vec!["hub", "--http", "none", "--flight", "none", "--listen", &at];
        args.extend(options.iter().map(String::as_str));
        let (mut process, _) = start(place, &dir, &args)?;
        let open = || UnixStream::connect(socket_path(&dir)).ok();
        wait_for(&mut process, START, open)
            .map_err(|why| Failure::new(format!("the hub does not answer: {why}")))?;
        Ok(Self { process, dir, at, transport })
    }

    /// Kills it, and starts another in its place.
    pub(super) fn start_again(mut self, place: &Place) -> Result<Self, Failure> {
        self.process.kill()?;
        let Self { dir, at, process, transport, .. } = self;
        drop(process);
        let _ = std::fs::remove_file(socket_path(&dir));
        Self::start_at(place, dir, at, transport)
    }

    /// The only number of the answer; `None` if the answer is NULL or empty.
    pub(super) fn number(&self, sql: &str) -> Result<Option<f64>, Failure> {
        // A hub closes a connection that is idle for long.
        let socket = UnixStream::connect(socket_path(&self.dir));
        let socket = socket.map_err(|e| Failure::new("the hub does not answer").because(&e))?;
        let answer = ask(&socket, sql, &Limits::default())?;
        let first = answer.batches.iter().find(|batch| batch.num_rows() > 0);
        let column = first.map(|batch| cast(batch.column(0), &DataType::Float64)).transpose();
        let column = column.map_err(|e| Failure::new("an answer without a number").because(&e))?;
        Ok(column.and_then(|column| column.as_primitive::<Float64Type>().iter().next().flatten()))
    }

    /// Asks until the number is at least this, and returns the time until then.
    pub(super) fn until(
        &self,
        sql: &str,
        least: f64,
        patience: Duration,
    ) -> Result<Duration, Failure> {
        /// Time between two requests: a hundredth of the measured time, and little work for the hub.
        const PAUSE: Duration = Duration::from_millis(10);
        let begun = Instant::now();
        loop {
            let number = self.number(sql)?;
            if number.is_some_and(|number| number >= least) {
                return Ok(begun.elapsed());
            }
            if begun.elapsed() > patience {
                let message = format!("{sql} gives {number:?} and not {least} after {patience:?}");
                return Err(Failure::new(message));
            }
            std::thread::sleep(PAUSE);
        }
    }
}
