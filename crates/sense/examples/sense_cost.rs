//! Measures the cost of a tick of each sensor on this machine, beside a loop that only reads the
//! same files, and counts the facts that it yields.
//!
//! ```sh
//! cargo run --release -p skopos-sense --example sense_cost [TICKS [PAUSE_MS [CORES]]]
//! ```
//!
//! Without a pause everything is in the caches of the core. With a pause of 1000 the numbers are
//! those of an agent that polls each second. With CORES, the sensors of cores read files of a
//! machine with this number of cores, and there is no bare loop: the files of a disk cost less than
//! those that a kernel makes.
//!
//! Sensors and bare reads take turns, so that the ratio does not depend on what else runs.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use skopos_model::schema::Metric;
use skopos_model::{Scalar, Structured};
use skopos_sense::{FactId, Root, Sensor, Sink, Skip, Tick, open_all};

#[path = "../tests/it/large.rs"]
mod large;

/// The files that are read at each tick on most machines, in one list for all sensors.
const FILES: [&str; 19] = [
    "/proc/loadavg",
    "/proc/stat",
    "/proc/pressure/cpu",
    "/proc/pressure/memory",
    "/proc/pressure/io",
    "/proc/interrupts",
    "/proc/softirqs",
    "/proc/meminfo",
    "/proc/swaps",
    "/proc/vmstat",
    "/sys/devices/system/node/node0/meminfo",
    "/sys/devices/system/node/node0/numastat",
    "/proc/diskstats",
    "/proc/net/dev",
    "/proc/net/snmp",
    "/proc/net/netstat",
    "/proc/net/snmp6",
    "/proc/net/sockstat",
    "/proc/net/sockstat6",
];

/// Receives facts like a segment, but does not share them.
#[derive(Default)]
struct Table {
    last: Vec<Option<Scalar>>,
    live: BTreeSet<u32>,
    list: Vec<Option<Scalar>>,
}

impl Sink for Table {
    fn register(&mut self, _: &'static Metric, _: &str) -> FactId {
        let index = u32::try_from(self.last.len()).expect("fewer facts than that");
        self.last.push(None);
        self.live.insert(index);
        FactId::from_index(index)
    }

    fn register_list(&mut self, metric: &'static Metric, instance: &str) -> FactId {
        self.register(metric, instance)
    }

    fn unregister(&mut self, id: FactId) {
        self.live.remove(&id.index().expect("none was refused"));
    }

    fn set(&mut self, id: FactId, value: Scalar) {
        self.last[id.index().expect("none was refused") as usize] = Some(value);
    }

    fn set_structured(&mut self, id: FactId, _: &Structured) {
        assert!(self.live.contains(&id.index().expect("none was refused")));
    }

    fn set_list(&mut self, _: FactId, values: &[Option<Scalar>]) {
        self.list.clear();
        self.list.extend_from_slice(values);
    }
}

/// The files, kept open.
struct Bare {
    files: Vec<File>,
    buffer: Vec<u8>,
}

impl Bare {
    fn open() -> Self {
        let files = FILES.iter().filter_map(|path| File::open(path).ok()).collect();
        Self { files, buffer: vec![0; 1 << 20] }
    }

    /// Reads every file to its end.
    fn read(&mut self) {
        for file in &self.files {
            let mut len = 0;
            while let Ok(new @ 1..) = file.read_at(&mut self.buffer, len) {
                len += new as u64;
            }
        }
    }
}

fn poll(sensor: &mut Box<dyn Sensor>, table: &mut Table, monotonic: Duration) -> Duration {
    let before = Instant::now();
    if let Err(e) = sensor.poll(&mut Tick { monotonic, sink: table }) {
        eprintln!("{}: {e}", sensor.family().name);
    }
    before.elapsed()
}

fn main() {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<u32>().expect("a number"));
    let ticks = args.next().unwrap_or(2000);
    let pause = Duration::from_millis(args.next().unwrap_or(0).into());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cores = args.next();
    let mut root = Root::default();
    if let Some(cores) = cores {
        large::write(folder.path(), cores.into(), 0);
        root.proc = folder.path().join("proc");
        root.sys = folder.path().join("sys");
    }
    let mut opened = open_all(&root);
    // These sensors run a program, minutes or seconds apart; here they would run it thousands of
    // times.
    opened.sensors.retain(|sensor| !["smart", "slurm"].contains(&sensor.family().name));
    let mut bare = Bare::open();
    let mut tables: Vec<Table> = opened.sensors.iter().map(|_| Table::default()).collect();
    let mut costs: Vec<Vec<Duration>> = vec![Vec::new(); tables.len() + 1];
    let start = Instant::now();
    for at in 0..ticks {
        if let Some(cores) = cores.filter(|_| at < 100) {
            large::write(folder.path(), cores.into(), at.into());
        }
        // Ticks a second apart: sensors read some sources every few seconds.
        let monotonic = start.elapsed().max(Duration::from_secs(at.into()));
        for ((sensor, table), costs) in opened.sensors.iter_mut().zip(&mut tables).zip(&mut costs) {
            costs.push(poll(sensor, table, monotonic));
        }
        if cores.is_none() {
            let before = Instant::now();
            bare.read();
            costs[tables.len()].push(before.elapsed());
        }
        std::thread::sleep(pause);
    }
    let facts = tables.iter().map(|table| table.live.len());
    let names = opened.sensors.iter().map(|sensor| sensor.family().name);
    print(names.zip(facts), costs, &opened.skips);
}

/// Prints the mean and the median of each row of costs, of which the last is the bare loop.
fn print<'n>(
    sensors: impl Iterator<Item = (&'n str, usize)>,
    mut costs: Vec<Vec<Duration>>,
    skips: &[Skip],
) {
    let micros = |costs: &mut Vec<Duration>| {
        costs.sort();
        let mean = costs.iter().sum::<Duration>().as_secs_f64() / costs.len() as f64;
        (mean * 1e6, costs[costs.len() / 2].as_secs_f64() * 1e6)
    };
    let row = |name: &str, facts: usize, mean: f64, median: f64| {
        println!("{name:<12} {facts:>6} {mean:>10.1} {median:>10.1}");
    };
    println!("{:<12} {:>6} {:>10} {:>10}", "sensor", "facts", "mean us", "median us");
    let mut all = (0, 0.0, 0.0);
    let mut bare = costs.pop().expect("a row for the bare loop");
    for ((name, facts), costs) in sensors.zip(&mut costs) {
        let (mean, median) = micros(costs);
        row(name, facts, mean, median);
        all = (all.0 + facts, all.1 + mean, all.2 + median);
    }
    row("all", all.0, all.1, all.2);
    let (mean, median) = micros(&mut bare);
    row("bare loop", 0, mean, median);
    println!(
        "all / bare loop: {:.2} by the mean, {:.2} by the median",
        all.1 / mean,
        all.2 / median
    );
    for skip in skips {
        println!("skipped {}: {}", skip.what, skip.reason);
    }
}
