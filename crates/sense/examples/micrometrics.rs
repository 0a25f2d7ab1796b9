//! Measures the processor time of the sensors that anomaly reports judge, polled once a second, with and without their
//! BPF programs, and the time of the programs in the kernel.
//!
//! ```sh
//! cargo run --release -p skopos-sense --example micrometrics [SECONDS [without]]
//! ```
//!
//! Run it as root on an idle machine, then beside a load. The time of polls is that of this thread
//! (`CLOCK_THREAD_CPUTIME_ID`); the time of programs is `run_time_ns` of the kernel, which this program switches on
//! (`kernel.bpf_stats_enabled`) for its second half only, because counting makes each program slower. `without` leaves the
//! families with BPF out.

use std::fs;
use std::time::{Duration, Instant};

use aya::programs::loaded_programs;
use rustix::time::{ClockId, clock_gettime};
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

/// Those that have BPF programs.
const WITH_PROGRAMS: [&str; 4] = ["block_latency", "runqueue", "qdisc_sojourn", "page_cache_hits"];

const STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// Names of the programs, as the kernel has them.
const PROGRAMS: [&str; 10] = [
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
    let begin = programs();
    poll(&mut sensors, &mut sinks, &mut times, seconds);
    let end = programs();
    fs::write(STATS, before).expect("needs root");
    let mut all = 0;
    for ((name, runs, time), (_, first_runs, first)) in end.iter().zip(&begin) {
        let (runs, nanos) = (runs - first_runs, time - first);
        all += nanos;
        let each = nanos as f64 / runs.max(1) as f64;
        println!(
            "{name:<16} {:>10.0} runs/s {each:>8.1} ns each",
            runs as f64 / f64::from(seconds)
        );
    }
    println!("programs together: {:.4} % of a core", percent(Duration::from_nanos(all)));
}
