//! The agents: that of the coordinator ranks the replicas, the others answer its probes.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use skopos_shm::Host;

use super::nodes::last_words;
use super::place::{COORDINATOR, NODES, Place};
use crate::child::Process;
use crate::ending;
use crate::outcome::Outcome;
use crate::programs;

/// The port at which agents answer probes.
const PORT: u16 = 7361;

/// Time for an agent to see the disks of all replicas.
const START: Duration = Duration::from_secs(60);

/// The running agents. They end when this is dropped.
pub(super) struct Agents {
    _running: Vec<Process>,
    segments: PathBuf,
}

impl Agents {
    pub(super) fn start(place: &Place, scratch: &Path) -> Outcome<Self> {
        let mut running = Vec::new();
        let mut segments = PathBuf::new();
        for node in NODES {
            let folder = scratch.join(format!("agent-{node}"));
            let own = folder.join("segments");
            fs::create_dir_all(&own)?;
            let config = folder.join("skopos.toml");
            fs::write(&config, configuration(place, node)?)?;
            let program = programs::agent().map_err(|e| e.in_one_line())?;
            let mut command = place.lab.command(node, program)?;
            command.args(["--node", node]).arg("--config").arg(&config);
            command.env("SKOPOS_DIR", &own).env("SKOPOS_STATE", folder.join("state"));
            command.stdin(Stdio::null()).stdout(Stdio::null());
            command.stderr(File::create(folder.join("err"))?);
            running.push(Process::start(&mut command)?);
            if node == COORDINATOR {
                segments = own;
            }
        }
        Ok(Self { _running: running, segments })
    }

    /// Returns the folder with the segments of the coordinator's agent.
    pub(super) fn segments(&self) -> &Path {
        &self.segments
    }

    /// Waits until the agent ranks all replicas by what it measured.
    pub(super) fn wait_for_rank(&self) -> Outcome<()> {
        let since = Instant::now();
        loop {
            ending::check()?;
            let host = Host::open_dirs(vec![self.segments.clone()])?;
            let native = host.lookup(&format!("{COORDINATOR}/rank_profile/cassandra/native"));
            let native = native.ok().and_then(|vertex| vertex.latest().ok()?.as_f64());
            let is_unknown = |node: &&&str| {
                let read = host.lookup(&format!("{COORDINATOR}/insight/read/{node}"));
                read.ok().and_then(|vertex| vertex.latest().ok()?.as_f64()).is_none()
            };
            let unknown: Vec<&str> = NODES.iter().filter(is_unknown).copied().collect();
            if native == Some(0.0) && unknown.is_empty() {
                return Ok(());
            }
            if since.elapsed() > START {
                let why = match unknown.is_empty() {
                    true => "it publishes no valid rank".to_owned(),
                    false => format!("it does not know the read times of {}", unknown.join(", ")),
                };
                let said = self.segments.parent().map_or_else(String::new, last_words);
                return Err(format!("the agent has no rank: {why}{said}").into());
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Returns the configuration of an agent. The time of a read is that of the round trip and of two reads, of the index and of the
/// row, as far as they go to the disk. The shortest of several round trips is that of the network, and not of a busy processor.
fn configuration(place: &Place, node: &str) -> Outcome<String> {
    let mut text = format!("[agent]\nnode = '{node}'\n");
    if node != COORDINATOR {
        write!(text, "[peers]\nlisten = '{}:{PORT}'\n", place.address(node)?)?;
        return Ok(text);
    }
    let others = NODES.iter().filter(|other| **other != COORDINATOR);
    let mut peers = Vec::new();
    for other in others.clone() {
        peers.push(format!("{other} = '{}:{PORT}'", place.address(other)?));
    }
    write!(text, "[peers]\nnodes = {{ {} }}\ninterval = '500ms'\n", peers.join(", "))?;
    text += "[sensors.peer]\npolicy = 'fixed'\nmin_seconds = 0.5\n";
    text += "[host]\npage_cache_hits = true\n";
    for sensor in ["block_latency", "page_cache_hits"] {
        writeln!(text, "[sensors.{sensor}]\npolicy = 'fixed'\nmin_seconds = 0.5")?;
    }
    for other in others {
        write!(
            text,
            "[[insight]]\nname = 'trip/{other}'\nsql = \"SELECT min(value) FROM samples \
             WHERE topic = '{COORDINATOR}/peer/{other}/rtt_seconds' AND time > now() - INTERVAL '5 s'\"\n"
        )?;
    }
    for replica in NODES {
        let sql = read_time(place, replica)?;
        write!(text, "[[insight]]\nname = 'read/{replica}'\nunit = 'seconds'\nsql = \"{sql}\"\n")?;
    }
    let mut candidates = Vec::new();
    for replica in NODES {
        candidates.push(format!("{{ name = '{}', node = '{replica}' }}", place.address(replica)?));
    }
    write!(
        text,
        "[[rank]]\ncandidates = [{}]\nevery = '500ms'\n[rank.profile]\nname = 'cassandra'\nmethod = 'latency'\n\
         [[rank.profile.metrics]]\nname = 'read'\nsubject = 'latency'\ntopic = '{{self}}/insight/read/{{node}}'\n\
         floor = 5e-4\nmax_age_seconds = 3600\n",
        candidates.join(", ")
    )?;
    Ok(text)
}

/// Returns the statement for the time of a read from a replica.
fn read_time(place: &Place, replica: &str) -> Outcome<String> {
    let mount = place.disk(replica)?.display().to_string();
    // Topics have the mount point without its first `/`, and `:` for the others.
    let mount = mount.trim_start_matches('/').replace('/', ":");
    let device = place.device(replica)?;
    let topic = |rest: &str| format!("topic = '{COORDINATOR}/{rest}'");
    let trip = topic(&format!("insight/trip/{replica}"));
    let disk = topic(&format!("block_latency/{device}/read_latency_seconds_p50"));
    let hits = topic(&format!("page_cache_hits/{mount}/hit_ratio"));
    let of = |topic: &str| format!("sum(value) FILTER (WHERE {topic})");
    let mut sql = format!("2 * {} * (1 - {})", of(&disk), of(&hits));
    if replica != COORDINATOR {
        sql = format!("{} + {sql}", of(&trip));
    }
    let trip = if replica == COORDINATOR { String::new() } else { format!(" OR {trip}") };
    Ok(format!("SELECT {sql} FROM latest WHERE {disk} OR {hits}{trip}"))
}
