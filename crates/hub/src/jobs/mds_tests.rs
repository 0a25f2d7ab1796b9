//! Catalogues that are made again, in both databases, and compared with segments that differ from them.

use std::path::Path;
use std::time::Duration;

use skopos_access::Caller;
use skopos_model::job::{JobId, JobRecord, Kind};
use skopos_store::jobs::catalogue::conformance;
use skopos_store::jobs::{Change, Filter, IntakeLimits, JobEntry, Visibility};

use super::mds::{Difference, Mds, MdsError, Verified};
use super::segments::SegmentsPlace;
use super::shared::now;
use super::store::Jobs;
use super::tests::{LIMITS, eventually, limits};
use crate::catalogue::postgres::server::Server;
use crate::catalogue::{CataloguePlace, PostgresUrl};

const SITE: &str = "s";

fn start(folder: &Path, place: &CataloguePlace) -> Jobs {
    let places = (&SegmentsPlace::new(folder, None), place);
    Jobs::open(folder, SITE, limits(LIMITS), places).expect("opened")
}

fn in_database(folder: &Path, url: &str) -> CataloguePlace {
    let url: PostgresUrl = url.parse().expect("a URL");
    CataloguePlace::new(folder, Some(&url))
}

/// Stores records of a job as a producer of its own, and waits until they are durable.
fn store(jobs: &Jobs, job: &str, records: &[(Kind, &str)]) {
    let owner = Caller::Owner;
    let last = records.len() as i64 - 1;
    let stored = jobs.store(&owner, (job, 1), |visit| {
        for (sequence, (kind, document)) in (0..).zip(records) {
            let (node, content) = ("n01", document.as_bytes());
            let record = JobRecord { kind: *kind, job, generation: 0, node, time: now(), content };
            visit(sequence, record)?;
        }
        Ok(())
    });
    assert_eq!(stored.expect("stored").refused, 0);
    assert!(jobs.wait_durable(&owner, (job, 1), last, Duration::from_secs(60)));
}

/// Stores finished jobs and one that runs.
fn fill(jobs: &Jobs) {
    for number in 0..40 {
        let start = format!(
            r#"{{"user":"u{}","tags":["t{number}","it's \"x\""],"nodes":["n01"],"requested":{{"cores":0.1}}}}"#,
            number % 3
        );
        let end = r#"{"state":"completed","used":{"cpu_seconds":12.3456789}}"#;
        store(jobs, &format!("done-{number}"), &[(Kind::Start, &start), (Kind::End, end)]);
    }
    store(jobs, "runs", &[(Kind::Start, r#"{"user":"ann","name":"long run"}"#)]);
    let sealed = |number: i32| {
        let id = JobId::new(format!("done-{number}"), 0).expect("an id");
        let entry = jobs.entry(&Caller::Owner, &id).expect("read");
        entry.is_some_and(|entry| !entry.parts.is_empty())
    };
    eventually("the jobs are sealed", || (0..40).all(sealed));
    let (site, job) = (Some(jobs.site().to_owned()), Some("runs".to_owned()));
    let filter = Filter { site, job, ..Filter::new(Visibility::Nothing) };
    eventually("the running job is found", || {
        let page = jobs.search(&Caller::Owner, filter.clone(), &Default::default());
        page.expect("read").items.len() == 1
    });
}

fn opened(folder: &Path) -> Result<Mds, MdsError> {
    Mds::open(folder, &SegmentsPlace::new(folder, None))
}

fn dump(place: &CataloguePlace) -> String {
    let mut out = Vec::new();
    place.open().expect("a catalogue").dump(&mut out).expect("a dump");
    String::from_utf8(out).expect("text")
}

fn verify(folder: &Path, place: &CataloguePlace) -> (Verified, Vec<Difference>) {
    let mds = opened(folder).expect("no hub runs");
    let mut found = Vec::new();
    let verified = mds.verify(place, &mut |difference| found.push(difference)).expect("read");
    (verified, found)
}

/// Fills a folder with a catalogue in `place`, makes the catalogue again, and returns its dump.
fn made_again(folder: &Path, place: &CataloguePlace, remove: impl FnOnce()) -> String {
    let jobs = start(folder, place);
    let busy = opened(folder).map(drop);
    assert!(matches!(busy, Err(MdsError::Busy(_))), "a hub uses the folder: {busy:?}");
    fill(&jobs);
    drop(jobs);
    let before = dump(place);
    assert_eq!(before.lines().filter(|line| line.starts_with("job ")).count(), 41);
    remove();
    let rebuilt = opened(folder).expect("no hub runs").rebuild(place).expect("made");
    assert_eq!((rebuilt.jobs, rebuilt.unreadable.len()), (41, 0));
    let after = dump(place);
    assert_eq!(after, before);
    assert_eq!(verify(folder, place).1, []);
    after
}

#[test]
fn a_catalogue_that_is_made_again_has_the_same_dump_in_both_databases() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = CataloguePlace::new(folder.path(), None);
    let remove = || file.remove_file().expect("removed");
    let expected = made_again(folder.path(), &file, remove);
    let Some(server) = Server::start() else { return };
    // The same jobs in PostgreSQL.
    let place = in_database(folder.path(), &server.database());
    opened(folder.path()).expect("no hub runs").rebuild(&place).expect("made");
    assert_eq!(dump(&place), expected);
    // A hub that has its catalogue there from the beginning.
    let folder = tempfile::tempdir().expect("a folder");
    let url = server.database();
    let place = in_database(folder.path(), &url);
    let remove = || server.execute(&url, "DROP SCHEMA skopos CASCADE");
    made_again(folder.path(), &place, remove);
}

#[test]
fn a_catalogue_of_several_sites_keeps_the_jobs_of_the_others() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let place = in_database(folder.path(), &server.database());
    let jobs = start(folder.path(), &place);
    fill(&jobs);
    drop(jobs);
    let other = JobEntry { site: "other".to_owned(), ..conformance::entry("done-1", &[0]) };
    let gone = JobEntry { site: SITE.to_owned(), ..conformance::entry("gone", &[7]) };
    let segments: Vec<String> = [&other, &gone].map(|entry| entry.parts[0].segment.clone()).into();
    let catalogue = place.open().expect("a catalogue");
    let add = |entries: &[JobEntry], segments: &[String]| {
        catalogue.apply(&Change { entries, segments, ..Change::default() }).expect("a change");
    };
    add(std::slice::from_ref(&other), &segments[..1]);
    let expected = dump(&place);
    add(std::slice::from_ref(&gone), &segments[1..]);
    let (verified, found) = verify(folder.path(), &place);
    let missing = segments[1].clone();
    assert_eq!(found, [Difference::MissingJob(gone.id), Difference::MissingSegment(missing)]);
    assert_eq!((verified.jobs, verified.differences), (41, 2));
    opened(folder.path()).expect("no hub runs").rebuild(&place).expect("made");
    assert_eq!(dump(&place), expected);
    assert_eq!(verify(folder.path(), &place).1, []);
}

#[test]
fn differences_between_a_catalogue_and_its_segments_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = CataloguePlace::new(folder.path(), None);
    let jobs = start(folder.path(), &place);
    fill(&jobs);
    drop(jobs);
    let catalogue = place.open().expect("a catalogue");
    let all = catalogue.entries(&Filter::new(Visibility::Everything), &Default::default());
    let mut entries = all.expect("entries").items;
    entries.retain(|entry| !entry.parts.is_empty());
    entries.sort_by(|a, b| a.id.cmp(&b.id));
    let key = |entry: &JobEntry| skopos_store::jobs::JobKey {
        site: entry.site.clone(),
        id: entry.id.clone(),
    };
    let other = JobEntry { samples: 1_000_000, ..entries[1].clone() };
    let segment = entries[2].parts[0].segment.clone();
    let change = Change {
        removed: &[key(&entries[0])],
        entries: std::slice::from_ref(&other),
        removed_segments: std::slice::from_ref(&segment),
        segments: &["segment-of-nobody".to_owned()],
    };
    catalogue.apply(&change).expect("a change");
    let (verified, mut found) = verify(folder.path(), &place);
    found.sort_by_key(ToString::to_string);
    let mut expected = vec![
        Difference::UnknownJob(entries[0].id.clone()),
        Difference::OtherJob(other.id.clone()),
        Difference::UnknownSegment(segment.clone()),
        Difference::MissingSegment("segment-of-nobody".to_owned()),
    ];
    expected.sort_by_key(ToString::to_string);
    assert_eq!((found, verified.differences), (expected, 4));

    // A bit of a segment flips. A hub starts all the same.
    opened(folder.path()).expect("no hub runs").rebuild(&place).expect("made");
    let path = folder.path().join("lts").join(&segment);
    let mut bytes = std::fs::read(&path).expect("a segment");
    bytes[40] ^= 1;
    std::fs::write(&path, bytes).expect("written");
    let (_, found) = verify(folder.path(), &place);
    let [Difference::Damaged { file, lost, .. }] = &found[..] else { panic!("{found:?}") };
    assert_eq!((file, *lost > 0), (&segment, true), "{found:?}");
    drop(start(folder.path(), &place));
    let rebuilt = opened(folder.path()).expect("no hub runs").rebuild(&place).expect("made");
    assert!(!rebuilt.unreadable.is_empty() && rebuilt.jobs + rebuilt.unreadable.len() == 41);
}

/// A hub whose database is away takes records, shows sealed jobs from their segments, and tells the database later.
#[test]
fn a_hub_works_while_its_database_is_away() {
    let Some(mut server) = Server::start() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let place = in_database(folder.path(), &server.database());
    let jobs = start(folder.path(), &place);
    fill(&jobs);
    drop(jobs);
    server.kill();
    let limits = IntakeLimits { settle: Duration::ZERO, ..LIMITS };
    let places = (&SegmentsPlace::new(folder.path(), None), &place);
    let jobs = Jobs::open(folder.path(), SITE, super::tests::limits(limits), places)
        .expect("records are taken");
    store(
        &jobs,
        "new",
        &[(Kind::Start, r#"{"user":"ann"}"#), (Kind::End, r#"{"state":"failed"}"#)],
    );
    let id = |job: &str| JobId::new(job, 0).expect("an id");
    let sealed = jobs.entry(&Caller::Owner, &id("done-3")).expect("a segment has it");
    assert_eq!(sealed.expect("known").user(), Some("u0"));
    eventually("the trouble is told", || {
        jobs.trouble().is_some_and(|why| why.contains("it cannot be connected to"))
    });
    server.restart();
    let filter = Filter { job: Some("new".to_owned()), ..Filter::new(Visibility::Nothing) };
    eventually("the new job is found", || {
        let page = jobs.search(&Caller::Owner, filter.clone(), &Default::default());
        page.is_ok_and(|page| page.items.len() == 1)
    });
    eventually("it is sealed", || {
        let entry = jobs.entry(&Caller::Owner, &id("new")).expect("read").expect("known");
        !entry.parts.is_empty() && jobs.trouble().is_none()
    });
    drop(jobs);
    assert_eq!(verify(folder.path(), &place).1, []);
}

/// Two hubs of two sites tell one database at once.
#[test]
fn hubs_of_two_sites_share_a_database() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let folders = [0; 2].map(|_| tempfile::tempdir().expect("a folder"));
    std::thread::scope(|scope| {
        for (folder, site) in folders.iter().zip(["hpc1", "hpc2"]) {
            let place = in_database(folder.path(), &url);
            scope.spawn(move || {
                let places = (&SegmentsPlace::new(folder.path(), None), &place);
                let jobs = Jobs::open(folder.path(), site, limits(LIMITS), places).expect("opened");
                fill(&jobs);
            });
        }
    });
    for folder in &folders {
        let place = in_database(folder.path(), &url);
        let (verified, found) = verify(folder.path(), &place);
        assert_eq!((verified.jobs, found), (41, Vec::new()));
        let all = place.open().expect("a catalogue").count(&Filter::new(Visibility::Everything));
        assert_eq!(all.expect("a count"), 82);
    }
}
