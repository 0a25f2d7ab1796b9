//! Writes and reads files on a hierarchy of tiers, with a policy, and prints the counts.
//!
//! ```sh
//! cargo run -p skopos-steer --example tiers -- --policy informed memory=/dev/shm/t:64:4000 disk=/var/tmp/t:1024:300
//! ```
//!
//! A tier is `NAME=FOLDER:MEGABYTES[:MEGABYTES_PER_SECOND]`, the fastest first. Each run writes 32 files of 4 MB that the
//! tiers do not have yet, reads all files, and says where they are. Without speeds, the informed policy takes turns.

use std::process::ExitCode;
use std::time::Instant;

use skopos_steer::Error;
use skopos_steer::place::{Informed, Policy, RoundRobin};
use skopos_steer::tiers::{Declared, Engine, Settings, TierSpec};

const FILES: usize = 32;
const BYTES: usize = 4_000_000;
const USAGE: &str =
    "usage: tiers [--policy round-robin|informed] [--replicas N] NAME=FOLDER:MB[:MB/s] ...";

struct Options {
    policy: Box<dyn Policy>,
    replicas: usize,
    tiers: Vec<TierSpec>,
    speeds: Declared,
}

fn main() -> ExitCode {
    let Some(options) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            let mut cause = std::error::Error::source(&e);
            while let Some(source) = cause {
                eprintln!("  cause: {source}");
                cause = source.source();
            }
            if let Some(hint) = e.hint() {
                eprintln!("hint: {hint}");
            }
            ExitCode::FAILURE
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Options> {
    let mut options = Options {
        policy: Box::new(Informed::new()),
        replicas: 1,
        tiers: Vec::new(),
        speeds: Declared::default(),
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--policy" => match words.next()?.as_str() {
                "round-robin" => options.policy = Box::new(RoundRobin::new()),
                "informed" => options.policy = Box::new(Informed::new()),
                _ => return None,
            },
            "--replicas" => options.replicas = words.next()?.parse().ok()?,
            _ => {
                let (name, rest) = word.split_once('=')?;
                let mut parts = rest.split(':');
                let (folder, megabytes) = (parts.next()?, parts.next()?.parse::<u64>().ok()?);
                let speed = parts.next().map(str::parse::<f64>).transpose().ok()?;
                options.tiers.push(TierSpec::new(name, folder, megabytes.checked_mul(1_000_000)?));
                options.speeds.bytes_per_second.push(speed.map(|speed| speed * 1e6));
            }
        }
    }
    (!options.tiers.is_empty()).then_some(options)
}

fn run(options: Options) -> Result<(), Error> {
    let Options { policy, replicas, tiers, speeds } = options;
    let engine = Engine::open(Settings { tiers }, policy, Box::new(speeds))?;
    let first = engine.files().len();
    println!("{first} files found");
    let data = vec![7; BYTES];
    let begun = Instant::now();
    for name in (first..first + FILES).map(|n| format!("example/{n}")) {
        match replicas {
            1 => engine.write(&name, &data)?,
            _ => engine.replicate(&name, &data, replicas)?,
        }
    }
    let written = begun.elapsed();
    let mut places = std::collections::BTreeMap::new();
    for name in engine.files() {
        *places.entry(engine.holders(&name).join(" and ")).or_insert(0) += 1;
        engine.read(&name)?;
    }
    let stats = engine.stats();
    println!("{FILES} files written in {written:.1?}, {} read in all", stats.reads);
    for (place, files) in places {
        println!("  {files} on {place}");
    }
    println!("{} flushes, {} stalls of {:.1?}", stats.flushes, stats.stalls, stats.stalled);
    println!("{} decisions in {:.1?}", stats.decisions, stats.asking);
    Ok(())
}
