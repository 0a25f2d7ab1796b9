//! `skopos up`: agent and hub in this process, with messages for the user.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use skopos_model::{Timestamp, Topic};
use skopos_shm::{Segment, Vertex};

use skopos_agent::config::Config;
use skopos_agent::control::Status;
use skopos_agent::{Agent, Event, Signals};
use skopos_node::NodeArgs;
use skopos_node::role::{Node, run_node, warn, warning};
use skopos_serve::{ListenArgs, Served};
use skopos_term::Failure;
use skopos_term::Global;
use skopos_term::format;
use skopos_term::{Out, Style};

/// Time between two lines of live values.
const SUMMARY_EVERY: Duration = Duration::from_secs(5);
/// The first line comes as soon as two ticks make a rate.
const FIRST_SUMMARY: Duration = Duration::from_millis(1500);

/// Columns of the introduction if standard output is not a terminal.
const COLUMNS: usize = 80;

/// The narrowest terminal for which lines are broken: narrower ones break them in any case.
const MIN_COLUMNS: usize = 20;

/// Returns the width of the terminal; `None` if standard output is not a terminal.
fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0).then(|| usize::from(size.ws_col).max(MIN_COLUMNS))
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    node: NodeArgs,
    #[command(flatten)]
    listeners: ListenArgs,
}

pub(crate) fn run(global: &Global, args: &UpArgs) -> Result<ExitCode, Failure> {
    crate::allocator::return_memory();
    let mut node_args = args.node.clone();
    if node_args.live {
        node_args.plane = node_args.plane.beside_hub();
    }
    if global.style() == Style::Json {
        let node = Node::start(global, &node_args, Signals::catch()?)?;
        let mut out = Out::new(global.style());
        let _hub = start_hub(&node.agent, args, &mut out)?;
        out.flush()?;
        return run_node(node, global);
    }
    let signals = Signals::catch()?;
    let mut out = Out::new(global.style());
    out.line(format!("skopos {}: looking at this machine …", env!("CARGO_PKG_VERSION")))?;
    out.flush()?;
    let mut node = Node::start(global, &node_args, signals)?;
    let (_hub, listeners) = start_hub(&node.agent, args, &mut out)?;
    let mut summary = None;
    let mut next = Instant::now() + FIRST_SUMMARY;
    node.run(&mut |agent, event| {
        if let Some(message) = warning(&event) {
            warn(&mut out, &message)?;
        }
        if !matches!(event, Event::Ticked) {
            return Ok(());
        }
        match &mut summary {
            None => {
                introduce(&mut out, agent, &listeners)?;
                let mut first = Summary::new(Segment::open(agent.segment_path())?, agent.node());
                // The counters' start, so that the first line has rates.
                let _ = first.line(None);
                summary = Some(first);
            }
            Some(summary) if Instant::now() >= next => {
                next = Instant::now() + SUMMARY_EVERY;
                out.line(summary.line(columns()))?;
            }
            Some(_) => {}
        }
        out.flush()?;
        Ok(())
    })?;
    out.line("stopped")?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Starts a hub beside the agent: it knows this machine, and with `--live` the other nodes of the site.
/// Returns it with the addresses of its network listeners.
fn start_hub(
    agent: &Agent,
    args: &UpArgs,
    out: &mut Out,
) -> Result<(Served, Vec<String>), Failure> {
    let config = Config::load(args.node.agent.config.as_deref())?;
    let live = (&args.node.plane, args.node.live);
    let hub = Served::start(agent.dir(), live, &args.listeners, &config)?;
    for failure in hub.warnings() {
        warn(out, &failure.in_one_line())?;
    }
    let listeners = hub.addresses().split_off(1);
    Ok((hub, listeners))
}

/// Prints the sensors, the sensors that are missing with their reasons, and commands to try.
fn introduce(out: &mut Out, agent: &Agent, listeners: &[String]) -> Result<(), Failure> {
    let Status { node, sensors, skips, .. } = agent.status();
    let facts: usize = sensors.iter().map(|s| s.facts).sum();
    let senses: Vec<String> = sensors.iter().map(|s| format!("{} ({})", s.name, s.facts)).collect();
    out.line(format!("{}: {facts} facts from {} sensors", out.bold(&node), sensors.len()))?;
    let width = columns().unwrap_or(COLUMNS);
    for line in wrap(&senses.join(", "), ", ", width - 2) {
        out.line(format!("  {line}"))?;
    }
    if !skips.is_empty() {
        out.line("not sensed here:")?;
        for skip in &skips {
            for line in wrap(&format!("{}: {}", skip.what, skip.reason), " ", width - 2) {
                out.line(format!("  {line}"))?;
            }
        }
    }
    // Another terminal may not have the environment of this one.
    let option = match agent.dir() == skopos_shm::default_dir() {
        true => String::new(),
        false => format!(" --dir {}", agent.dir().display()),
    };
    out.line("try, in another terminal:")?;
    out.line(format!("  skopos{option} top"))?;
    out.line(format!("  skopos{option} get mem/available_bytes load/load_1m"))?;
    out.line(format!("  skopos{option} watch 'cpu/total/busy_ratio'"))?;
    out.line(format!("  skopos{option} insight ls"))?;
    for example in super::sql::EXAMPLES {
        out.line(format!("  skopos{option} sql \"{example}\""))?;
    }
    for listener in listeners.iter().filter(|listener| listener.starts_with("http")) {
        out.line(format!("  curl {listener}/metrics"))?;
    }
    out.line("Ctrl-C ends it.")?;
    Ok(())
}

/// Breaks `text` after `separator` into lines of at most `width` characters, if no word is longer.
fn wrap(text: &str, separator: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_inclusive(separator) {
        let fits = |line: &String| {
            line.is_empty() || line.chars().count() + word.trim_end().chars().count() <= width
        };
        let last = lines.last_mut().filter(|line| fits(line));
        match last {
            Some(line) => line.push_str(word),
            None => lines.push(word.to_owned()),
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// The live values that `up` prints, read from shared memory like any reader does.
struct Summary {
    segment: Segment,
    node: String,
    /// The version of the directory at the last lookup of the vertices.
    version: u64,
    busy: Option<Vertex>,
    load: Option<Vertex>,
    memory: Option<(Vertex, Vertex)>,
    rates: Vec<Rate>,
}

/// The rate of a counter, summed over all instances.
struct Rate {
    label: &'static str,
    family: &'static str,
    metric: &'static str,
    counters: Vec<Vertex>,
    last: Option<(Timestamp, f64)>,
}

impl Summary {
    fn new(segment: Segment, node: &str) -> Self {
        let rate = |label, family, metric| Rate {
            label,
            family,
            metric,
            counters: Vec::new(),
            last: None,
        };
        let rates = vec![
            rate("disk read", "block", "read_bytes_total"),
            rate("written", "block", "written_bytes_total"),
            rate("net in", "netdev", "receive_bytes_total"),
            rate("out", "netdev", "transmit_bytes_total"),
        ];
        let (version, node) = (u64::MAX, node.to_owned());
        Self { segment, node, version, busy: None, load: None, memory: None, rates }
    }

    /// Looks the vertices up again if topics appeared or disappeared.
    fn look_up(&mut self) {
        let version = self.segment.directory_version();
        if std::mem::replace(&mut self.version, version) == version {
            return;
        }
        let find = |below: &str| {
            let topic = Topic::new(&format!("{}/{below}", self.node)).ok()?;
            self.segment.find(&topic).ok()
        };
        self.busy = find("cpu/total/busy_ratio");
        self.load = find("load/load_1m");
        self.memory = find("mem/available_bytes").zip(find("mem/total_bytes"));
        for rate in &mut self.rates {
            let counters = whole_devices(&self.segment, rate.family, rate.metric);
            if counters.len() != rate.counters.len() {
                // The sum of another set of devices is not comparable: no rate across the change.
                rate.last = None;
            }
            rate.counters = counters;
        }
    }

    /// Returns the values, as many as fit into `width` columns.
    fn line(&mut self, width: Option<usize>) -> String {
        self.look_up();
        let number = |v: &Vertex| v.latest().ok().and_then(|r| r.as_f64());
        let mut parts = vec![format::time_of_day(skopos_shm::now())];
        if let Some(busy) = self.busy.as_ref().and_then(number) {
            parts.push(format!("cpu {:.1} %", busy * 100.0));
        }
        if let Some(load) = self.load.as_ref().and_then(number) {
            parts.push(format!("load {load:.2}"));
        }
        if let Some((available, total)) = &self.memory
            && let Some((available, total)) = number(available).zip(number(total))
        {
            let used = format::bytes(total - available);
            parts.push(format!("mem {used} of {}", format::bytes(total)));
        }
        for rate in &mut self.rates {
            if let Some(per_second) = rate.look() {
                parts.push(format!("{} {}/s", rate.label, format::bytes(per_second)));
            }
        }
        fitted(&parts, width.unwrap_or(usize::MAX))
    }
}

/// Joins the first `parts` that fit into `width` columns.
fn fitted(parts: &[String], width: usize) -> String {
    let mut line = String::new();
    for part in parts {
        let between = if line.is_empty() { "" } else { "  " };
        if line.chars().count() + between.len() + part.chars().count() > width {
            break;
        }
        line.push_str(between);
        line.push_str(part);
    }
    line
}

/// The vertices of `metric` of every hardware device in sysfs. Devices on top of others (partitions, device
/// mapper, loop devices, bridges) would count their bytes twice. If no device has hardware, as in a container,
/// every device except loopback counts.
fn whole_devices(segment: &Segment, family: &str, metric: &str) -> Vec<Vertex> {
    let mut all = segment.vertices();
    all.retain(|v| v.info().group == family && v.topic().metric() == metric);
    let class = if family == "block" { "block" } else { "net" };
    let instance = |v: &Vertex| v.topic().segments().nth(2).unwrap_or_default().to_owned();
    let has_hardware = |v: &Vertex| {
        let device = Path::new("/sys/class").join(class).join(instance(v));
        device.join("device").exists() && !device.join("partition").exists()
    };
    if all.iter().any(has_hardware) {
        all.retain(has_hardware);
    } else {
        all.retain(|v| instance(v) != "lo");
    }
    all
}

impl Rate {
    /// The rate since the last call; `None` at the first call, or without a counter.
    fn look(&mut self) -> Option<f64> {
        let mut sum = 0.0;
        let mut checked_at = None;
        for reading in self.counters.iter().filter_map(|v| v.latest().ok()) {
            sum += reading.as_f64()?;
            checked_at = Some(reading.checked_at);
        }
        let (before, earlier) = self.last.replace((checked_at?, sum))?;
        let seconds = checked_at?.since(before).as_secs_f64();
        (seconds > 0.0).then(|| ((sum - earlier) / seconds).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_holds_whole_values() {
        let parts = ["cpu 1 %", "load 2", "mem 3 GiB"].map(str::to_owned);
        assert_eq!(fitted(&parts, usize::MAX), "cpu 1 %  load 2  mem 3 GiB");
        assert_eq!(fitted(&parts, 15), "cpu 1 %  load 2");
        assert_eq!(fitted(&parts, 14), "cpu 1 %");
    }

    #[test]
    fn text_breaks_after_separators() {
        assert_eq!(wrap("a (1), bc (2), d (3)", ", ", 14), ["a (1), bc (2),", "d (3)"]);
        assert_eq!(wrap("one two three", " ", 7), ["one two", "three"]);
        assert_eq!(wrap("unbreakable word", " ", 4), ["unbreakable", "word"]);
    }
}
