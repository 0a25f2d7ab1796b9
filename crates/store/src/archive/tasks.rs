//! The tasks of an archive one by one, each with everything that the archive knows about it. Damage costs at most the
//! task that it is in.

use rusqlite::{Error as SqlError, ErrorCode, OptionalExtension as _, params_from_iter};
use skopos_model::task::{Summary, TaskFiles};

use super::condition::Conditions;
use super::document::{MAX_DOCUMENT_BYTES, hash, report};
use super::error::Error;
use super::file::Archive;
use super::files::kept_files;

/// All numbers of reports, from an index: a damaged page of the table does not end this list. SQLite sorts in files if
/// they are many.
const NUMBERS: &str = "SELECT id FROM task INDEXED BY task_by_class ORDER BY id";

/// Bytes of the hash of a report.
const HASH_BYTES: usize = 32;

/// A task of the archive.
#[derive(Clone, Debug, PartialEq)]
pub struct ArchivedTask {
    /// The number of its report.
    pub number: i64,
    /// SHA-256 of the document, by which the report is known.
    pub hash: [u8; HASH_BYTES],
    /// Name of the set with which it was imported; empty if there is none.
    pub set: String,
    /// The report as a JSON document.
    pub document: String,
    /// The report.
    pub summary: Summary,
    /// The files that it used, if they were counted, or the reason for which they cannot be read.
    pub files: Option<Result<TaskFiles, String>>,
}

/// A task that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedTask {
    /// The number of its report.
    pub number: i64,
    /// The damage.
    pub why: String,
}

impl Archive {
    /// Returns true if the archive has a report whose hash has this beginning.
    ///
    /// # Errors
    /// The archive cannot be read.
    pub fn has(&self, beginning: &[u8]) -> Result<bool, Error> {
        // No hash has this many bytes, so the last one with the beginning is below.
        let last = [beginning, &[u8::MAX; HASH_BYTES]].concat();
        let values = vec![beginning.to_vec().into(), last.into()];
        let mut is_there = false;
        let query = "SELECT 1 FROM task WHERE hash BETWEEN ? AND ? LIMIT 1";
        self.for_each_row(query, values, "the tasks cannot be read", |_| {
            is_there = true;
            Ok(false)
        })?;
        Ok(is_there)
    }

    /// Passes the tasks that meet the conditions to `each`, in the order of import, until it returns false. A task that
    /// is damaged is passed too, whether or not it would meet them. One task at a time is in memory.
    ///
    /// # Errors
    /// The list of tasks cannot be read, or SQLite returned an error that is not about damage.
    pub fn for_each_task(
        &self,
        conditions: &Conditions,
        mut each: impl FnMut(Result<ArchivedTask, DamagedTask>) -> bool,
    ) -> Result<(), Error> {
        self.for_each_row(NUMBERS, Vec::new(), "the tasks cannot be read", |row| {
            let number: i64 = row.get(0)?;
            let damaged = |why| Err(DamagedTask { number, why });
            Ok(match self.task(number, conditions) {
                Ok(None) => true,
                Ok(Some(Ok(task))) => each(Ok(task)),
                Ok(Some(Err(why))) => each(damaged(why)),
                Err(e) if is_damage(&e) => each(damaged(e.to_string())),
                Err(e) => return Err(e),
            })
        })
    }

    /// Returns a task, or the reason for which it is damaged; `None` if it does not meet the conditions.
    fn task(
        &self,
        number: i64,
        conditions: &Conditions,
    ) -> rusqlite::Result<Option<Result<ArchivedTask, String>>> {
        let (clause, mut values) = conditions.sql();
        values.push(number.into());
        // A length that is not that of a report must not size an allocation.
        let query = format!(
            "SELECT ({clause}) IS TRUE, hash, collection,
             iif(octet_length(document) > {MAX_DOCUMENT_BYTES}, NULL, document)
             FROM task WHERE id = ?"
        );
        let mut statement = self.connection.prepare_cached(&query)?;
        let found: Option<(bool, Vec<u8>, String, Option<String>)> = statement
            .query_row(params_from_iter(values), |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })
            .optional()?;
        let Some((is_selected, known, set, document)) = found else {
            return Ok(Some(Err("its report is not there".to_owned())));
        };
        if !is_selected {
            return Ok(None);
        }
        let Some(document) = document else {
            return Ok(Some(Err(format!("its report is longer than {MAX_DOCUMENT_BYTES} bytes"))));
        };
        let hash = hash(&document);
        if known != hash {
            return Ok(Some(Err("its report has changed since it was archived".to_owned())));
        }
        Ok(Some(match report(document.as_bytes()) {
            Ok(summary) => {
                let files = self.files_of_task(number)?;
                Ok(ArchivedTask { number, hash, set, document, summary, files })
            }
            Err(why) => Err(why),
        }))
    }

    /// Returns the files of a task, or the reason for which they are damaged; `None` if they were not counted.
    fn files_of_task(&self, number: i64) -> rusqlite::Result<Option<Result<TaskFiles, String>>> {
        let query = format!(
            "SELECT iif(octet_length(document) > {MAX_DOCUMENT_BYTES}, NULL, document)
             FROM files WHERE task = ?"
        );
        let mut statement = self.connection.prepare_cached(&query)?;
        let found: rusqlite::Result<Option<Option<String>>> =
            statement.query_row([number], |row| row.get(0)).optional();
        match found {
            Ok(None) => Ok(None),
            Ok(Some(None)) => Ok(Some(Err(format!("longer than {MAX_DOCUMENT_BYTES} bytes")))),
            Ok(Some(Some(document))) => Ok(Some(kept_files(&document))),
            Err(e) if is_damage(&e) => Ok(Some(Err(e.to_string()))),
            Err(e) => Err(e),
        }
    }
}

/// Returns true if the row is damaged. Any other error prevents the reading of all rows.
fn is_damage(e: &SqlError) -> bool {
    match e {
        SqlError::SqliteFailure(..) => e.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt),
        // A value has another type than its column, or is not a text.
        _ => true,
    }
}
