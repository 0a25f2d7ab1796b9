//! This machine: an agent on host `a` of a lab, loads, injected faults, and the receiver of its reports.

use std::any::Any;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write as _};
use std::net::UdpSocket;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use skopos_net::anomaly::{Receiver, SiteKey};
use skopos_net::lab::Lab;
use skopos_shm::{Host, Segment};
use skopos_term::Failure;

use super::faults::{Fault, Times, plan};
use super::inject::{FAULTS, Place, inject};
use super::loads::Loads;
use super::programs::{Outcome, PEER_PORT, start};
use super::tally::{Tally, Unusual};
use crate::child::{Process, wait_for};
use crate::ending;
use crate::plan::Plan;
use crate::programs;
use crate::report::Row;
use crate::scratch::Scratch;

/// The port at which `iperf3` of host `b` listens for the flow that always runs.
const FLOW_PORT: u16 = 5201;

/// The rate of the flow that always runs.
const FLOW: &str = "8M";

/// The seed of faults and loads. No other was tried before the detectors were as they are.
const SEED: u64 = 20_261_202;

/// An hour: a detector learns the usual range from 480 samples, which is every load once or more, then forty faults.
const FULL: Times = Times { warm_up: 720, spacing: 70.0, lasting: (12.0, 25.0) };
const EACH: usize = 5;

/// Five minutes, which find out whether it works: detectors have hardly begun to learn.
const SHORT: Times = Times { warm_up: 150, spacing: 20.0, lasting: (8.0, 10.0) };

/// The secret of the site.
const SECRET: &[u8] = b"the secret of the benchmark";

/// The time in which an agent starts.
const START: Duration = Duration::from_secs(20);

/// Longer than a packet.
const DATAGRAM: usize = 2048;

/// Beginnings of topics that are not judged by reports, and so not sent raw.
const NOT_JUDGED: [&str; 6] = ["self", "path", "port", "int_node", "telemetry", "anomaly_report"];

const CASE: &str = "this machine";

/// Returns rows and notes.
pub(super) fn measure(plan_of: &Plan) -> Outcome<(Vec<Row>, Vec<String>)> {
    let (times, each) = if plan_of.is_short { (SHORT, 1) } else { (FULL, EACH) };
    let faults = plan(SEED, each, times);
    let failed = |failure: Failure| failure.in_one_line();
    let scratch = (Scratch::new().map_err(failed)?, Scratch::on_disk().map_err(failed)?);
    let text = "name = 'anomaly'\n[[host]]\nname = 'a'\n[[host]]\nname = 'b'\n[[link]]\nends = ['a', 'b']\n";
    let lab = ending::lab(text)?;
    let mut peers = Vec::new();
    for port in [FLOW_PORT, PEER_PORT] {
        let mut server = lab.command("b", "iperf3")?;
        peers.push(start(server.args(["-s", "-p", &port.to_string()]))?);
    }
    thread::sleep(Duration::from_secs(1));
    let mut flow = lab.command("a", "iperf3")?;
    let to = lab.addresses("b")?.0.to_string();
    flow.args(["-c", &to, "-p", &FLOW_PORT.to_string(), "-b", FLOW, "-t", "36000"]);
    peers.push(start(&mut flow)?);
    let mut watched = Watched::start(&lab, scratch.0.path())?;
    let mut tally = Tally::new(&faults, |kind, name| {
        FAULTS[kind].1.iter().any(|begin| {
            name.strip_prefix(begin).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    });
    let mut failed = BTreeMap::new();
    watched.run(&lab, scratch.1.path(), (&faults, times), &mut tally, &mut failed)?;
    let names: Vec<&str> = FAULTS.iter().map(|(name, _)| *name).collect();
    let names = names.try_into().map_err(|_| "a name for each kind")?;
    let mut rows = tally.found(CASE, names);
    rows.push(tally.cost(CASE));
    rows.extend(tally.quiet(CASE));
    let mut notes = vec![
        "this machine: a fault counts as found by a report of a metric in which faults of its kind show themselves".to_owned(),
    ];
    notes.extend(
        failed.into_iter().map(|(kind, why)| format!("{kind} could not be injected: {why}")),
    );
    notes.extend(
        tally
            .false_names
            .iter()
            .map(|(name, times)| format!("false report: {name}, {times} times")),
    );
    Ok((rows, notes))
}

/// The agent with the receiver of its reports.
struct Watched {
    agent: Process,
    segment: Segment,
    socket: UdpSocket,
    receiver: Receiver,
    unusual: Unusual,
    /// The latest values by topic, to count changes.
    last: BTreeMap<String, f64>,
}

impl Watched {
    fn start(lab: &Lab, folder: &Path) -> Outcome<Self> {
        let socket = lab.namespace("a")?.run(|| Ok(UdpSocket::bind("127.0.0.1:0")))??;
        socket.set_nonblocking(true)?;
        let site = SiteKey::new(SECRET)?;
        let secret: String = site.node_secret("a").iter().map(|b| format!("{b:02x}")).collect();
        let (key, config, dir) =
            (folder.join("secret"), folder.join("agent.toml"), folder.join("a"));
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&key)?
            .write_all(secret.as_bytes())?;
        std::fs::create_dir(&dir)?;
        let to = socket.local_addr()?;
        std::fs::write(
            &config,
            format!(
                "[agent]\nnode = 'a'\nbudget = '5%'\n[sensors.default]\npolicy = 'fixed'\nmin_seconds = 1\n\
                 [telemetry.anomalies]\nsend_to = '{to}'\nsecret_file = '{}'\n",
                key.display()
            ),
        )?;
        let mut command = lab.command("a", programs::agent().map_err(|f| f.in_one_line())?)?;
        command.arg("--config").arg(&config).arg("--dir").arg(&dir);
        let mut agent = start(&mut command)?;
        let segment = wait_for(&mut agent, START, || {
            let host = Host::open_dirs(vec![dir.clone()]).ok()?;
            host.segments().first().cloned()
        })?;
        let (receiver, unusual) = (Receiver::new(site), Unusual::default());
        Ok(Self { agent, segment, socket, receiver, unusual, last: BTreeMap::new() })
    }

    /// Runs loads and faults, and judges reports.
    fn run(
        &mut self,
        lab: &Lab,
        folder: &Path,
        (faults, times): (&[Fault], Times),
        tally: &mut Tally<'_>,
        failed: &mut BTreeMap<&'static str, String>,
    ) -> Outcome<()> {
        let place = Place { lab, folder };
        let mut loads = Loads::new(SEED);
        let begin = Instant::now();
        let end = faults.last().map_or(0, |fault| fault.end) + 60;
        let mut waiting = faults.iter();
        let mut next = waiting.next();
        let mut now: Option<(i64, Box<dyn Any>)> = None;
        for second in 0..end {
            if !self.agent.runs() {
                return Err("the agent ended while it was measured".into());
            }
            loads.run(second as f64, lab, folder)?;
            if now.as_ref().is_some_and(|(end, _)| *end <= second) {
                now = None;
            }
            let due = Duration::from_secs(second.unsigned_abs());
            while begin.elapsed() < due {
                // Faults begin between two seconds.
                if let Some(fault) = next.filter(|f| f.begin <= begin.elapsed().as_secs_f64()) {
                    match inject(fault, &place) {
                        Ok(guard) => now = Some((fault.end, guard)),
                        Err(e) => drop(failed.insert(FAULTS[fault.kind].0, e.to_string())),
                    }
                    next = waiting.next();
                }
                let packets = self.receive(begin, times, tally)?;
                if second >= times.warm_up {
                    tally.bytes(&packets);
                }
                thread::sleep(Duration::from_millis(10));
            }
            let changed = self.changed();
            if second >= times.warm_up {
                tally.second(second, changed);
            }
        }
        drop(now);
        Ok(())
    }

    /// Takes the reports that have come. Returns the bytes of each.
    fn receive(
        &mut self,
        begin: Instant,
        times: Times,
        tally: &mut Tally<'_>,
    ) -> Outcome<Vec<usize>> {
        let (mut buffer, mut packets) = ([0; DATAGRAM], Vec::new());
        loop {
            match self.socket.recv_from(&mut buffer) {
                Ok((bytes, from)) => {
                    packets.push(bytes);
                    let report = self.receiver.take(from, &buffer[..bytes], skopos_shm::now())?;
                    let new = self.unusual.note(&report);
                    let at = begin.elapsed().as_secs_f64();
                    if !new.is_empty() && at >= times.warm_up as f64 {
                        tally.judge(at, &new);
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(packets),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(io::Error::new(e.kind(), "receive reports").into()),
            }
        }
    }

    /// Number of judged values that have changed since the last call.
    fn changed(&mut self) -> u64 {
        let mut changed = 0;
        for vertex in self.segment.vertices() {
            let Some((_, name)) = vertex.topic().as_str().split_once('/') else { continue };
            let first = name.split('/').next().unwrap_or_default();
            let value = vertex.peek().ok().and_then(|reading| reading.as_f64());
            let Some(value) = value.filter(|_| !NOT_JUDGED.contains(&first)) else { continue };
            if self.last.insert(name.to_owned(), value).is_none_or(|last| last != value) {
                changed += 1;
            }
        }
        changed
    }
}
