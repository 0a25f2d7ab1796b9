use std::collections::BTreeMap;

use super::super::super::entry::JobEntry;
use super::super::contract::{Applied, Catalogue, Change, JobKey, MAX_CHANGE};
use super::super::error::Error;
use super::super::filter::Visibility;
use super::common::{Open, dump, everything};
use super::jobs::{Jobs, entry};

fn apply(catalogue: &dyn Catalogue, entries: &[JobEntry]) -> Applied {
    catalogue.apply(&Change { entries, ..Change::default() }).expect("a change")
}

fn key(entry: &JobEntry) -> JobKey {
    JobKey { site: entry.site.clone(), id: entry.id.clone() }
}

fn get(catalogue: &dyn Catalogue, entry: &JobEntry) -> Option<JobEntry> {
    catalogue.get(&Visibility::Everything, &entry.site, &entry.id).expect("readable")
}

pub(super) fn an_entry_replaces_those_of_its_job_that_do_not_have_more_parts(open: Open<'_>) {
    let catalogue = open();
    let changed = |parts: &[u32], samples: u64| JobEntry { samples, ..entry("7", parts) };
    for (parts, samples, kept) in [
        (&[][..], 1, 1),
        (&[], 2, 2),
        (&[0, 1], 3, 3),
        (&[0], 4, 3),
        (&[], 5, 3),
        (&[0, 1], 6, 6),
        (&[0, 1, 3], 7, 7),
        (&[0, 1, 2], 8, 8),
        (&[2], 9, 8),
    ] {
        let applied = apply(&*catalogue, &[changed(parts, samples)]);
        let (written, older) = if kept == samples { (1, 0) } else { (0, 1) };
        assert_eq!((applied.written, applied.older), (written, older), "{parts:?}");
        let found = get(&*catalogue, &entry("7", &[])).expect("an entry");
        assert_eq!(found.samples, kept, "{parts:?}");
        assert_eq!(catalogue.count(&everything()).expect("a count"), 1);
    }
    let of_one = [changed(&[0, 1, 2, 3], 10), changed(&[0], 11), changed(&[0, 1, 2, 3], 12)];
    let applied = apply(&*catalogue, &of_one);
    assert_eq!((applied.written, applied.older), (2, 1), "entries of one change have an order");
    assert_eq!(get(&*catalogue, &of_one[0]), Some(of_one[2].clone()));
}

pub(super) fn a_change_that_is_refused_leaves_nothing(open: Open<'_>) {
    let catalogue = open();
    apply(&*catalogue, &[entry("1", &[0])]);
    let before = dump(&*catalogue);
    let entries = vec![entry("2", &[0]); MAX_CHANGE + 1];
    let refused = catalogue.apply(&Change { entries: &entries, ..Change::default() });
    assert!(matches!(refused, Err(Error::Large { what: "entries", .. })), "{refused:?}");
    assert_eq!(dump(&*catalogue), before);
    assert_eq!(apply(&*catalogue, &[]), Applied::default());
}

pub(super) fn a_change_made_again_changes_nothing(open: Open<'_>, seed: u64) {
    let (catalogue, mut jobs) = (open(), Jobs::new(seed));
    let entries: Vec<JobEntry> = (0..40).map(|_| jobs.job()).collect();
    let removed: Vec<JobKey> = entries.iter().step_by(7).map(key).collect();
    let segments = ["a".to_owned(), "b".to_owned()];
    let change = Change {
        removed: &removed,
        entries: &entries[5..],
        removed_segments: &segments[..1],
        segments: &segments[1..],
    };
    apply(&*catalogue, &entries);
    catalogue.apply(&change).expect("a change");
    let once = dump(&*catalogue);
    catalogue.apply(&change).expect("a change");
    assert_eq!(dump(&*catalogue), once, "seed {seed}");
}

/// Returns the entries that a catalogue has after all of these, in any order: of each job the one with all parts.
fn histories(jobs: &mut Jobs) -> Vec<JobEntry> {
    let mut entries = BTreeMap::new();
    for _ in 0..30 {
        let entry = jobs.job();
        entries.insert(key(&entry), entry);
    }
    let entries = entries.into_values();
    let history = entries.flat_map(|last| {
        let parts = entry("x", &[0, 1, 2, 3]).parts;
        (0..=parts.len()).map(move |count| {
            let mut entry = last.clone();
            entry.parts = parts[..count].to_vec();
            entry.samples = count as u64;
            entry.nodes.insert(format!("n{count}"));
            entry
        })
    });
    history.collect()
}

pub(super) fn the_order_of_changes_does_not_show_in_a_dump(open: Open<'_>, seed: u64) {
    let mut jobs = Jobs::new(seed);
    let mut entries = histories(&mut jobs);
    let mut dumps = Vec::new();
    for round in 0..3 {
        let catalogue = open();
        for chunk in entries.chunks(1 + round * 5) {
            apply(&*catalogue, chunk);
        }
        for name in ["s2", "s1", "s3"] {
            let segments = [name.to_owned()];
            let change = Change { segments: &segments, ..Change::default() };
            catalogue.apply(&change).expect("a change");
        }
        dumps.push(dump(&*catalogue));
        for at in (1..entries.len()).rev() {
            entries.swap(at, jobs.below(at + 1));
        }
    }
    let lines = dumps[0].lines().filter(|line| line.starts_with("job ")).count();
    assert_eq!((lines, entries.len()), (entries.len() / 5, lines * 5), "seed {seed}");
    assert!(dumps.iter().all(|dump| *dump == dumps[0]), "seed {seed}");
    let mut sorted: Vec<&str> = dumps[0].lines().skip(3).collect();
    sorted.sort_by_key(|line| {
        let entry: JobEntry = serde_json::from_str(&line[4..]).expect("an entry");
        key(&entry)
    });
    assert!(dumps[0].lines().skip(3).eq(sorted), "jobs stand in the order of their keys");
}

pub(super) fn a_removed_job_is_gone_and_can_come_back(open: Open<'_>) {
    let catalogue = open();
    let (mut kept, mut gone) = (entry("1", &[0]), entry("2", &[0, 1]));
    (kept.nodes, gone.nodes) = (["n1".to_owned()].into(), ["n1".to_owned()].into());
    gone.findings = ["slow".to_owned()].into();
    gone.tags = [("t".to_owned(), (1, true))].into();
    apply(&*catalogue, &[kept.clone(), gone.clone()]);
    let count = |change: &dyn Fn(&mut super::super::filter::Filter)| {
        let mut filter = everything();
        change(&mut filter);
        catalogue.count(&filter).expect("a count")
    };
    let counts = || {
        [
            count(&|_| {}),
            count(&|filter| filter.host = Some("n1".to_owned())),
            count(&|filter| filter.tags = ["t".to_owned()].into()),
            count(&|filter| filter.text = "slow".to_owned()),
        ]
    };
    assert_eq!(counts(), [2, 2, 1, 1]);
    assert_eq!(
        catalogue.remove(&[key(&gone), key(&gone), key(&entry("3", &[]))]).expect("gone"),
        1
    );
    assert_eq!(counts(), [1, 1, 0, 0]);
    assert_eq!(get(&*catalogue, &gone), None);
    apply(&*catalogue, std::slice::from_ref(&gone));
    assert_eq!(counts(), [2, 2, 1, 1]);
    // Fewer parts, because the others are too old: only together with a removal.
    let fewer = JobEntry { parts: gone.parts[1..].to_vec(), ..gone.clone() };
    assert_eq!(apply(&*catalogue, std::slice::from_ref(&fewer)).older, 1);
    let change = Change {
        removed: &[key(&gone)],
        entries: std::slice::from_ref(&fewer),
        ..Change::default()
    };
    let applied = catalogue.apply(&change).expect("a change");
    assert_eq!((applied.removed, applied.written, applied.older), (1, 1, 0));
    assert_eq!(get(&*catalogue, &gone), Some(fewer));
    assert_eq!(counts(), [2, 2, 1, 1]);
}

pub(super) fn segments_are_a_set_of_names(open: Open<'_>) {
    let catalogue = open();
    let names = ["b".to_owned(), "Z".to_owned(), "a'b".to_owned(), "ä".to_owned()];
    let change = Change { segments: &names, ..Change::default() };
    catalogue.apply(&change).expect("a change");
    catalogue.apply(&change).expect("a change");
    assert_eq!(catalogue.segments("").expect("names"), ["Z", "a'b", "b", "ä"]);
    assert_eq!(catalogue.segments("a'b").expect("names"), ["b", "ä"]);
    let change = Change { removed_segments: &names[..2], ..Change::default() };
    catalogue.apply(&change).expect("a change");
    assert_eq!(catalogue.segments("").expect("names"), ["a'b", "ä"]);
}

/// Four threads with catalogues of their own write the history of the same jobs in different orders.
pub(super) fn front_ends_that_write_at_once_lose_nothing(open: Open<'_>, seed: u64) {
    let entries = histories(&mut Jobs::new(seed));
    let front_ends: Vec<_> = (0..4).map(|_| open()).collect();
    std::thread::scope(|scope| {
        for (at, catalogue) in front_ends.iter().enumerate() {
            let (mut entries, mut jobs) = (entries.clone(), Jobs::new(seed + at as u64));
            for last in (1..entries.len()).rev() {
                entries.swap(last, jobs.below(last + 1));
            }
            scope.spawn(move || {
                for chunk in entries.chunks(7) {
                    apply(&**catalogue, chunk);
                    catalogue.count(&everything()).expect("a count");
                }
            });
        }
    });
    let expected: u64 = entries.len() as u64 / 5;
    for catalogue in &front_ends {
        assert_eq!(catalogue.count(&everything()).expect("a count"), expected, "seed {seed}");
        for last in entries.iter().filter(|entry| entry.parts.len() == 4) {
            assert_eq!(get(&**catalogue, last).as_ref(), Some(last), "seed {seed}");
        }
        assert_eq!(dump(&**catalogue), dump(&*front_ends[0]), "seed {seed}");
    }
}
