//! Catalogues that an earlier version of Skopos has written. The tests of each database keep the SQL of every earlier version of
//! its format as it was, and write these jobs with it.

use skopos_model::job::JobState;

use super::super::super::entry::JobEntry;
use super::super::contract::{Catalogue, Change, JobKey};
use super::super::filter::{Filter, Visibility};
use super::super::page::PageRequest;
use super::super::stored::Stored;
use super::common::{Open, dump, everything};
use super::jobs::{Jobs, entry};
use super::questions::{QUESTIONS, some_jobs};

/// The segments of an earlier catalogue.
pub const EARLIER_SEGMENTS: [&str; 2] = ["segment-0", "segment-1"];

/// The document of a job as the first version wrote it.
const FIRST_DOCUMENT: &str = r#"{"site":"hpc1","id":{"job":"4711","generation":1},"start":{"at":10,"user":"ann","project":"bio","name":"fold","application":"gromacs","queue":"batch","launcher":"slurm","command":["mdrun"],"folder":"/home/ann","nodes":["n1"],"tags":["study"],"requested":{"cores":4.0},"submit_seconds":1.0,"start_seconds":null,"details":{"cluster":"c"}},"end":{"at":20,"state":"failed","exit_type":"normal","status":3,"signal":null,"end_seconds":null,"used":{"cpu_seconds":7.5}},"times":[10,20],"nodes":["n1"],"tags":{"slow":[15,true]},"used":{"resident_bytes_max":1024.0},"schemas":["node"],"findings":["idle cores"],"samples":3,"reports":1,"lost":2,"parts":[{"number":0,"segment":"segment-0","rows":6}]}"#;

/// Returns the state that a version gives a job in which jobs without a start had no state of their own.
fn state_without_orphans(entry: &JobEntry) -> JobState {
    match (&entry.end, &entry.start) {
        (Some(end), _) => end.value.state,
        (None, Some(_)) => JobState::Running,
        (None, None) => JobState::Unknown,
    }
}

/// Returns the jobs of an earlier catalogue.
fn jobs(seed: u64) -> Vec<JobEntry> {
    let mut entries = some_jobs(&mut Jobs::new(seed));
    entries.push(serde_json::from_str(FIRST_DOCUMENT).expect("an entry"));
    entries
}

/// Returns the jobs of an earlier catalogue as a version stored them that knew no orphans.
pub fn earlier(seed: u64) -> Vec<Stored> {
    let of = |entry: JobEntry| {
        let mut stored = Stored::of(&entry).expect("a row");
        stored.columns.state = state_without_orphans(&entry).name().to_owned();
        stored
    };
    let mut all: Vec<Stored> = jobs(seed).into_iter().map(of).collect();
    if let Some(last) = all.last_mut() {
        FIRST_DOCUMENT.clone_into(&mut last.document);
    }
    all
}

/// Checks a catalogue that an earlier version has filled with [`earlier`] jobs and [`EARLIER_SEGMENTS`]: it answers as one that
/// is filled with them now, and goes on as that one.
pub fn check_upgraded(upgraded: &dyn Catalogue, open: Open<'_>, seed: u64) {
    let (fresh, entries) = (open(), jobs(seed));
    let segments = EARLIER_SEGMENTS.map(str::to_owned);
    let all = Change { entries: &entries, segments: &segments, ..Change::default() };
    fresh.apply(&all).expect("a change");
    // The end of a job with a start may say `orphan` too.
    let is_orphan = |entry: &&JobEntry| entry.state() == JobState::Orphan;
    let orphans = entries.iter().filter(is_orphan).count() as u64;
    let states = vec![JobState::Orphan];
    let found = upgraded.count(&Filter { states, ..everything() }).expect("a count");
    assert!(orphans > 0 && found == orphans, "{found} of {orphans} orphans");
    answers_alike(upgraded, &*fresh, seed);
    assert_eq!(upgraded.segments("").expect("names"), segments);
    let last = entries.last().expect("an entry");
    let is_found = |user: &str| {
        let visibility = Visibility::Own { user: user.to_owned(), leads: Default::default() };
        upgraded.get(&visibility, &last.site, &last.id).expect("readable").is_some()
    };
    assert!(is_found("ann") && !is_found("eve"));

    // The numbers of new jobs continue, and known jobs are replaced and removed.
    let mut changed = entries[..20].to_vec();
    changed.iter_mut().for_each(|entry| entry.samples += 1);
    changed.push(entry("new", &[0]));
    let key = |of: &JobEntry| JobKey { site: of.site.clone(), id: of.id.clone() };
    let removed: Vec<JobKey> = entries[20..40].iter().map(key).collect();
    let next = Change { removed: &removed, entries: &changed, ..Change::default() };
    let applied = [upgraded, &*fresh].map(|of| of.apply(&next).expect("a change"));
    assert_eq!(applied[0], applied[1]);
    answers_alike(upgraded, &*fresh, seed + 1);
}

/// Checks that two catalogues give the same answers and have the same dump.
fn answers_alike(one: &dyn Catalogue, other: &dyn Catalogue, seed: u64) {
    assert_eq!(dump(one), dump(other));
    let (mut asked, mut some) = (Jobs::new(seed), 0);
    for question in 0..QUESTIONS {
        let filter = asked.filter();
        let what = format!("seed {seed}, question {question}: {filter:?}");
        let request = PageRequest::default();
        let rows = [one, other].map(|of| {
            let mut rows = of.rows(&filter, &request).expect("rows").items;
            // Jobs of the same time stand in the order of their numbers, which databases give as they like.
            rows.sort_by(|a, b| (&a.site, &a.id).cmp(&(&b.site, &b.id)));
            rows
        });
        assert_eq!(rows[0], rows[1], "{what}");
        let counts = [one, other].map(|of| of.count(&filter).expect("a count"));
        assert_eq!(counts, [rows[0].len() as u64; 2], "{what}");
        some += usize::from(!rows[0].is_empty());
    }
    assert!(some > QUESTIONS / 10, "{some}: poor questions");
}
