//! Measures the cost of recording: processor time for a request with one span, at each stage.
//!
//! `cargo run --release -p skopos-rpc --example cost [--json]`
//!
//! *Caller* is the processor time of the calling thread for each request, *process* that of all threads, with the drain and the
//! trace on disk. Each number is the least of many short rounds: other work on the machine can only add to it.

use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use skopos_rpc::{Interval, Options, Recorder, Rpc, Stage, Status};

/// Requests of a round: a half of a ring, so that nothing is lost.
const REQUESTS: u32 = 4_000;
/// Rounds of each measurement.
const ROUNDS: u32 = 400;

fn cpu(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

fn request(recorder: Recorder, rpc: Rpc) {
    let span = recorder.origin(black_box(rpc), None);
    if span.is_recorded() {
        black_box(span.context());
    }
    span.end(Status::Ok);
}

fn detailed(recorder: Recorder, rpc: Rpc) {
    let mut span = recorder.origin(black_box(rpc), None);
    black_box(span.context());
    span.interval(Interval::InputSerialization, 100);
    span.interval(Interval::OriginCompletionCallback, 200);
    span.end(Status::Ok);
}

/// Returns the time of each of [`REQUESTS`], in ns.
fn each(time: Duration) -> f64 {
    time.as_nanos() as f64 / f64::from(REQUESTS)
}

/// Returns ns for each request: of the thread, and of the process.
fn measure(recorder: Recorder, work: fn(Recorder, Rpc)) -> (f64, f64) {
    let rpc = recorder.rpc("cost");
    let mut best = (f64::MAX, f64::MAX);
    for _ in 0..ROUNDS {
        let (process, thread) = (cpu(ClockId::ProcessCPUTime), cpu(ClockId::ThreadCPUTime));
        (0..REQUESTS).for_each(|_| work(recorder, rpc));
        let caller = cpu(ClockId::ThreadCPUTime) - thread;
        let _ = recorder.flush();
        let process = cpu(ClockId::ProcessCPUTime) - process;
        best = (best.0.min(each(caller)), best.1.min(each(process)));
    }
    best
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let is_json = std::env::args().any(|argument| argument == "--json");
    let dir = tempfile::tempdir()?;
    let options = Options::new("cost").dir(dir.path().join("run")).trace_folder(dir.path());
    let recorder = Recorder::start(options.budget(None).max_trace_bytes(256 << 20))?;
    let reading = |_| {
        let before = cpu(ClockId::ThreadCPUTime);
        for _ in 0..REQUESTS {
            black_box(recorder.ticks());
        }
        each(cpu(ClockId::ThreadCPUTime) - before)
    };
    let ticks = (0..ROUNDS).map(reading).fold(f64::MAX, f64::min);
    let mut rows = Vec::new();
    for stage in Stage::ALL {
        recorder.set_stage(stage);
        rows.push((stage.name(), measure(recorder, request)));
    }
    rows.push(("full, two intervals", measure(recorder, detailed)));
    rows.push(("never started", measure(Recorder::off(), request)));
    let counters = recorder.counters();
    recorder.close()?;
    if is_json {
        let rows = rows.iter().map(|(case, (caller, process))| {
            serde_json::json!({"case": case, "caller_ns": caller, "process_ns": process})
        });
        let rows: Vec<_> = rows.collect();
        println!(
            "{}",
            serde_json::json!({"clock_ns": ticks, "rows": rows, "overwritten": counters.overwritten})
        );
        return Ok(());
    }
    println!(
        "one reading of the clock: {ticks:.1} ns\n{:20} {:>9} {:>9}",
        "stage", "caller", "process"
    );
    for (case, (caller, process)) in rows {
        println!("{case:20} {caller:6.1} ns {process:6.1} ns");
    }
    println!("{} records were overwritten before they were drained", counters.overwritten);
    Ok(())
}
