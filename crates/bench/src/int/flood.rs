//! The cost of a flood of forged reports to an agent: telemetry reports, and anomaly reports of hosts.
//!
//! An agent with both listeners runs as users start it. A thread sends reports of the right form, with the tag of another
//! site, to one of the listeners as fast as it may. The processor time is that of the threads that receive.

use std::fs::{self, File};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use skopos_net::Key;
use skopos_net::anomaly::{Entry, Header, NodeKey, Packet, Severity};

use super::collector::datagram;
use super::setting::Outcome;
use crate::agent::usage::threads_of;
use crate::child::{Process, wait_for};
use crate::plan::Plan;
use crate::programs;
use crate::report::{Better, Goal, Row};
use crate::scratch::Scratch;
use crate::stats::median;

/// The name of the threads that receive.
const THREAD: &str = "skopos-net";

/// The most of a core that a flood may cost, in percent: after work that was refused, a thread rests four times as long.
const GOAL_PERCENT: f64 = 20.0;

/// The time of a flood.
const FLOOD: Duration = Duration::from_secs(3);

/// The longest time until the agent listens.
const START: Duration = Duration::from_secs(20);

pub(super) fn measure(plan: &Plan) -> Outcome<Vec<Row>> {
    let scratch = Scratch::on_disk().map_err(|failure| failure.in_one_line())?;
    let agent = Agent::start(scratch.path())?;
    let other = Key::new(b"the key of another site").ok_or("the key is too short")?;
    let telemetry = datagram(1, 1, Some(&other));
    let mut rows = Vec::new();
    for (what, to, forged) in [
        ("telemetry reports", agent.telemetry, telemetry),
        ("anomaly reports", agent.anomalies, anomaly_report()),
    ] {
        let (mut rates, mut shares) = (Vec::new(), Vec::new());
        for _ in 0..plan.rounds {
            let (rate, share) = agent.under_flood(to, &forged)?;
            rates.push(rate);
            shares.push(share * 100.0);
        }
        let case = format!("flood of forged {what} at an agent");
        rows.extend([
            Row::new(&*case, "datagrams", "/s", median(&rates), Better::Neither)
                .rounds("skopos", &rates),
            Row::new(case, "threads that receive", "% of a core", median(&shares), Better::Lower)
                .rounds("skopos", &shares)
                .goal(Goal::AtMost(GOAL_PERCENT)),
        ]);
    }
    Ok(rows)
}

/// An agent that collects telemetry reports and anomaly reports. Ends when dropped.
struct Agent {
    process: Process,
    telemetry: SocketAddr,
    anomalies: SocketAddr,
}

impl Agent {
    fn start(folder: &Path) -> Outcome<Self> {
        let (telemetry, anomalies) = (free_address()?, free_address()?);
        let (key, config) = (folder.join("site.key"), folder.join("skopos.toml"));
        fs::write(&key, "the key of this site\n")?;
        fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        let text = format!(
            "[telemetry]\nkey_file = 'site.key'\n[telemetry.collector]\nlisten = '{telemetry}'\n\
             [telemetry.anomalies]\nlisten = '{anomalies}'\n"
        );
        fs::write(&config, text)?;
        let program = programs::skopos().map_err(|failure| failure.in_one_line())?;
        let mut command = Command::new(program);
        command.args(["agent", "--node", "flooded", "--config"]).arg(&config);
        command.env(skopos_shm::DIR_VARIABLE, folder.join("run"));
        command.env("SKOPOS_STATE", folder.join("state"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(folder.join("agent.log"))?);
        let mut agent = Self { process: Process::start(&mut command)?, telemetry, anomalies };
        for address in [telemetry, anomalies] {
            let socket = connected(address)?;
            // A port without a listener refuses the datagram before.
            let listens = || {
                let sent = socket.send(&[0]).and_then(|_| {
                    std::thread::sleep(Duration::from_millis(10));
                    socket.send(&[0])
                });
                sent.ok()
            };
            wait_for(&mut agent.process, START, listens)?;
        }
        Ok(agent)
    }

    /// Returns datagrams a second, and the share of a core that the threads that receive used.
    fn under_flood(&self, to: SocketAddr, forged: &[u8]) -> Outcome<(f64, f64)> {
        let socket = connected(to)?;
        let used = || -> Outcome<u64> {
            let threads = threads_of(self.process.pid())?;
            Ok(*threads.get(THREAD).ok_or("the agent has no thread that receives")?)
        };
        let (begin, before, mut sent) = (Instant::now(), used()?, 0u64);
        while begin.elapsed() < FLOOD {
            socket.send(forged)?;
            sent += 1;
        }
        let (wall, used) = (begin.elapsed().as_secs_f64(), used()? - before);
        Ok((sent as f64 / wall, used as f64 / 1e9 / wall))
    }
}

/// A report of a node of another site, as fresh as a true one.
fn anomaly_report() -> Vec<u8> {
    let header = Header { node: 7, session: 1, sequence: 1, at: skopos_shm::now() };
    let (seen, low, high, age_tenths) = (60.0, 0.0, 2.0, 5);
    let entry = Entry { id: 1, severity: Severity::Extreme, seen, low, high, age_tenths };
    let packet = Packet { header, held: 0, names: Vec::new(), entries: vec![entry] };
    let mut bytes = Vec::new();
    packet.encode(&NodeKey::new(&[7; 32]), &mut bytes);
    bytes
}

fn free_address() -> Outcome<SocketAddr> {
    Ok(UdpSocket::bind("127.0.0.1:0")?.local_addr()?)
}

fn connected(to: SocketAddr) -> Outcome<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(to)?;
    Ok(socket)
}
