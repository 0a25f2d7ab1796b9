//! A writer that is killed at any time loses no acknowledged file.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use skopos_model::SplitMix64;

use crate::tiers::{content, informed, round_robin};

const FOLDER: &str = "SKOPOS_TEST_TIERS";
const CAPACITIES: [u64; 3] = [30_000, 60_000, 100_000_000];
/// Length of the names and of the files that the child writes.
const BYTES: usize = 5000;

/// The child: writes files, replicas and copies until it is killed, and prints each name when it is acknowledged.
#[test]
#[ignore = "the child of another test"]
fn child_that_writes_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let engine = round_robin(Path::new(&folder), CAPACITIES);
    let taken = engine.files().len();
    let mut stdout = std::io::stdout().lock();
    for n in taken.. {
        let name = format!("n{n}");
        if engine.files().contains(&name) {
            continue;
        }
        let data = content(&name, BYTES);
        match n % 5 {
            0 => engine.replicate(&name, &data, 2),
            _ => engine.write(&name, &data),
        }
        .expect("written");
        writeln!(stdout, "acknowledged {name}").expect("a parent");
        stdout.flush().expect("a parent");
        engine.prefetch(&format!("n{}", n / 2)).ok();
    }
}

#[test]
fn no_acknowledged_file_is_lost_when_its_writer_is_killed() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut random = SplitMix64::new(11);
    let mut acknowledged = Vec::new();
    for _ in 0..12 {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "tiers_crash::child_that_writes_until_it_is_killed"]);
        command.args(["--ignored", "--nocapture"]).env(FOLDER, dir.path());
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("started");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        for _ in 0..=random.below(20) {
            let line = lines.by_ref().map_while(Result::ok).find(|l| l.contains("acknowledged "));
            let line = line.expect("the child writes");
            acknowledged.push(line.rsplit(' ').next().unwrap_or_default().to_owned());
        }
        child.kill().expect("killed");
        // Lines that were in the pipe were acknowledged, too.
        let rest = lines.map_while(Result::ok).filter(|l| l.contains("acknowledged "));
        acknowledged.extend(rest.map(|l| l.rsplit(' ').next().unwrap_or_default().to_owned()));
        child.wait().expect("ended");
        let engine = informed(dir.path(), CAPACITIES);
        for name in &acknowledged {
            let data = engine.read(name).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(data == content(name, BYTES), "{name}");
        }
    }
    assert!(acknowledged.len() >= 12);
}
