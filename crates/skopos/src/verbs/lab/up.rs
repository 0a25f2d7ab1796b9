//! `skopos lab up`: builds a lab, holds it, and removes it.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use skopos_agent::Signals;
use skopos_model::duration;
use skopos_net::lab::{EXAMPLE, Lab, Topology, state_folder};
use skopos_term::{Failure, Global, Out, Style, tell};

use super::agents::Agents;
use super::claim::Claim;
use super::place::{failed, need_root};
use super::shown::{TOPOLOGY, folder_of, look};

/// Time between two looks at the agents and at `--for`.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The longest file that is read: a lab of 64 nodes and 256 links has less.
const MAX_FILE_BYTES: u64 = 1 << 20;

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// The file that describes the lab (`skopos lab example` prints one)
    #[arg(value_name = "FILE", required_unless_present = "example")]
    file: Option<PathBuf>,
    /// Build the lab that comes with Skopos
    #[arg(long, conflicts_with = "file")]
    example: bool,
    /// Start an agent in each host and each switch, with network telemetry
    #[arg(long)]
    agents: bool,
    /// Remove the lab after this time (30s, 5m, 2h)
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    run_for: Option<Duration>,
}

pub(super) fn run(global: &Global, args: &UpArgs) -> Result<ExitCode, Failure> {
    need_root("a lab")?;
    let (topology, text) = topology(args)?;
    // Before anything is built, so that a signal in between is not lost.
    let signals = Signals::catch()?;
    let name = topology.name.clone();
    let _claim = Claim::take(&name)?;
    let lab = Lab::up(topology).map_err(|e| {
        failed(&e).hint("a lab needs `ip` and `tc` (Debian: iproute2), and for disks `mkfs.ext4`")
    })?;
    // The state goes with the lab, also if a step below fails.
    let state = state_folder(&name);
    make_folders(&lab).and_then(|()| fs::write(state.join(TOPOLOGY), &text)).map_err(|e| {
        Failure::new(format!("cannot write the state of the lab to {}", state.display()))
            .because(&e)
    })?;
    let mut agents = match args.agents {
        true => Agents::start(&lab)?,
        false => Agents::default(),
    };
    let mut out = Out::new(global.style());
    look(&name).print(&mut out)?;
    if out.style == Style::Human {
        introduce(&mut out, &lab, args.agents)?;
    }
    out.flush()?;
    let held = hold(&signals, &mut agents, args.run_for);
    drop(agents);
    lab.down().map_err(|e| failed(&e).hint(format!("try again with `skopos lab down {name}`")))?;
    held.map(|()| ExitCode::SUCCESS)
}

/// Makes the folders of the lab's state: one for each node, in which programs of the node have theirs.
fn make_folders(lab: &Lab) -> io::Result<()> {
    let name = &lab.topology().name;
    let make = |folder: &Path| fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    make(&state_folder(name))?;
    lab.topology().nodes().try_for_each(|node| make(&folder_of(name, node)))
}

/// Reads the topology, and returns it with its text.
fn topology(args: &UpArgs) -> Result<(Topology, String), Failure> {
    let text = match &args.file {
        None => EXAMPLE.to_owned(),
        Some(path) => {
            let cannot = |e: io::Error| {
                Failure::new(format!("cannot read {}", path.display()))
                    .because(&e)
                    .hint("`skopos lab example > lab.toml` writes a lab to begin with")
            };
            let mut text = String::new();
            let file = fs::File::open(path).map_err(cannot)?;
            file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(cannot)?;
            if text.len() as u64 > MAX_FILE_BYTES {
                return Err(Failure::new(format!("{} is longer than a mebibyte", path.display())));
            }
            text
        }
    };
    let topology = Topology::parse(&text).map_err(|e| {
        failed(&e).in_file(args.file.as_deref()).hint("docs/howto/build-a-lab.md lists all entries")
    })?;
    Ok((topology, text))
}

/// Prints commands to try.
fn introduce(out: &mut Out, lab: &Lab, with_agents: bool) -> Result<(), Failure> {
    let hosts = &lab.topology().hosts;
    if let [first, .., last] = &hosts[..] {
        let (address, _) = lab.addresses(&last.name).map_err(|e| failed(&e))?;
        out.line("try, in another terminal:")?;
        let (first, last) = (&first.name, &last.name);
        out.line(format!("  skopos lab run {last} -- iperf3 -s -D -1"))?;
        out.line(format!(
            "  skopos lab run {first} -- iperf3 -c {address} -u -b 100M -l 1000 -t 60"
        ))?;
        if with_agents {
            out.line("and while that fills the slowest link on its way:")?;
            out.line(format!("  skopos lab run {last} -- skopos top"))?;
            out.line(format!(
                "  skopos lab run {last} -- skopos sql \"SELECT topic, text FROM latest WHERE topic LIKE '%/congestion_point'\""
            ))?;
        }
    }
    if let Some(disk) = lab.topology().disks.first().filter(|_| with_agents) {
        let folder = lab.disk(&disk.name).map_err(|e| failed(&e))?;
        let folder = folder.display();
        out.line(format!("while programs read at random places of files in {folder}:"))?;
        out.line(format!(
            "  skopos lab run {} -- skopos sql \"SELECT topic, text FROM latest WHERE topic LIKE '%/slow_device'\"",
            disk.host
        ))?;
    }
    out.line("Ctrl-C removes the lab.")?;
    Ok(())
}

/// Waits for a signal or the end of the time, and tells of agents that end.
fn hold(signals: &Signals, agents: &mut Agents, run_for: Option<Duration>) -> Result<(), Failure> {
    let begin = Instant::now();
    loop {
        let left = run_for.map_or(LOOK_EVERY, |time| time.saturating_sub(begin.elapsed()));
        if left.is_zero() || signals.wait_for(left.min(LOOK_EVERY))? {
            return Ok(());
        }
        for (node, status) in agents.take_ended() {
            tell(format!("warning: the agent of {node} has ended: {status}"));
        }
    }
}
