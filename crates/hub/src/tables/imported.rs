//! Tasks of archives that were imported as jobs, for the tables of tasks.
//!
//! A page of them becomes an archive in memory, so that their rows are made, and selected, as those of the archive on the disk.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use skopos_model::Timestamp;
use skopos_model::job::{IMPORTED_PREFIX, IMPORTED_TAG, JobId, Kind, SET_TAG};
use skopos_query::{BoxError, Scan};
use skopos_store::archive::Archive;
use skopos_store::jobs::{Filter, PageRequest, StoredRecord, Visibility};

use crate::jobs::{Jobs, JobsPlace, Question, Reading};

/// Jobs of a page. With a thousand files each they take some ten megabytes.
const PAGE_JOBS: usize = 64;

/// The longest class that the catalogue compares: so long may the name of an application be.
const MAX_CLASS_BYTES: usize = 1024;

/// Bound of the difference between the start of a task in its report and in its job: a report has seconds as a double.
const SLACK_NANOS: i64 = 1_000_000;

/// The imported tasks that a caller may read, a page at a time.
pub(super) struct Imported {
    jobs: Arc<Jobs>,
    scan: Scan,
    filter: Filter,
    /// The next page; `None` at the end.
    request: Option<PageRequest>,
    /// The archive on the disk, whose tasks are left out here.
    archive: Option<Archive>,
    /// The entry in the log of reads, once there is a task.
    reading: Option<Reading>,
}

/// Returns the archives of which a table has the tasks: the one at `path`, if it exists, and pages of imported tasks. A program
/// without a hub has the first one alone.
pub(super) fn archives(
    place: &JobsPlace,
    scan: &Scan,
    path: Option<&Path>,
) -> Result<impl Iterator<Item = Result<Archive, BoxError>> + Send + use<>, BoxError> {
    let open = || path.filter(|path| path.exists()).map(Archive::read).transpose();
    let jobs = if place.is_without_hub() { None } else { place.get()? };
    let imported = match jobs {
        None => None,
        Some(jobs) => Some(Imported {
            filter: Filter { site: Some(jobs.site().to_owned()), ..filter(scan) },
            jobs,
            scan: scan.clone(),
            reading: None,
            request: Some(PageRequest { most: PAGE_JOBS, ..PageRequest::default() }),
            archive: open()?,
        }),
    };
    Ok(open()?.map(Ok).into_iter().chain(imported.into_iter().flatten()))
}

impl Iterator for Imported {
    type Item = Result<Archive, BoxError>;

    fn next(&mut self) -> Option<Self::Item> {
        let request = self.request.take()?;
        let page = self.page(request);
        if let (Err(e), Some(reading)) = (&page, &mut self.reading) {
            reading.fail(&e.to_string());
        }
        Some(page)
    }
}

impl Imported {
    fn page(&mut self, request: PageRequest) -> Result<Archive, BoxError> {
        let found = self.jobs.search(self.scan.caller(), self.filter.clone(), &request)?;
        let mut page = Archive::in_memory()?;
        for row in found.items {
            if row.id.job().starts_with(IMPORTED_PREFIX) && self.add(&row.id, &mut page)? {
                let begin = || self.jobs.reading(self.scan.caller(), Question::Records);
                self.reading.get_or_insert_with(begin).jobs(1);
            }
        }
        self.request = found.next.map(|next| PageRequest { after: Some(next), ..request });
        Ok(page)
    }

    /// Adds the task of a job to an archive. Returns false if the archive on the disk has it.
    fn add(&self, id: &JobId, page: &mut Archive) -> Result<bool, BoxError> {
        let known = self.archive.as_ref().zip(hash_of(id));
        if let Some((archive, hash)) = known
            && archive.has(&hash)?
        {
            return Ok(false);
        }
        let (mut set, mut report, mut files) = (String::new(), None, None);
        for piece in self.jobs.pieces(self.scan.caller(), id)? {
            for record in self.jobs.read(id, piece)?.iter().filter_map(StoredRecord::get) {
                match record.kind {
                    Kind::Start => set = record.start().map(|start| set_of(&start.tags))?,
                    Kind::Report => report = Some(record.content.to_vec()),
                    Kind::Files => files = Some(record.files()?),
                    _ => {}
                }
            }
        }
        let Some(report) = report else { return Ok(false) };
        Ok(page.add_document(&report, &set, files)?)
    }
}

/// Returns the beginning of the hash by which an archive knows the report of a job, as `skopos job import` writes it into the id.
/// The report itself may have come with its fields in another order, and has another hash then.
fn hash_of(id: &JobId) -> Option<[u8; 16]> {
    let digits = id.job().strip_prefix(IMPORTED_PREFIX)?;
    let number = u128::from_str_radix(digits, 16).ok()?;
    (format!("{number:032x}") == digits).then(|| number.to_be_bytes())
}

/// Returns the condition that the catalogue applies.
fn filter(scan: &Scan) -> Filter {
    let class = scan.texts("class").filter(|texts| texts.len() == 1);
    let class = class.and_then(|texts| texts.first().map(|text| (*text).to_owned()));
    let moved =
        |time: &Timestamp, by: i64| Timestamp::from_nanos(time.as_nanos().saturating_add(by));
    let started = scan.times("started_at");
    Filter {
        application: class.filter(|class| class.len() <= MAX_CLASS_BYTES),
        started: started.map(|of| (moved(of.start(), -SLACK_NANOS), moved(of.end(), SLACK_NANOS))),
        tags: [IMPORTED_TAG.to_owned()].into(),
        // The visibility of the caller replaces it.
        ..Filter::new(Visibility::Nothing)
    }
}

/// Returns the name of the set with which a task was archived, by the tags of its job.
fn set_of(tags: &BTreeSet<String>) -> String {
    tags.iter().find_map(|tag| tag.strip_prefix(SET_TAG)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_imported_tasks_have_the_beginning_of_a_hash() {
        let hash = |id: &str| hash_of(&JobId::new(id, 0).expect("an id"));
        let expected = [0, 0xab, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        assert_eq!(hash("task-00ab0000000000000000000000000001"), Some(expected));
        for other in [
            "task-",
            "task-00ab",
            "task-00AB0000000000000000000000000001",
            "task-+0ab0000000000000000000000000001",
            "00ab0000000000000000000000000001",
        ] {
            assert_eq!(hash(other), None, "{other}");
        }
    }
}
