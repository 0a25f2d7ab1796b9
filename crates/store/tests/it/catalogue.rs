//! The catalogue in SQLite: processes that are killed while they write, and the speed of a million jobs.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use skopos_model::{SplitMix64, Timestamp};
use skopos_store::jobs::catalogue::conformance::{self, DAY, NODES, USERS, usual_job};
use skopos_store::jobs::{
    Catalogue, Change, Filter, JobEntry, PageRequest, SqliteCatalogue, Visibility,
};

use crate::rounds::rounds;

/// The file that a child writes.
const CHILD_FILE: &str = "SKOPOS_TEST_CATALOGUE";
/// Number of kills; `SKOPOS_TEST_KILLS` has another, and `SKOPOS_TEST_SEED` the seed of their times.
const KILLS: u64 = 25;
/// Jobs of each change.
const JOBS: usize = 20;
/// Longest life of a child after its first change.
const LONGEST_LIFE_US: usize = 30_000;

fn number_of(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn everything() -> Filter {
    Filter::new(Visibility::Everything)
}

/// Returns a job of a change. Its node, its tag and a word name the change.
fn job(change: u64, at: usize, parts: &[u32]) -> JobEntry {
    let mut job = conformance::entry(&format!("{change}-{at}"), parts);
    job.nodes = [format!("n{change}")].into();
    job.tags = [(format!("t{change}"), (1, true))].into();
    job.findings = [format!("w{change}")].into();
    job.samples = change;
    job
}

fn segment(change: u64) -> String {
    format!("segment-{change:08}")
}

/// Runs in a child until it is killed: makes changes, and writes the number of each that was acknowledged. Each change
/// also adds a part to the jobs of the one before, and removes the jobs of one long before.
#[test]
#[ignore = "a child of kills_lose_no_acknowledged_change"]
fn child_that_makes_changes_until_it_is_killed() {
    let Some(path) = std::env::var_os(CHILD_FILE).map(PathBuf::from) else { return };
    let catalogue = SqliteCatalogue::open(&path).expect("a catalogue");
    let segments = catalogue.segments("").expect("names");
    let mut change = segments.last().map_or(0, |name| name[8..].parse::<u64>().expect("a number"));
    let mut out = std::io::stdout().lock();
    loop {
        change += 1;
        let new = (0..JOBS).map(|at| job(change, at, &[0]));
        let grown = (0..JOBS).map(|at| job(change - 1, at, &[0, 1]));
        let entries: Vec<JobEntry> = new.chain(grown.filter(|_| change > 1)).collect();
        let (old, next) = (segment(change.saturating_sub(50)), [segment(change)]);
        let removed: Vec<_> = match change > 50 {
            false => Vec::new(),
            true => (0..JOBS)
                .map(|at| skopos_store::jobs::JobKey {
                    site: "hpc1".to_owned(),
                    id: job(change - 50, at, &[]).id,
                })
                .collect(),
        };
        let change_of_all = Change {
            removed: &removed,
            entries: &entries,
            removed_segments: &[old],
            segments: &next,
        };
        catalogue.apply(&change_of_all).expect("a change");
        writeln!(out, "change {change}").and_then(|()| out.flush()).expect("a parent that reads");
    }
}

/// Kills its process when dropped, so that a failing test leaves none behind.
struct Kill(Child);

impl Drop for Kill {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lets a child write for a while, and returns the last change that it said was made.
fn live_and_die(path: &Path, random: &mut SplitMix64) -> Option<u64> {
    let mut command = Command::new(std::env::current_exe().expect("this binary has a path"));
    command.args(["--ignored", "--exact", "--nocapture", "--test-threads=1"]);
    command.arg("catalogue::child_that_makes_changes_until_it_is_killed");
    command.env(CHILD_FILE, path).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = Kill(command.spawn().expect("this binary runs"));
    let mut lines = BufReader::new(child.0.stdout.take().expect("a pipe")).lines();
    let number = |line: &str| line.strip_prefix("change ").and_then(|n| n.parse::<u64>().ok());
    // One of four is killed before its first change is acknowledged.
    let mut last = None;
    if random.below(4) > 0 {
        last = lines.by_ref().map_while(Result::ok).find_map(|line| number(&line));
    }
    std::thread::sleep(Duration::from_micros(random.below(LONGEST_LIFE_US) as u64));
    child.0.kill().expect("our own child");
    child.0.wait().expect("our own child");
    // The pipe keeps the lines of a process that has ended. A line that was cut is no acknowledgement.
    lines.map_while(Result::ok).filter_map(|line| number(&line)).last().or(last)
}

#[test]
fn kills_lose_no_acknowledged_change() {
    let seed = number_of("SKOPOS_TEST_SEED", 1);
    let mut random = SplitMix64::new(seed);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("jobs.db");
    let (mut acknowledged, mut seen) = (0, 0);
    for kill in rounds("SKOPOS_TEST_KILLS", KILLS) {
        let last = live_and_die(&path, &mut random);
        acknowledged = acknowledged.max(last.unwrap_or(0));
        let what = format!("seed {seed}, kill {kill}, change {acknowledged} was acknowledged");
        let catalogue = SqliteCatalogue::open(&path).expect("a catalogue");
        let names = catalogue.segments("").expect("names");
        let made = names.last().map_or(0, |name| name[8..].parse::<u64>().expect("a number"));
        assert!(made >= acknowledged, "{what}, and {made} is the last one");
        let first = made.saturating_sub(49).max(1);
        assert_eq!(names, (first..=made).map(segment).collect::<Vec<_>>(), "{what}");
        let count = |filter: Filter| catalogue.count(&filter).expect("a count");
        assert_eq!(count(everything()), names.len() as u64 * JOBS as u64, "{what}");
        for change in first..=made {
            let parts: &[u32] = if change == made { &[0] } else { &[0, 1] };
            for at in 0..JOBS {
                let expected = job(change, at, parts);
                let found = catalogue.get(&Visibility::Everything, "hpc1", &expected.id);
                assert_eq!(found.expect("readable"), Some(expected), "{what}");
            }
            for filter in [
                Filter { host: Some(format!("n{change}")), ..everything() },
                Filter { tags: [format!("t{change}")].into(), ..everything() },
                Filter { text: format!("w{change}"), ..everything() },
            ] {
                assert_eq!(count(filter), JOBS as u64, "{what}");
            }
        }
        assert!(made >= seen, "{what}");
        seen = made;
    }
    assert!(acknowledged > 0, "no child made a change");
}

/// Prints the cost of changes and questions of a million jobs; `SKOPOS_TEST_JOBS` has another number, and
/// `SKOPOS_TEST_FOLDER` the disk.
#[test]
#[ignore = "minutes: prints what a million jobs cost"]
fn the_cost_of_a_million_jobs() {
    let count = number_of("SKOPOS_TEST_JOBS", 1_000_000) as usize;
    let folder = match std::env::var_os("SKOPOS_TEST_FOLDER") {
        Some(folder) => tempfile::tempdir_in(folder),
        None => tempfile::tempdir(),
    };
    let folder = folder.expect("a folder");
    let path = folder.path().join("jobs.db");
    let catalogue = SqliteCatalogue::open(&path).expect("a catalogue");
    let mut random = SplitMix64::new(1);
    fill(&catalogue, count, &mut random);
    let size = std::fs::metadata(&path).expect("a file").len();
    println!("{} bytes a job on disk", size / count as u64);
    print_costs_of_questions(&catalogue, count, &mut random);
}

/// Makes a question.
type Make<'m> = &'m dyn Fn(&mut SplitMix64) -> Filter;

/// Makes the jobs, and makes some again. A change has as many jobs as a segment; `SKOPOS_TEST_BATCH` has another number.
fn fill(catalogue: &SqliteCatalogue, count: usize, random: &mut SplitMix64) {
    let batch = number_of("SKOPOS_TEST_BATCH", 500) as usize;
    let document = serde_json::to_string(&usual_job(0, random)).expect("a document");
    println!("a document has {} bytes", document.len());
    let (mut spent, mut slowest) = (Duration::ZERO, Duration::ZERO);
    let mut since_report = Duration::ZERO;
    for first in (0..count).step_by(batch) {
        let entries: Vec<_> = (first..first + batch).map(|n| usual_job(n, random)).collect();
        let began = Instant::now();
        catalogue.apply(&Change { entries: &entries, ..Change::default() }).expect("a change");
        let took = began.elapsed();
        (spent, since_report) = (spent + took, since_report + took);
        slowest = slowest.max(took);
        if (first + batch).is_multiple_of(100_000) {
            let rate = 100_000.0 / since_report.as_secs_f64();
            println!("{} jobs: {rate:.0} upserts/s, slowest change {slowest:?}", first + batch);
            (since_report, slowest) = (Duration::ZERO, Duration::ZERO);
        }
    }
    println!("{:.0} upserts/s in all", count as f64 / spent.as_secs_f64());
    let again: Vec<_> = (0..5000).map(|_| usual_job(random.below(count), random)).collect();
    let began = Instant::now();
    for entries in again.chunks(batch) {
        catalogue.apply(&Change { entries, ..Change::default() }).expect("a change");
    }
    println!("{:.0} replacements/s", 5000.0 / began.elapsed().as_secs_f64());
}

fn print_costs_of_questions(catalogue: &SqliteCatalogue, count: usize, random: &mut SplitMix64) {
    let user = |random: &mut SplitMix64| format!("user{:03}", random.below(USERS));
    let day = |random: &mut SplitMix64| {
        let from = random.below(99) as i64 * DAY;
        Some((Timestamp::from_nanos(from), Timestamp::from_nanos(from + DAY)))
    };
    let own = |random: &mut SplitMix64| Visibility::Own {
        user: user(random),
        leads: [format!("project{:02}", random.below(40))].into(),
    };
    let cases: [(&str, Make<'_>); 10] = [
        ("user and day", &|r| Filter { user: Some(user(r)), ran: day(r), ..everything() }),
        ("own jobs and day", &|r| Filter { ran: day(r), ..Filter::new(own(r)) }),
        ("own jobs", &|r| Filter::new(own(r))),
        ("day", &|r| Filter { ran: day(r), ..everything() }),
        ("host and day", &|r| Filter {
            host: Some(format!("n{:04}", r.below(NODES))),
            ran: day(r),
            ..everything()
        }),
        ("tag", &|r| Filter { tags: [format!("study{}", r.below(100))].into(), ..everything() }),
        ("two words", &|r| Filter {
            text: format!("openfoam run {}", r.below(50)),
            ..everything()
        }),
        ("a rare word", &|r| Filter { text: r.below(count).to_string(), ..everything() }),
        ("job", &|r| Filter {
            job: Some((4_000_000 + r.below(count)).to_string()),
            ..everything()
        }),
        ("nothing", &|_| everything()),
    ];
    for (name, filter) in cases {
        print_cost(catalogue, name, filter, random);
    }
}

/// Asks for fifty pages and counts, and prints median and maximum.
fn print_cost(catalogue: &SqliteCatalogue, name: &str, make: Make<'_>, random: &mut SplitMix64) {
    let request = PageRequest { most: 100, ..PageRequest::default() };
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    let mut found = 0;
    for _ in 0..50 {
        let filter = make(random);
        let began = Instant::now();
        found += catalogue.rows(&filter, &request).expect("rows").items.len();
        times[0].push(began.elapsed());
        let began = Instant::now();
        catalogue.entries(&filter, &request).expect("entries");
        times[1].push(began.elapsed());
        let began = Instant::now();
        catalogue.count(&filter).expect("a count");
        times[2].push(began.elapsed());
    }
    let percentiles = times.map(|mut times| {
        times.sort_unstable();
        format!("{:?} / {:?}", times[25], times[49])
    });
    let [rows, entries, counted] = percentiles;
    println!("{name} ({} jobs): rows {rows}, entries {entries}, count {counted}", found / 50);
}
