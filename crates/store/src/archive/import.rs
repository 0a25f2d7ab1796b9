//! Imports reports.
//!
//! A folder is searched for `summary.json`, `*.summary.json`, `*.jsonl` (one report a line, as `export`
//! writes them) and `*.summary` (the names that `resource_monitor` uses). A report is identified by the
//! SHA-256 of its document, which is written anew from the parsed report. White space therefore makes no
//! difference. The `files.json` beside a `summary.json` belongs to that report.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use rusqlite::{OptionalExtension as _, Transaction, TransactionBehavior, params};
use skopos_model::task::{
    Completeness, ExitType, Files, MAX_FILE_ROWS, RESOURCES, Summary, TaskFiles,
};

use super::document::{MAX_DOCUMENT_BYTES, Versioned, hash, report, sound};
use super::error::{Error, sql_error};
use super::file::Archive;
use super::files::{files_within, insert_files, read_files};

/// Reports of one transaction: so many that its own cost does not matter, so few that another writer
/// waits for a fraction of a second.
const BATCH: usize = 500;

/// The deepest folder: deeper than people sort reports. Ends loops of mounts.
const MAX_DEPTH: usize = 32;

/// The name of a report in a folder of its own.
const SUMMARY: &str = "summary.json";

/// The name of the usage of files beside it.
const FILES: &str = "files.json";

/// The most refusals that are listed by name. Further ones are counted.
const MAX_NAMED: usize = 1_000;

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportSummary {
    /// Number of new reports.
    pub added: u64,
    /// Number of reports that the archive had already.
    pub known: u64,
    /// Number of files and lines that were refused.
    pub refused: u64,
    /// The first of these, with the reasons.
    pub refusals: Vec<Refusal>,
}

/// A file, or a line of one, that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The file, with `:LINE` if it has many reports.
    pub place: String,
    /// The reason.
    pub why: String,
}

/// Reads the reports of another tool from a text, or returns the reason for which that is impossible.
pub type ForeignReader = dyn Fn(&str) -> Result<Vec<Summary>, String>;

impl Archive {
    /// Imports files, and the files below folders. `collection` names the reports as a set; an empty
    /// name does not. Files that are not reports of Skopos are passed to `foreign`. After each
    /// report, `progress` receives the number of reports read so far.
    ///
    /// # Errors
    /// The archive cannot be written. Files that cannot be read are counted in the result.
    pub fn import(
        &mut self,
        places: &[PathBuf],
        collection: &str,
        foreign: &ForeignReader,
        progress: &dyn Fn(u64),
    ) -> Result<ImportSummary, Error> {
        let (batch, done) = (Vec::new(), ImportSummary::default());
        let mut import = Import { collection, foreign, progress, batch, done };
        for place in places {
            import.place(self, place, 0)?;
        }
        import.write(self)?;
        Ok(import.done)
    }

    /// Adds the document of a report of a set, with the usage of its files if it was counted. Returns false if the archive had
    /// the report already, or the document is not a report.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add_document(
        &mut self,
        document: &[u8],
        set: &str,
        files: Option<TaskFiles>,
    ) -> Result<bool, Error> {
        match report(document) {
            Ok(summary) => self.add_one(summary, set, files),
            Err(_) => Ok(false),
        }
    }

    /// Adds one report, with the usage of its files if it was counted. Returns false if the archive had the report already.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, summary: &Summary, files: Option<&Files>) -> Result<bool, Error> {
        let files = files.map(|files| TaskFiles::new(summary, files, MAX_FILE_ROWS));
        self.add_one(summary.clone(), "", files)
    }

    fn add_one(
        &mut self,
        summary: Summary,
        collection: &str,
        files: Option<TaskFiles>,
    ) -> Result<bool, Error> {
        let foreign: &ForeignReader = &|_| Ok(Vec::new());
        let (batch, done) = (vec![(summary, files)], ImportSummary::default());
        let mut import = Import { collection, foreign, progress: &|_| {}, batch, done };
        import.write(self)?;
        Ok(import.done.added == 1)
    }
}

/// An import under way.
struct Import<'a> {
    collection: &'a str,
    foreign: &'a ForeignReader,
    progress: &'a dyn Fn(u64),
    batch: Vec<(Summary, Option<TaskFiles>)>,
    done: ImportSummary,
}

impl Import<'_> {
    fn place(&mut self, archive: &mut Archive, path: &Path, depth: usize) -> Result<(), Error> {
        // A link is followed if the caller names it, and not below that.
        let metadata = if depth == 0 { fs::metadata(path) } else { fs::symlink_metadata(path) };
        match metadata {
            Err(e) => self.refuse(path.display().to_string(), e.to_string()),
            Ok(found) if found.is_dir() && depth == MAX_DEPTH => {
                self.refuse(path.display().to_string(), format!("deeper than {MAX_DEPTH} folders"));
            }
            Ok(found) if found.is_dir() => self.folder(archive, path, depth)?,
            Ok(found) if found.is_file() => self.file(archive, path)?,
            Ok(_) if depth == 0 => {
                self.refuse(path.display().to_string(), "neither a file nor a folder".to_owned());
            }
            Ok(_) => {}
        }
        Ok(())
    }

    fn folder(&mut self, archive: &mut Archive, path: &Path, depth: usize) -> Result<(), Error> {
        let entries = fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let mut entries = match entries {
            Ok(entries) => entries,
            Err(e) => {
                self.refuse(path.display().to_string(), e.to_string());
                return Ok(());
            }
        };
        entries.sort_by_key(fs::DirEntry::file_name);
        // The report of a job contains those of its ranks.
        let has_job = is_job(&path.join(SUMMARY));
        entries.retain(|e| !(has_job && e.file_name().to_string_lossy().starts_with("rank-")));
        for entry in entries {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder || is_report(&entry.file_name().to_string_lossy()) {
                self.place(archive, &entry.path(), depth + 1)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, archive: &mut Archive, path: &Path) -> Result<(), Error> {
        let name = path.display().to_string();
        let file = match File::open(path) {
            Ok(file) => file,
            Err(e) => {
                self.refuse(name, e.to_string());
                return Ok(());
            }
        };
        let mut reader = BufReader::new(file);
        let has_many = path.extension().is_some_and(|e| e == "jsonl");
        for line in 1_u64.. {
            let place = if has_many { format!("{name}:{line}") } else { name.clone() };
            let mut bytes = Vec::new();
            let mut limited = (&mut reader).take(MAX_DOCUMENT_BYTES + 1);
            let read = if has_many {
                limited.read_until(b'\n', &mut bytes)
            } else {
                limited.read_to_end(&mut bytes)
            };
            match read {
                Err(e) => {
                    self.refuse(place, e.to_string());
                    break;
                }
                Ok(0) if has_many => break,
                Ok(length) if length as u64 > MAX_DOCUMENT_BYTES => {
                    // The rest of the line would be read as further lines.
                    self.refuse(place, format!("longer than {MAX_DOCUMENT_BYTES} bytes"));
                    break;
                }
                Ok(_) if has_many && bytes.trim_ascii().is_empty() => {}
                Ok(_) => match report(&bytes) {
                    Ok(summary) => {
                        let files = self.files_of(path, &place, &bytes, &summary);
                        self.take(archive, summary, files)?;
                    }
                    Err(why) if has_many => self.refuse(place, why),
                    Err(why) => self.foreign(archive, place, &bytes, why)?,
                },
            }
            if !has_many {
                break;
            }
        }
        Ok(())
    }

    /// Imports a file that is not a report of Skopos, for the reason `why`.
    fn foreign(
        &mut self,
        archive: &mut Archive,
        place: String,
        bytes: &[u8],
        why: String,
    ) -> Result<(), Error> {
        // A wrong report of Skopos is not a report of another tool.
        let is_ours = serde_json::from_slice::<Versioned>(bytes).is_ok();
        let text = std::str::from_utf8(bytes).ok().filter(|_| !is_ours);
        let Some(text) = text else {
            self.refuse(place, why);
            return Ok(());
        };
        match (self.foreign)(text) {
            Ok(reports) if !reports.is_empty() => {
                for report in reports {
                    match sound(report) {
                        Ok(summary) => self.take(archive, summary, None)?,
                        Err(why) => self.refuse(place.clone(), why),
                    }
                }
            }
            Ok(_) => self.refuse(place, why),
            Err(foreign) => self.refuse(place, format!("{why}; nor of another tool: {foreign}")),
        }
        Ok(())
    }

    /// Returns the usage of files that an exported report has within, or that lies beside a report, if any. What cannot be
    /// read is refused, and the report is kept.
    fn files_of(
        &mut self,
        path: &Path,
        place: &str,
        bytes: &[u8],
        summary: &Summary,
    ) -> Option<TaskFiles> {
        let beside = path.with_file_name(FILES);
        let is_alone = path.file_name().is_some_and(|name| name == SUMMARY);
        let (place, files) = match files_within(bytes).transpose() {
            Some(files) => (place.to_owned(), files),
            None if is_alone && beside.is_file() => {
                (beside.display().to_string(), read_files(&beside, summary))
            }
            None => return None,
        };
        files.map_err(|why| self.refuse(place, why)).ok()
    }

    fn take(
        &mut self,
        archive: &mut Archive,
        summary: Summary,
        files: Option<TaskFiles>,
    ) -> Result<(), Error> {
        self.batch.push((summary, files));
        (self.progress)(self.done.added + self.done.known + self.batch.len() as u64);
        if self.batch.len() >= BATCH { self.write(archive) } else { Ok(()) }
    }

    fn refuse(&mut self, place: String, why: String) {
        self.done.refused += 1;
        if self.done.refusals.len() < MAX_NAMED {
            self.done.refusals.push(Refusal { place, why });
        }
    }

    /// Writes the batch in one transaction.
    fn write(&mut self, archive: &mut Archive) -> Result<(), Error> {
        let batch = std::mem::take(&mut self.batch);
        let collection = self.collection;
        let mut write = || {
            let transaction =
                archive.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let mut added = 0;
            let mut resources = HashMap::new();
            for (summary, files) in &batch {
                let (task, is_new) = insert(&transaction, summary, collection, &mut resources)?;
                added += u64::from(is_new);
                files.as_ref().map_or(Ok(()), |files| insert_files(&transaction, task, files))?;
            }
            transaction.commit()?;
            Ok(added)
        };
        let added = write().map_err(|e| sql_error(&archive.path, "it cannot be written", e))?;
        self.done.added += added;
        self.done.known += batch.len() as u64 - added;
        Ok(())
    }
}

/// Returns true if the file is a report that was joined from those of ranks.
fn is_job(path: &Path) -> bool {
    let read = File::open(path).map(|file| file.take(MAX_DOCUMENT_BYTES));
    let report = read.map(|file| serde_json::from_reader::<_, JobField>(BufReader::new(file)));
    report.is_ok_and(|report| report.is_ok_and(|report| report.job.is_some()))
}

/// The field that only the report of a job has.
#[derive(serde::Deserialize)]
struct JobField {
    job: Option<serde::de::IgnoredAny>,
}

fn is_report(name: &str) -> bool {
    let suffixes = [".summary.json", ".summary", ".jsonl"];
    name == SUMMARY || suffixes.iter().any(|suffix| name.ends_with(suffix))
}

/// Inserts one report. Returns its number, and false if the archive had it already.
fn insert(
    transaction: &Transaction<'_>,
    summary: &Summary,
    collection: &str,
    resources: &mut HashMap<&'static str, i64>,
) -> rusqlite::Result<(i64, bool)> {
    let text = serde_json::to_string(summary)
        .map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))?;
    let hash = hash(&text);
    let exit_type = match summary.ended.exit_type {
        ExitType::Normal => "normal",
        ExitType::Signal => "signal",
        ExitType::Limit => "limit",
        ExitType::Running => "running",
        ExitType::Unknown => "unknown",
    };
    let task: Option<i64> = transaction
        .prepare_cached(
            "INSERT INTO task (hash, class, host, monitor, collection, start_seconds, end_seconds,
             exit_type, status, document) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
             ON CONFLICT (hash) DO NOTHING RETURNING id",
        )?
        .query_row(
            params![
                &hash[..],
                summary.task.class,
                summary.host.node,
                summary.task.monitor,
                collection,
                summary.start_seconds,
                summary.end_seconds,
                exit_type,
                summary.ended.status,
                text
            ],
            |row| row.get(0),
        )
        .optional()?;
    let Some(task) = task else {
        let known = "SELECT id FROM task WHERE hash = ?";
        let id = transaction.prepare_cached(known)?.query_row([&hash[..]], |row| row.get(0));
        return Ok((id?, false));
    };
    // The document keeps resources that this program does not know.
    for resource in RESOURCES {
        let Some(reading) = summary.resources.get(resource.name) else { continue };
        let id = match resources.get(resource.name) {
            Some(id) => *id,
            None => {
                let id = resource_id(transaction, resource.name)?;
                resources.insert(resource.name, id);
                id
            }
        };
        let is_whole = reading.completeness == Completeness::All;
        transaction
            .prepare_cached(
                "INSERT INTO reading (task, resource, value, is_whole) VALUES (?, ?, ?, ?)",
            )?
            .execute(params![task, id, reading.value, is_whole])?;
    }
    Ok((task, true))
}

fn resource_id(transaction: &Transaction<'_>, name: &str) -> rusqlite::Result<i64> {
    transaction.execute("INSERT INTO resource (name) VALUES (?) ON CONFLICT DO NOTHING", [name])?;
    transaction.query_row("SELECT id FROM resource WHERE name = ?", [name], |row| row.get(0))
}
