//! The conformance suite on Debian's server, several hubs on one database, and a server that is killed.

use std::io::Write as _;
use std::time::{Duration, Instant};

use skopos_model::SplitMix64;
use skopos_store::jobs::catalogue::{Error, conformance};
use skopos_store::jobs::{Catalogue, Change, Filter, JobEntry, JobKey, Visibility};

use super::rounds::rounds;
use super::server::Server;
use super::{PostgresCatalogue, PostgresUrl};

/// Number of kills; `SKOPOS_TEST_KILLS` has another, and `SKOPOS_TEST_SEED` the seed of their times.
const KILLS: u64 = 5;
/// Jobs of a change, and changes, while the server is killed.
const JOBS: usize = 400;
const CHANGES: usize = 6;
/// Times as many kills as are wanted, until one met a change.
const MOST_TRIES: u64 = 10;

fn catalogue(url: &str) -> PostgresCatalogue {
    let place: PostgresUrl = url.parse().expect("a URL");
    PostgresCatalogue::new(&place).expect("a catalogue")
}

fn open(url: &str) -> Box<dyn Catalogue> {
    Box::new(catalogue(url))
}

fn everything() -> Filter {
    Filter::new(Visibility::Everything)
}

fn dump(catalogue: &dyn Catalogue) -> String {
    let mut out = Vec::new();
    catalogue.dump(&mut out).expect("a dump");
    String::from_utf8(out).expect("text")
}

fn number_of(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn a_catalogue_in_postgresql_conforms() {
    let Some(server) = Server::start() else { return };
    for seed in 0..2 {
        conformance::check(&|| open(&server.database()), seed);
    }
}

#[test]
fn hubs_share_a_database() {
    let Some(server) = Server::start() else { return };
    for seed in 0..3 {
        let url = server.database();
        conformance::check_several(&|| open(&url), seed);
    }
}

/// Two hubs change the same jobs in opposite orders, with removals: each waits for the other, and no change is lost.
#[test]
fn hubs_that_remove_and_write_the_same_jobs_at_once_go_on() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let job = |number: usize| conformance::entry(&number.to_string(), &[0]);
    let key = |entry: &JobEntry| JobKey { site: entry.site.clone(), id: entry.id.clone() };
    std::thread::scope(|scope| {
        for hub in 0..2 {
            let url = &url;
            scope.spawn(move || {
                let catalogue = open(url);
                for round in 0..40 {
                    let mut jobs: Vec<JobEntry> = (0..30).map(job).collect();
                    if (hub + round) % 2 == 0 {
                        jobs.reverse();
                    }
                    let removed: Vec<JobKey> = jobs[..15].iter().map(key).collect();
                    let change = Change { removed: &removed, entries: &jobs, ..Change::default() };
                    assert_eq!(catalogue.apply(&change).expect("a change").written, 30);
                }
            });
        }
    });
    assert_eq!(open(&url).count(&everything()).expect("a count"), 30);
}

#[test]
fn hubs_that_start_at_once_make_the_tables_once() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| assert_eq!(open(&url).count(&everything()).expect("a count"), 0));
        }
    });
    server.execute(&url, "INSERT INTO skopos.version VALUES (99)");
    let newer = open(&url).count(&everything());
    assert!(matches!(newer, Err(Error::Newer { found: 99, known: 3, .. })), "{newer:?}");
}

#[test]
fn a_database_that_would_lose_or_change_texts_is_refused() {
    let Some(server) = Server::start() else { return };
    let url = server.url("ascii");
    server.execute(
        &server.url("postgres"),
        "CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0",
    );
    let unfit = open(&url).count(&everything()).expect_err("another encoding");
    assert!(unfit.to_string().contains("its encoding is SQL_ASCII"), "{unfit}");
}

#[test]
fn a_catalogue_connects_again_after_the_server_ended_its_connections() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let catalogue = open(&url);
    let jobs = [conformance::entry("1", &[0])];
    catalogue.apply(&Change { entries: &jobs, ..Change::default() }).expect("a change");
    server.execute(
        &url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'skopos'",
    );
    // The first question may meet the closed connection; it is not kept.
    let counts: Vec<_> = (0..2).map(|_| catalogue.count(&everything())).collect();
    assert!(matches!(counts.last(), Some(Ok(1))), "{counts:?}");
}

/// A question may come from an async task, on both kinds of runtimes.
#[test]
fn async_tasks_ask_too() {
    let Some(server) = Server::start() else { return };
    let catalogue = open(&server.database());
    let one = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let several = tokio::runtime::Builder::new_multi_thread().build().expect("a runtime");
    for runtime in [one, several] {
        let count = runtime.block_on(async { catalogue.count(&everything()) });
        assert_eq!(count.expect("a count"), 0);
    }
}

#[test]
fn a_server_that_is_away_is_named_with_the_cause() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("postgresql://hub:secret@/skopos?host={}", folder.path().display());
    let error = open(&url).count(&everything()).expect_err("no server");
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(e) = cause {
        text = format!("{text}: {e}");
        cause = e.source();
    }
    assert!(text.contains("it cannot be connected to") && text.contains("No such file"), "{text}");
    assert!(!text.contains("secret"), "{text}");
}

/// Returns the changes that are made while the server is killed. Later ones grow and remove jobs of earlier ones.
fn changes(seed: u64) -> Vec<(Vec<JobKey>, Vec<JobEntry>)> {
    let mut random = SplitMix64::new(seed);
    let job = |number: usize, parts: &[u32]| JobEntry {
        nodes: (0..4).map(|at| format!("n{}", number * 7 % (90 + at))).collect(),
        findings: [format!("word{number}")].into(),
        samples: number as u64,
        ..conformance::entry(&number.to_string(), parts)
    };
    let all = (0..CHANGES).map(|change| {
        let new = (change * JOBS..(change + 1) * JOBS).map(|number| job(number, &[0]));
        let grown = (0..JOBS / 4).map(|_| job(random.below((change + 1) * JOBS), &[0, 1]));
        let entries: Vec<JobEntry> = new.chain(grown).collect();
        let removed = (0..change * 5).map(|at| job(at, &[]));
        let removed = removed.map(|job| JobKey { site: job.site, id: job.id });
        (removed.collect(), entries)
    });
    all.collect()
}

/// Makes changes in their order, each until it is acknowledged; `on_error` gets the number of one that failed.
fn make(catalogue: &dyn Catalogue, seed: u64, mut on_error: impl FnMut(usize, Error)) {
    for (number, (removed, entries)) in changes(seed).iter().enumerate() {
        let segments = [format!("segment-{number}")];
        let change = Change { removed, entries, segments: &segments, removed_segments: &[] };
        while let Err(e) = catalogue.apply(&change) {
            on_error(number, e);
        }
    }
}

/// Waits for the server, and checks that it has the whole of a change or nothing of it.
fn is_whole_or_missing(catalogue: &dyn Catalogue, number: usize) {
    let last = (number + 1) * JOBS - 1;
    loop {
        let jobs = [number * JOBS, last].map(|job| {
            let filter = Filter { job: Some(job.to_string()), ..everything() };
            catalogue.count(&filter).map(|count| count == 1)
        });
        if let ([Ok(first), Ok(last)], Ok(segments)) = (jobs, catalogue.segments("")) {
            let segment = segments.contains(&format!("segment-{number}"));
            assert!(first == last && last == segment, "change {number} is there in part");
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The server is killed at some time while changes are made, and the changes are made again until they are acknowledged:
/// the content is the same as without kills.
#[test]
fn kills_of_the_server_lose_no_acknowledged_change() {
    let Some(mut server) = Server::start() else { return };
    let seed = number_of("SKOPOS_TEST_SEED", 1);
    let mut random = SplitMix64::new(seed);
    let expected = open(&server.database());
    let began = Instant::now();
    make(&*expected, seed, |_, e| panic!("{e}"));
    // A server is killed while it makes the changes, however long that takes on this machine.
    let longest = usize::try_from(began.elapsed().as_micros()).unwrap_or(usize::MAX);
    let expected = dump(&*expected);
    let (mut interrupted, mut rounds) = (0, rounds("SKOPOS_TEST_KILLS", KILLS));
    for kill in 0_u64.. {
        let is_over = rounds.next().is_none();
        if is_over && (interrupted > 0 || kill >= MOST_TRIES * KILLS) {
            break;
        }
        let catalogue = catalogue(&server.database());
        let life = Duration::from_micros(random.below(longest) as u64);
        std::thread::scope(|scope| {
            let making = scope.spawn(|| {
                let mut failed = 0;
                make(&catalogue, seed, |number, _| {
                    failed += 1;
                    is_whole_or_missing(&catalogue, number);
                });
                failed
            });
            std::thread::sleep(life);
            server.kill();
            server.restart();
            interrupted += u32::from(making.join().expect("changes") > 0);
        });
        assert_eq!(dump(&catalogue), expected, "seed {seed}, kill {kill} after {life:?}");
    }
    assert!(interrupted > 0, "no kill met a change");
}

/// Prints the speed of upserts; `SKOPOS_TEST_JOBS` has another number of jobs.
#[test]
#[ignore = "a minute: prints what upserts cost"]
fn the_cost_of_upserts_in_postgresql() {
    let Some(server) = Server::start() else { return };
    let catalogue = open(&server.database());
    let count = number_of("SKOPOS_TEST_JOBS", 100_000) as usize;
    let batch = number_of("SKOPOS_TEST_BATCH", 500) as usize;
    let mut random = SplitMix64::new(1);
    let mut spent = Duration::ZERO;
    for first in (0..count).step_by(batch) {
        let jobs = first..first + batch;
        let entries: Vec<_> = jobs.map(|n| conformance::usual_job(n, &mut random)).collect();
        let began = Instant::now();
        catalogue.apply(&Change { entries: &entries, ..Change::default() }).expect("a change");
        spent += began.elapsed();
    }
    let rate = count as f64 / spent.as_secs_f64();
    let _ = writeln!(std::io::stderr(), "{rate:.0} upserts/s of {count} jobs");
}
