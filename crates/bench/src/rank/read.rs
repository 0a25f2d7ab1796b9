//! The cost of reading a published rank.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use skopos_model::ValueType;
use skopos_model::schema;
use skopos_shm::{Host, Publisher, Reader, VertexSpec, now};
use skopos_term::Failure;

use crate::child::not_started;
use crate::plan::Plan;
use crate::programs;
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

/// The class of the reader in Java.
const CLASS: &str = "io.skopos.client.ReadRanks";

/// Measures reads from Rust, C and Java.
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
    let scratch = Scratch::on_disk()?;
    let programs = [
        Program {
            language: "C",
            words: compiled(plan, scratch.path())?,
            place: segment.to_path_buf(),
        },
        Program { language: "Java", words: java(Path::new("")), place: dir.to_path_buf() },
    ];
    // The first round warms the caches, and does not count.
    let mut rounds: [Vec<f64>; 6] = Default::default();
    for round in 0..=plan.rounds {
        let mut once = vec![
            nanos(&readers, |reader| reader.get().unwrap_or(0.0))?,
            nanos(&readers, |reader| reader.fresh(Duration::from_secs(5)).unwrap_or(0.0))?,
        ];
        for program in &programs {
            // Numbers of a program that this machine does not have are never shown.
            once.extend(program.run(&topics)?.unwrap_or([f64::NAN; 2]));
        }
        if round > 0 {
            for (all, one) in rounds.iter_mut().zip(once) {
                all.push(one);
            }
        }
    }
    let mut rows = rows_of("Rust", None, &rounds[..2]);
    for (program, rounds) in programs.iter().zip(rounds[2..].chunks(2)) {
        rows.extend(rows_of(program.language, program.words.as_ref().err(), rounds));
    }
    Ok(rows)
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

/// A reader in another language.
struct Program {
    language: &'static str,
    /// The program with its first words, or the reason why this machine does not have it.
    words: Result<Vec<OsString>, String>,
    /// The path by which it finds the segment.
    place: PathBuf,
}

impl Program {
    /// Runs it. Returns the time of a read without and with the age; `None` if this machine does not have it.
    fn run(&self, topics: &[String]) -> Result<Option<[f64; 2]>, Failure> {
        let Ok([program, words @ ..]) = self.words.as_deref() else { return Ok(None) };
        let failed = |why: &str| Failure::new(format!("the reader in {} {why}", self.language));
        let mut command = Command::new(program);
        command.args(words).arg(READS.to_string()).arg(&self.place).args(topics);
        let output = command.output().map_err(|e| failed("does not start").because(&e))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut numbers = text.split_whitespace().filter_map(|word| word.parse().ok());
        match (numbers.next(), numbers.next()) {
            (Some(plain), Some(aged)) if output.status.success() => Ok(Some([plain, aged])),
            _ => {
                let said = String::from_utf8_lossy(&output.stderr);
                Err(failed(&format!("ended with {}: `{text}` {}", output.status, said.trim())))
            }
        }
    }
}

/// Compiles the program in C in `folder`; the inner error is the reason why this machine cannot.
fn compiled(plan: &Plan, folder: &Path) -> Result<Result<Vec<OsString>, String>, Failure> {
    plan.say("compiling the reader in C …");
    let (program, source) = (folder.join("read"), folder.join("read.c"));
    let failed = |e: &std::io::Error| Failure::new("cannot write the reader in C").because(e);
    std::fs::write(&source, PROGRAM).map_err(|e| failed(&e))?;
    std::fs::write(folder.join("skopos_shm.h"), HEADER).map_err(|e| failed(&e))?;
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O2", "-o"]).arg(&program).arg(&source);
    match cc.output() {
        Err(e) => Ok(Err(not_started("cc", &e))),
        Ok(output) if !output.status.success() => {
            Err(Failure::new(String::from_utf8_lossy(&output.stderr).into_owned()))
        }
        Ok(_) => Ok(Ok(vec![program.into_os_string()])),
    }
}

/// Returns the command of the program in Java, whose jar and classes lie below the repository's root, or the reason why this
/// machine does not have it.
fn java(root: &Path) -> Result<Vec<OsString>, String> {
    let [jar, classes] = [programs::JAVA_CLIENT, programs::JAVA_TESTS].map(|path| root.join(path));
    let class = classes.join(format!("{}.class", CLASS.replace('.', "/")));
    for path in [&jar, &class] {
        if !path.is_file() {
            return Err(format!("there is no {}; {}", path.display(), programs::JAVA_BUILD));
        }
    }
    let mut version = Command::new("java");
    version.arg("-version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    version.status().map_err(|e| not_started("java", &e))?;
    let mut class_path = jar.into_os_string();
    class_path.push(":");
    class_path.push(classes);
    Ok(vec!["java".into(), "-cp".into(), class_path, CLASS.into()])
}

/// Returns the rows of a language from the rounds without and with the age; unknown for a reason.
fn rows_of(language: &str, unknown: Option<&String>, rounds: &[Vec<f64>]) -> Vec<Row> {
    let names = [language.to_owned(), format!("{language}, with its age")];
    let row = |(at, name): (usize, String)| {
        if let Some(why) = unknown {
            let unknown = Figure::Unknown(why.clone());
            return Row::of("read a rank", name, "ns", unknown, Better::Lower);
        }
        let row = Row::new("read a rank", name, "ns", median(&rounds[at]), Better::Lower);
        let row = row.rounds("Skopos", &rounds[at]);
        // A clock costs what the machine's clock costs.
        if at == 0 { row.goal(Goal::AtMost(GOAL)) } else { row }
    };
    names.into_iter().enumerate().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_the_jar_says_how_to_build_it() {
        let root = tempfile::tempdir().expect("a folder");
        let why = java(root.path()).expect_err("nothing is built there");
        assert!(why.contains("skopos-client") && why.contains("make bench BENCH=rank"), "{why}");
        let program = Program { language: "Java", words: Err(why.clone()), place: PathBuf::new() };
        assert!(program.run(&[]).is_ok_and(|numbers| numbers.is_none()));
        let rows = rows_of("Java", Some(&why), &[]);
        assert_eq!(rows.len(), 2);
    }

    #[test]
    fn a_program_says_two_numbers_or_fails() {
        let program = |script: &str| Program {
            language: "sh",
            words: Ok(["sh", "-c", script].map(OsString::from).to_vec()),
            place: PathBuf::new(),
        };
        let numbers = program("echo 3.5; echo 30").run(&[]);
        assert_eq!(numbers.ok().flatten(), Some([3.5, 30.0]));
        for script in ["echo 3.5", "echo no segment >&2; exit 1", "echo 1 2; exit 1"] {
            assert!(program(script).run(&[]).is_err(), "{script}");
        }
    }
}
