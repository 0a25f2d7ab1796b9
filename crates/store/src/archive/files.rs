//! The files of archived tasks: what a report says beside its summary, if accesses to each file were counted.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use rusqlite::{Transaction, params};
use skopos_model::task::{FILES_VERSION, Files, MAX_FILE_ROWS, Summary, TaskFiles};

use super::document::{MAX_DOCUMENT_BYTES, Versioned};
use super::error::{Error, sql_error};
use super::file::Archive;
use super::rows::{Filter, condition};

/// The field of an exported report that has its files.
#[derive(serde::Deserialize)]
struct Exported {
    #[serde(default)]
    files: Option<TaskFiles>,
}

/// A task of the archive whose files were counted.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskWithFiles {
    /// The number of its report.
    pub number: i64,
    /// The node on which it ran.
    pub node: String,
    /// The start, in seconds of UNIX time.
    pub start_seconds: f64,
    /// Its files.
    pub files: TaskFiles,
}

impl Archive {
    /// Returns at most `most` tasks whose files were counted, in the order of import, of those that pass the filters and
    /// whose number is above `after`. A filter may let more through.
    ///
    /// # Errors
    /// The archive cannot be read, or has a list of files that is not one.
    pub fn files(
        &self,
        filters: &[Filter],
        after: i64,
        most: usize,
    ) -> Result<Vec<TaskWithFiles>, Error> {
        let (clause, values) = condition(filters, after);
        let query = format!(
            "SELECT id, host, start_seconds, (SELECT document FROM files WHERE files.task = task.id)
             FROM task WHERE {clause} AND id IN (SELECT task FROM files) ORDER BY id LIMIT {most}"
        );
        let doing = "the files of a task cannot be read";
        let (mut all, mut wrong) = (Vec::new(), None);
        self.for_each_row(&query, values, doing, |row| {
            match serde_json::from_str(&row.get::<_, String>(3)?) {
                Ok(files) => all.push(TaskWithFiles {
                    number: row.get(0)?,
                    node: row.get(1)?,
                    start_seconds: row.get(2)?,
                    files,
                }),
                Err(e) => wrong = Some(e),
            }
            Ok(wrong.is_none())
        })?;
        match wrong {
            Some(e) => {
                let source = rusqlite::Error::ToSqlConversionFailure(e.into());
                Err(sql_error(&self.path, doing, source))
            }
            None => Ok(all),
        }
    }
}

/// Reads the files of a task, or returns the reason for which `path` has none.
pub(super) fn read_files(path: &Path, summary: &Summary) -> Result<TaskFiles, String> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|e| e.to_string())?;
    file.take(MAX_DOCUMENT_BYTES + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    if bytes.len() as u64 > MAX_DOCUMENT_BYTES {
        return Err(format!("longer than {MAX_DOCUMENT_BYTES} bytes"));
    }
    let no_files = |e| format!("not the files of a task: {e}");
    let Versioned { version } = serde_json::from_slice(&bytes).map_err(no_files)?;
    if version != FILES_VERSION {
        return Err(format!("files of version {version}, and this program knows {FILES_VERSION}"));
    }
    let files: Files = serde_json::from_slice(&bytes).map_err(no_files)?;
    checked(TaskFiles::new(summary, &files, MAX_FILE_ROWS))
}

/// Reads the files that an exported report has, or returns the reason for which they are not the files of a task.
pub(super) fn files_within(report: &[u8]) -> Result<Option<TaskFiles>, String> {
    let exported: Exported =
        serde_json::from_slice(report).map_err(|e| format!("not the files of a task: {e}"))?;
    exported.files.map(checked).transpose()
}

/// Reads the files of a task as the archive keeps them, or returns the reason for which they are damaged.
pub(super) fn kept_files(document: &str) -> Result<TaskFiles, String> {
    serde_json::from_str(document)
        .map_err(|e| format!("not the files of a task: {e}"))
        .and_then(checked)
}

fn checked(files: TaskFiles) -> Result<TaskFiles, String> {
    files.check().map_err(|e| e.to_string())?;
    Ok(files)
}

/// Returns an exported report: the document of the report with its files, if they were counted.
pub(super) fn with_files(report: String, files: Option<&str>) -> String {
    match (report.strip_suffix('}'), files) {
        (Some(fields), Some(files)) => format!("{fields},\"files\":{files}}}"),
        _ => report,
    }
}

/// Inserts the files of a task, unless the archive has them.
pub(super) fn insert_files(
    transaction: &Transaction<'_>,
    task: i64,
    files: &TaskFiles,
) -> rusqlite::Result<()> {
    let text = serde_json::to_string(files)
        .map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))?;
    transaction
        .prepare_cached(
            "INSERT INTO files (task, document) VALUES (?, ?) ON CONFLICT (task) DO NOTHING",
        )?
        .execute(params![task, text])?;
    Ok(())
}
