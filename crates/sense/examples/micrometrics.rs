//! Measures the processor time of the sensors that anomaly reports judge, polled once a second, with and without their
//! BPF programs, and the time of the programs in the kernel.
//!
//! ```sh
//! cargo run --release -p skopos-sense --example micrometrics [SECONDS [without]]
//! ```
//!
//! Run it as root on an idle machine, then beside a load. The time of polls is that of this thread
//! (`CLOCK_THREAD_CPUTIME_ID`); the time of programs is `run_time_ns` of the kernel, which this program switches on
//! (`kernel.bpf_stats_enabled`) for its second half only, because counting makes each program slower. The time of a program
//! that does nothing, which runs at the same events, is subtracted from each. `without` leaves the families with BPF out.

use std::fs;
use std::time::{Duration, Instant};

use aya::programs::loaded_programs;
use rustix::time::{ClockId, clock_gettime};
use skopos_bpf::{At, Loaded, Program, load};
use skopos_model::schema::Metric;
use skopos_model::{Scalar, Structured};
use skopos_sense::{FactId, Root, Sensor, Sink, Tick, open_all};

/// The families of micrometrics.
const FAMILIES: [&str; 16] = [
    "psi",
    "mem",
    "vmstat",
    "block",
    "page_cache",
    "netdev",
    "nic",
    "softnet",
    "qdisc",
    "listener",
    "tcp_peer",
    "tcp",
    "block_latency",
    "runqueue",
    "qdisc_sojourn",
    "page_cache_hits",
];

/// The families that have BPF programs.
const WITH_PROGRAMS: [&str; 4] = ["block_latency", "runqueue", "qdisc_sojourn", "page_cache_hits"];

const STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// The program that does nothing.
const NOTHING: &str = "nothing";

/// Names of the programs, as the kernel has them.
const PROGRAMS: [&str; 11] = [
    NOTHING,
    "issued",
    "requeued",
    "completed",
    "switched",
    "entered",
    "left",
    "requested",
    "faulted",
    "added",
    "dirtied",
];

/// Counts facts and keeps none.
#[derive(Default)]
struct Count(u32);

impl Sink for Count {
    fn register(&mut self, _: &'static Metric, _: &str) -> FactId {
        self.0 += 1;
        FactId::from_index(self.0)
    }

    fn register_list(&mut self, metric: &'static Metric, instance: &str) -> FactId {
        self.register(metric, instance)
    }

    fn unregister(&mut self, _: FactId) {}

    fn set(&mut self, _: FactId, _: Scalar) {}

    fn set_structured(&mut self, _: FactId, _: &Structured) {}

    fn set_list(&mut self, _: FactId, _: &[Option<Scalar>]) {}
}

/// The processor time of this thread.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Polls each sensor once a second and adds the time of each.
fn poll(
    sensors: &mut [Box<dyn Sensor>],
    sinks: &mut [Count],
    times: &mut [Duration],
    seconds: u32,
) {
    let start = Instant::now();
    for second in 0..seconds {
        for ((sensor, sink), time) in sensors.iter_mut().zip(&mut *sinks).zip(&mut *times) {
            let before = used();
            let monotonic = Duration::from_secs(1000) + start.elapsed();
            if let Err(e) = sensor.poll(&mut Tick { monotonic, sink }) {
                eprintln!("{}: {e}", sensor.family().name);
            }
            *time += used().saturating_sub(before);
        }
        let next = start + Duration::from_secs(u64::from(second) + 1);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

/// Returns name, runs and nanoseconds of each program.
fn programs() -> Vec<(String, u64, u64)> {
    let known = loaded_programs().filter_map(Result::ok).filter_map(|program| {
        let name = program.name_as_str()?.to_owned();
        let time = program.run_time().as_nanos() as u64;
        PROGRAMS.contains(&name.as_str()).then_some((name, program.run_count(), time))
    });
    known.collect()
}

/// Attaches the program that does nothing.
fn attach_nothing() -> Loaded {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/bpf");
    let object = fs::read(format!("{folder}/runqueue.bpf.o")).expect("readable");
    let fields = fs::read_to_string(format!("{folder}/fields.h")).expect("readable");
    let program = Program { name: NOTHING, at: At::Typed("sched_switch") };
    load(&object, &[program], &fields, &[]).expect("needs root")
}

/// Prints the time of each program between two readings, and returns the time of all in nanoseconds.
fn print(begin: &[(String, u64, u64)], end: &[(String, u64, u64)], seconds: u32) -> f64 {
    let grown = end.iter().zip(begin).map(|((name, runs, time), (_, first_runs, first))| {
        let runs = runs.saturating_sub(*first_runs);
        (name.as_str(), runs, time.saturating_sub(*first) as f64 / runs.max(1) as f64)
    });
    let grown: Vec<_> = grown.collect();
    let nothing = grown.iter().find(|(name, ..)| *name == NOTHING).map_or(0.0, |found| found.2);
    let mut all = 0.0;
    for (name, runs, each) in grown {
        let (own, per_second) = ((each - nothing).max(0.0), runs as f64 / f64::from(seconds));
        all += own * runs as f64;
        println!("{name:<16} {per_second:>10.0} runs/s {each:>8.1} ns each, {own:>8.1} ns its own");
    }
    all
}

fn main() {
    let mut args = std::env::args().skip(1);
    let seconds: u32 = args.next().map_or(20, |a| a.parse().expect("a number of seconds"));
    let is_without = args.next().is_some_and(|a| a == "without");
    let root = Root { page_cache_hits: !is_without, ..Root::default() };
    let opened = open_all(&root);
    let mut sensors = opened.sensors;
    sensors.retain(|s| {
        let name = s.family().name;
        FAMILIES.contains(&name) && !(is_without && WITH_PROGRAMS.contains(&name))
    });
    for skip in opened.skips.iter().filter(|skip| FAMILIES.contains(&&*skip.what)) {
        println!("skipped {}: {}", skip.what, skip.reason);
    }
    let mut sinks: Vec<Count> = sensors.iter().map(|_| Count::default()).collect();
    let mut times = vec![Duration::ZERO; sensors.len()];
    poll(&mut sensors, &mut sinks, &mut times, seconds);
    let percent = |time: Duration| time.as_secs_f64() / f64::from(seconds) * 100.0;
    for ((sensor, sink), time) in sensors.iter().zip(&sinks).zip(&times) {
        let mean = time.as_secs_f64() / f64::from(seconds) * 1e6;
        println!("{:<16} {:>4} facts {mean:>8.1} us a poll", sensor.family().name, sink.0);
    }
    println!("polls together: {:.4} % of a core", percent(times.iter().sum()));
    if is_without {
        return;
    }
    let before = fs::read_to_string(STATS).expect("readable");
    fs::write(STATS, "1").expect("needs root");
    let nothing = attach_nothing();
    let begin = programs();
    poll(&mut sensors, &mut sinks, &mut times, seconds);
    let end = programs();
    drop(nothing);
    fs::write(STATS, before).expect("needs root");
    let all = print(&begin, &end, seconds) / 1e9;
    println!("programs together: {:.4} % of a core", all / f64::from(seconds) * 100.0);
}
