use skopos_model::job::JobId;
use skopos_model::task::RESOURCES;

use super::super::super::entry::JobEntry;
use super::super::contract::{Catalogue, Change};
use super::super::filter::{Filter, Visibility};
use super::super::page::{MAX_PAGE, MAX_PAGE_BYTES, Order, PageRequest, Sort};
use super::super::row::JobRow;
use super::common::{Open, everything};
use super::jobs::{Jobs, entry};
use super::questions::some_jobs;

/// Returns all jobs of a filter, page by page.
fn all(catalogue: &dyn Catalogue, filter: &Filter, order: Order, most: usize) -> Vec<JobRow> {
    let mut request = PageRequest { order, after: None, most };
    let mut jobs = Vec::new();
    loop {
        let page = catalogue.rows(filter, &request).expect("rows");
        assert!(page.items.len() <= most);
        jobs.extend(page.items);
        match page.next {
            Some(next) => request.after = Some(next),
            None => return jobs,
        }
    }
}

pub(super) fn pages_have_each_job_once_and_in_order(open: Open<'_>, seed: u64) {
    let (catalogue, mut jobs) = (open(), Jobs::new(seed));
    let entries = some_jobs(&mut jobs);
    catalogue.apply(&Change { entries: &entries, ..Change::default() }).expect("a change");
    let own = Visibility::Own { user: "ann".to_owned(), leads: ["bob".to_owned()].into() };
    for filter in
        [everything(), Filter::new(own), Filter { user: Some("bob".to_owned()), ..everything() }]
    {
        let expected = entries.iter().filter(|entry| filter.matches(entry)).count();
        for sort in [Sort::Started, Sort::Ended, Sort::Used(&RESOURCES[1])] {
            let known = |row: &JobRow| match sort {
                Sort::Started => row.started.map_or(f64::MIN, |at| at.as_nanos() as f64),
                Sort::Ended => match (row.started, row.ended) {
                    (None, _) => f64::MIN,
                    (_, ended) => ended.map_or(f64::MAX, |at| at.as_nanos() as f64),
                },
                Sort::Used(resource) => *row.used.get(resource.name).unwrap_or(&f64::MIN),
            };
            for is_descending in [false, true] {
                let order = Order { sort, is_descending };
                let whole = all(&*catalogue, &filter, order, MAX_PAGE);
                assert_eq!(whole.len(), expected, "seed {seed}, {order:?}, {filter:?}");
                let mut keys: Vec<f64> = whole.iter().map(known).collect();
                if is_descending {
                    keys.reverse();
                }
                assert!(keys.is_sorted(), "seed {seed}, {order:?}: {keys:?}");
                for most in [1, 7] {
                    let pages = all(&*catalogue, &filter, order, most);
                    assert_eq!(pages, whole, "seed {seed}, {order:?}, pages of {most}");
                }
            }
        }
    }
}

/// Twenty entries of a megabyte do not fit one page.
pub(super) fn a_page_of_large_entries_is_short(open: Open<'_>) {
    let catalogue = open();
    let large = |number: u32| {
        let findings = [number.to_string().repeat(1 << 20)].into();
        JobEntry {
            id: JobId::new(number.to_string(), 0).expect("an id"),
            findings,
            ..entry("1", &[0])
        }
    };
    let entries: Vec<JobEntry> = (0..20).map(|at| large(at % 10 + 10 * (at / 10))).collect();
    catalogue.apply(&Change { entries: &entries, ..Change::default() }).expect("a change");
    let first = catalogue.entries(&everything(), &PageRequest::default()).expect("entries");
    let bytes = |job: &JobEntry| job.findings.iter().map(String::len).sum::<usize>();
    let total: usize = first.items.iter().map(bytes).sum();
    assert!(!first.items.is_empty() && total <= MAX_PAGE_BYTES, "{total}");
    assert!(first.items.len() < entries.len());
    let mut found = first.items;
    let mut after = first.next;
    while after.is_some() {
        let request = PageRequest { after, ..PageRequest::default() };
        let page = catalogue.entries(&everything(), &request).expect("entries");
        assert!(!page.items.is_empty());
        found.extend(page.items);
        after = page.next;
    }
    found.sort_by(|a, b| a.id.cmp(&b.id));
    let mut expected = entries;
    expected.sort_by(|a, b| a.id.cmp(&b.id));
    assert!(found == expected);
}
