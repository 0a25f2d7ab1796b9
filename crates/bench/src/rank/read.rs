//! The cost of reading a published rank.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use skopos_model::ValueType;
use skopos_model::schema;
use skopos_shm::{Host, Publisher, Reader, VertexSpec, now};
use skopos_term::Failure;

use crate::plan::Plan;
use crate::report::{Better, Figure, Goal, Row};
use crate::scratch::Scratch;
use crate::stats::median;

/// The program in C, and the header that it includes.
const PROGRAM: &str = include_str!("read.c");
const HEADER: &str = include_str!("../../../../clients/c/skopos_shm.h");

/// Reads of a round: some hundredths of a second.
const READS: u32 = 3_000_000;

/// Goal for a read in nanoseconds, as for any latest value.
const GOAL: f64 = 50.0;

/// Time between two publications.
const EVERY: Duration = Duration::from_millis(1);

const CANDIDATES: [&str; 3] = ["n02", "n03", "n04"];

/// Measures reads from Rust and C.
pub(super) fn measure(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let dir = Scratch::new()?;
    let publisher = Publisher::builder("agent").dir(dir.path()).node("n01").create()?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let publishing = scope.spawn(|| publish(&publisher, &stop));
        let rows = reads(plan, dir.path(), publisher.path());
        stop.store(true, Ordering::Relaxed);
        match publishing.join() {
            Ok(published) => published.and(rows),
            Err(_) => Err(Failure::new("the publisher panicked")),
        }
    })
}

/// Publishes the ranks of all candidates again and again, as an agent does.
fn publish(publisher: &Publisher, stop: &AtomicBool) -> Result<(), Failure> {
    let mut group = publisher.group("rank:reads")?;
    let mut writers = Vec::new();
    for candidate in CANDIDATES {
        for metric in schema::rank::FAMILY.metrics {
            let topic = metric.topic("n01", &format!("reads@{candidate}"))?;
            let spec = VertexSpec::new(topic, metric.value_type).slots(16);
            writers.push((group.register(spec)?, metric.value_type));
        }
    }
    let mut round = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let mut tick = group.tick(now());
        for (writer, value_type) in &writers {
            match value_type {
                ValueType::F64 => tick.publish(writer, round as f64)?,
                _ => tick.publish(writer, round)?,
            };
        }
        tick.commit();
        std::thread::sleep(EVERY);
    }
    Ok(())
}

fn reads(plan: &Plan, dir: &Path, segment: &Path) -> Result<Vec<Row>, Failure> {
    let mut host = Host::open_dirs(vec![dir.to_path_buf()])?;
    let topics = CANDIDATES.map(|candidate| format!("n01/rank/reads@{candidate}/weight"));
    host.wait_for(&topics[2], Duration::from_secs(60))?;
    let readers: Result<Vec<Reader<f64>>, _> = topics.iter().map(|t| host.reader(t)).collect();
    let readers = readers?;
    let program = compiled(plan)?;
    // The first round warms the caches, and does not count.
    let mut rounds: [Vec<f64>; 4] = Default::default();
    for round in 0..=plan.rounds {
        let rust = [
            nanos(&readers, |reader| reader.get().unwrap_or(0.0))?,
            nanos(&readers, |reader| reader.fresh(Duration::from_secs(5)).unwrap_or(0.0))?,
        ];
        let c = match &program {
            Ok((_scratch, program)) => run_c(program, segment, &topics)?,
            Err(_) => [0.0; 2],
        };
        if round > 0 {
            for (all, one) in rounds.iter_mut().zip(rust.into_iter().chain(c)) {
                all.push(one);
            }
        }
    }
    let names = ["Rust", "Rust, with its age", "C", "C, with its age"];
    let row = |(at, name): (usize, &str)| {
        if let (Err(why), true) = (&program, at >= 2) {
            let unknown = Figure::Unknown(why.clone());
            return Row::of("read a rank", name, "ns", unknown, Better::Lower);
        }
        let row = Row::new("read a rank", name, "ns", median(&rounds[at]), Better::Lower);
        let row = row.rounds("Skopos", &rounds[at]);
        // A clock costs what the machine's clock costs.
        if at % 2 == 0 { row.goal(Goal::AtMost(GOAL)) } else { row }
    };
    Ok(names.into_iter().enumerate().map(row).collect())
}

/// Returns the mean time of a read.
fn nanos(readers: &[Reader<f64>], read: impl Fn(&Reader<f64>) -> f64) -> Result<f64, Failure> {
    let started = Instant::now();
    let mut sum = 0.0;
    for reader in readers.iter().cycle().take(READS as usize) {
        sum += std::hint::black_box(read(reader));
    }
    let spent = started.elapsed();
    if sum <= 0.0 {
        return Err(Failure::new("no rank was read"));
    }
    Ok(spent.as_nanos() as f64 / f64::from(READS))
}

/// The program in C in its folder, or the reason why this machine does not have it.
type Compiled = Result<(Scratch, PathBuf), String>;

/// Compiles the program in C; the inner error is the reason why this machine cannot.
fn compiled(plan: &Plan) -> Result<Compiled, Failure> {
    plan.say("compiling the reader in C …");
    let scratch = Scratch::on_disk()?;
    let (program, source) = (scratch.path().join("read"), scratch.path().join("read.c"));
    let failed = |e: &std::io::Error| Failure::new("cannot write the reader in C").because(e);
    std::fs::write(&source, PROGRAM).map_err(|e| failed(&e))?;
    std::fs::write(scratch.path().join("skopos_shm.h"), HEADER).map_err(|e| failed(&e))?;
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O2", "-o"]).arg(&program).arg(&source);
    match cc.output() {
        Err(e) => Ok(Err(format!("cc: {e}"))),
        Ok(output) if !output.status.success() => {
            Err(Failure::new(String::from_utf8_lossy(&output.stderr).into_owned()))
        }
        Ok(_) => Ok(Ok((scratch, program))),
    }
}

/// Runs the program in C. Returns the time of a read without and with the age.
fn run_c(program: &Path, segment: &Path, topics: &[String]) -> Result<[f64; 2], Failure> {
    let mut reader = Command::new(program);
    reader.arg(READS.to_string()).arg(segment).args(topics);
    let output = reader.output().map_err(|e| Failure::new("the reader in C").because(&e))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = text.split_whitespace().filter_map(|word| word.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(plain), Some(with_age)) if output.status.success() => Ok([plain, with_age]),
        _ => Err(Failure::new(format!("the reader in C printed `{text}`"))),
    }
}
