use std::collections::BTreeSet;

use skopos_model::Timestamp;
use skopos_model::job::{JobId, JobStart, JobState, MAX_FIELD_BYTES, MAX_JOB_ID_BYTES};
use skopos_model::task::{ExitType, RESOURCES};

use super::super::super::entry::{Dated, JobEntry};
use super::super::contract::{Catalogue, Change, MAX_LOOKED_UP};
use super::super::error::Error;
use super::super::filter::{
    Amount, Filter, FilterError, MAX_CONDITIONS, ResourceRange, Visibility,
};
use super::super::page::{Cursor, Key, PageRequest};
use super::super::row::Columns;
use super::common::{Open, everything};
use super::jobs::{Jobs, WORDS, entry};

/// Jobs that the catalogue has, and questions about them.
const JOBS: usize = 300;
pub(super) const QUESTIONS: usize = 600;

fn filled(catalogue: &dyn Catalogue, entries: &[JobEntry]) {
    catalogue.apply(&Change { entries, ..Change::default() }).expect("a change");
}

/// Returns some jobs, each of which stands once.
pub(super) fn some_jobs(jobs: &mut Jobs) -> Vec<JobEntry> {
    let mut seen = BTreeSet::new();
    let all: Vec<JobEntry> = (0..JOBS).map(|_| jobs.job()).collect();
    all.into_iter().filter(|e| seen.insert((e.site.clone(), e.id.clone()))).collect()
}

impl Jobs {
    fn maybe<T>(&mut self, one_in: usize, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.below(one_in) == 0).then(|| value(self))
    }

    fn visibility(&mut self) -> Visibility {
        match self.below(8) {
            0 => Visibility::Nothing,
            1..4 => Visibility::Own { user: self.word(), leads: self.words(2) },
            _ => Visibility::Everything,
        }
    }

    pub(super) fn filter(&mut self) -> Filter {
        Filter {
            visibility: self.visibility(),
            site: self.maybe(6, |_| "it's".to_owned()),
            job: self.maybe(20, |jobs| format!("{}{}", jobs.below(60), jobs.word())),
            ids: match self.below(10) {
                0 => (0..8).map(|_| format!("{}{}", self.below(60), self.word())).collect(),
                _ => BTreeSet::new(),
            },
            generation: self.maybe(6, |jobs| jobs.below(3) as u32),
            user: self.maybe(5, Self::word),
            project: self.maybe(8, Self::word),
            application: self.maybe(10, Self::word),
            queue: self.maybe(10, Self::word),
            host: self.maybe(5, Self::word),
            ran: self.maybe(4, Self::times),
            started: self.maybe(6, Self::times),
            ended: self.maybe(6, Self::times),
            states: match self.below(6) {
                0 => vec![JobState::Running, JobState::Failed, JobState::Orphan],
                _ => Vec::new(),
            },
            exit_types: match self.below(8) {
                0 => vec![ExitType::Limit],
                _ => Vec::new(),
            },
            tags: match self.below(5) {
                0 => self.words(2),
                _ => BTreeSet::new(),
            },
            resources: match self.below(5) {
                0 => vec![self.range()],
                _ => Vec::new(),
            },
            text: match self.below(4) {
                0 => ["ann", "UEBUNG", "übung", "gro*", "mpi x", "b*", "7 ann", "nul"]
                    [self.below(8)]
                .to_owned(),
                _ => String::new(),
            },
        }
    }

    fn times(&mut self) -> (Timestamp, Timestamp) {
        let from = self.below(60) as i64;
        let to = from + self.below(20) as i64;
        match self.below(8) {
            0 => (Timestamp::from_nanos(i64::MIN), Timestamp::from_nanos(to)),
            1 => (Timestamp::from_nanos(from), Timestamp::from_nanos(i64::MAX)),
            _ => (Timestamp::from_nanos(from), Timestamp::from_nanos(to)),
        }
    }

    fn range(&mut self) -> ResourceRange {
        let amount = [Amount::Used, Amount::Requested][self.below(2)];
        let from = self.amount();
        let to = [from, from + 1.0, f64::INFINITY][self.below(3)];
        ResourceRange { amount, resource: &RESOURCES[self.below(4)], from, to }
    }
}

pub(super) fn every_question_is_answered_as_in_memory(open: Open<'_>, seed: u64) {
    let (catalogue, mut jobs) = (open(), Jobs::new(seed));
    let entries = some_jobs(&mut jobs);
    // Each entry replaces another one of its job, by which the job must not be found any more.
    let before = entries.iter().map(|entry| {
        let (site, id) = (entry.site.clone(), entry.id.clone());
        JobEntry { site, id, parts: Vec::new(), ..jobs.job() }
    });
    filled(&*catalogue, &before.collect::<Vec<_>>());
    filled(&*catalogue, &entries);
    let (mut some, mut none) = (0, 0);
    for question in 0..QUESTIONS {
        let filter = jobs.filter();
        let expected: BTreeSet<_> = entries
            .iter()
            .filter(|entry| filter.matches(entry))
            .map(|entry| (entry.site.clone(), entry.id.clone()))
            .collect();
        let what = format!("seed {seed}, question {question}: {filter:?}");
        let request = PageRequest::default();
        let rows = catalogue.rows(&filter, &request).expect("rows").items;
        let found: BTreeSet<_> = rows.iter().map(|r| (r.site.clone(), r.id.clone())).collect();
        assert_eq!((found.len(), &found), (rows.len(), &expected), "{what}");
        assert_eq!(catalogue.count(&filter).expect("a count"), expected.len() as u64, "{what}");
        let found = catalogue.entries(&filter, &request).expect("entries").items;
        assert_eq!(found.len(), rows.len(), "{what}");
        for (found, row) in found.iter().zip(&rows) {
            let stored = entries.iter().find(|e| e.site == found.site && e.id == found.id);
            assert_eq!(Some(found), stored, "{what}");
            let columns = Columns::of(found).expect("a row");
            assert_eq!(Ok(row), columns.row().as_ref(), "{what}");
        }
        if expected.is_empty() { none += 1 } else { some += 1 }
    }
    assert!(some > QUESTIONS / 10 && none > QUESTIONS / 10, "{some} {none}: poor questions");
}

pub(super) fn a_job_that_is_not_visible_is_neither_found_nor_counted(open: Open<'_>) {
    let catalogue = open();
    let of = |job: &str, user: &str, project: &str| {
        let start =
            JobStart { user: user.to_owned(), project: project.to_owned(), ..JobStart::default() };
        JobEntry { start: Some(Dated { at: 1, value: start }), ..entry(job, &[0]) }
    };
    let jobs = [of("1", "ann", "bio"), of("2", "bob", "astro"), of("3", "", ""), entry("4", &[0])];
    filled(&*catalogue, &jobs);
    let own = |user: &str, leads: &[&str]| Visibility::Own {
        user: user.to_owned(),
        leads: leads.iter().map(|project| (*project).to_owned()).collect(),
    };
    for (visibility, expected) in [
        (Visibility::Everything, "1234"),
        (Visibility::Nothing, ""),
        (own("ann", &[]), "1"),
        (own("ann", &["astro", "x"]), "12"),
        (own("eve", &["bio"]), "1"),
        (own("eve", &[""]), ""),
        (own("", &[]), ""),
        (own("ann' OR 1=1 --", &["astro') OR ('1'='1"]), ""),
    ] {
        let count = |filter: Filter| catalogue.count(&filter).expect("a count");
        assert_eq!(count(Filter::new(visibility.clone())), expected.len() as u64, "{visibility:?}");
        // Jobs that are not there, and those of another site, are not visible.
        let mut ids: Vec<JobId> = jobs.iter().map(|job| job.id.clone()).collect();
        ids.push(JobId::new("5", 0).expect("an id"));
        ids.push(JobId::new("1", 1).expect("an id"));
        let visible = |site: &str| catalogue.visible(&visibility, site, &ids).expect("readable");
        let name = |id: &JobId| format!("{}{}", id.job(), id.generation());
        let shown: Vec<String> = visible(&jobs[0].site).iter().map(name).collect();
        let wanted: Vec<String> = expected.chars().map(|job| format!("{job}0")).collect();
        assert_eq!(shown, wanted, "{visibility:?}");
        assert!(visible("elsewhere").is_empty(), "{visibility:?}");
        for job in &jobs {
            let is_visible = expected.contains(job.id.job());
            let found = catalogue.get(&visibility, &job.site, &job.id).expect("readable");
            assert_eq!(found.is_some(), is_visible, "{visibility:?} {}", job.id);
            let by_user = Filter {
                user: Some(job.user().unwrap_or("nobody").to_owned()),
                ..Filter::new(visibility.clone())
            };
            assert_eq!(count(by_user) > 0, is_visible && job.user().is_some(), "{visibility:?}");
            let by_project = Filter {
                project: Some(job.project().unwrap_or("none").to_owned()),
                ..Filter::new(visibility.clone())
            };
            assert_eq!(count(by_project) > 0, is_visible && job.user().is_some());
        }
    }
    let many = vec![jobs[0].id.clone(); MAX_LOOKED_UP + 1];
    let ask = |ids: &[JobId]| catalogue.visible(&Visibility::Everything, &jobs[0].site, ids);
    assert_eq!(ask(&many[1..]).expect("as many as are allowed").len(), 1);
    let refused = ask(&many);
    assert!(matches!(refused, Err(Error::Large { .. })), "{refused:?}");
}

pub(super) fn odd_texts_are_kept_and_found(open: Open<'_>) {
    let catalogue = open();
    let odd =
        WORDS.iter().chain(&["a\u{FFFD}0", "\u{FFFD}", "'; DROP TABLE job; --", "\\", "$1", "?1"]);
    let odd: Vec<&str> = odd.copied().filter(|word| !word.is_empty()).collect();
    let of = |(at, word): (usize, &&str)| {
        let mut job = entry(&format!("{at} {}", word.replace('\0', "")), &[0]);
        let start = JobStart { user: (*word).to_owned(), ..JobStart::default() };
        job.site = (*word).to_owned();
        job.start = Some(Dated { at: 1, value: start });
        job.nodes = [(*word).to_owned()].into();
        job.tags = [((*word).to_owned(), (1, true))].into();
        job
    };
    let jobs: Vec<JobEntry> = odd.iter().enumerate().map(of).collect();
    filled(&*catalogue, &jobs);
    for (job, word) in jobs.iter().zip(&odd) {
        let found = catalogue.get(&Visibility::Everything, word, &job.id).expect("readable");
        assert_eq!(found.as_ref(), Some(job));
        let own = Visibility::Own { user: (*word).to_owned(), leads: BTreeSet::new() };
        let ids = std::slice::from_ref(&job.id);
        let visible = catalogue.visible(&own, word, ids).expect("readable");
        assert_eq!(visible, [job.id.clone()].into(), "{word:?}");
        let word = (*word).to_owned();
        for filter in [
            Filter { user: Some(word.clone()), ..everything() },
            Filter { site: Some(word.clone()), ..everything() },
            Filter { host: Some(word.clone()), ..everything() },
            Filter { tags: [word.clone()].into(), ..everything() },
            Filter { job: Some(job.id.job().to_owned()), ..everything() },
            Filter::new(Visibility::Own { user: word.clone(), leads: BTreeSet::new() }),
        ] {
            let rows = catalogue.rows(&filter, &PageRequest::default()).expect("rows").items;
            let found: Vec<_> = rows.iter().map(|row| (&row.site, row.user.as_deref())).collect();
            assert_eq!(found, [(&job.site, job.user())], "{filter:?}");
        }
    }
    assert_eq!(catalogue.count(&everything()).expect("a count"), jobs.len() as u64);
}

/// Names of the greatest length, also of characters that a database has to write in another form, and of letters that no
/// compression makes shorter.
pub(super) fn the_longest_names_are_kept_and_found(open: Open<'_>, seed: u64) {
    let (catalogue, mut jobs) = (open(), Jobs::new(seed));
    let mut letter = || char::from(b' ' + jobs.below(95) as u8);
    let long: String = (0..MAX_FIELD_BYTES).map(|_| letter()).collect();
    for (site, tag) in [("a", &long), ("b", &"\0".repeat(MAX_FIELD_BYTES))] {
        let start = JobStart {
            user: long.clone(),
            project: long.clone(),
            application: long.clone(),
            nodes: [tag.clone()].into(),
            tags: [tag.clone()].into(),
            ..JobStart::default()
        };
        let mut job = entry(&"j".repeat(MAX_JOB_ID_BYTES), &[0]);
        job.site = site.to_owned();
        job.nodes.clone_from(&start.nodes);
        job.start = Some(Dated { at: 1, value: start });
        filled(&*catalogue, std::slice::from_ref(&job));
        let filter = Filter {
            site: Some(site.to_owned()),
            user: Some(long.clone()),
            project: Some(long.clone()),
            application: Some(long.clone()),
            host: Some(tag.clone()),
            tags: [tag.clone()].into(),
            ..everything()
        };
        let found = catalogue.entries(&filter, &PageRequest::default()).expect("entries").items;
        assert_eq!(found, [job]);
    }
}

pub(super) fn questions_out_of_bounds_are_refused(open: Open<'_>) {
    let catalogue = open();
    let check = |filter: Filter, expected: FilterError| {
        let refused = catalogue.count(&filter).expect_err("a refusal");
        assert!(matches!(refused, Error::Filter(ref e) if *e == expected), "{refused}");
        catalogue.rows(&filter, &PageRequest::default()).expect_err("a refusal");
        catalogue.entries(&filter, &PageRequest::default()).expect_err("a refusal");
    };
    let (count, most) = (MAX_CONDITIONS + 1, MAX_CONDITIONS);
    let names = || (0..count).map(|n| n.to_string());
    let tags = Filter { tags: names().collect(), ..everything() };
    check(tags, FilterError::Many { what: "tags", count, most });
    let text = names().collect::<Vec<_>>().join(" ");
    check(Filter { text, ..everything() }, FilterError::Many { what: "words", count, most });
    let host = Some("x".repeat(5000));
    check(Filter { host, ..everything() }, FilterError::Long(5000));
    let resource = &RESOURCES[0];
    let range = ResourceRange { amount: Amount::Used, resource, from: f64::NAN, to: 1.0 };
    let not_a_number = FilterError::NotANumber(resource.name);
    check(Filter { resources: vec![range], ..everything() }, not_a_number);
    let after = Some(Cursor { key: Key::Amount(1.0), number: 1 });
    let request = PageRequest { after, ..PageRequest::default() };
    let refused = catalogue.rows(&everything(), &request);
    assert!(matches!(refused, Err(Error::Filter(FilterError::Cursor))), "{refused:?}");
}
