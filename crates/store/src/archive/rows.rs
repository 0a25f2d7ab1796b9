//! Reports as rows of columns, page by page, so that no reader has to hold all of them.

use rusqlite::types::Value;
use skopos_model::task::Resource;

use super::error::Error;
use super::file::Archive;

/// A cell of a row.
pub type Cell = Value;

/// A column of a report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Field {
    /// Class of the task.
    Class,
    /// Node on which it ran.
    Node,
    /// Name of the set with which it was imported (`--set`).
    Set,
    /// Program that measured it.
    Monitor,
    /// Command and arguments, separated by blanks.
    Command,
    /// Folder in which it was started.
    Folder,
    /// Start, in seconds of UNIX time.
    Started,
    /// End, in seconds of UNIX time.
    Ended,
    /// Kind of its end: `normal`, `signal`, `limit`, `running`, `unknown`.
    Exit,
    /// Exit status.
    Status,
    /// Signal that ended it.
    Signal,
    /// Level of measurement.
    Level,
    /// Parallel job that it was, or to which it belonged as a rank.
    Job,
    /// Number of the rank in that job.
    Rank,
    /// Program that started the job.
    Launcher,
    /// Number of ranks of the job.
    Ranks,
    /// Number of ranks without a report.
    MissingRanks,
    /// Names of the resources whose values are lower bounds, separated by commas.
    LowerBounds,
    /// Used amount of a resource.
    Used(&'static Resource),
}

/// A condition on rows. The caller must check the rows again, because a filter may let more through.
#[derive(Clone, Debug, PartialEq)]
pub enum Filter {
    /// The field is one of these texts.
    OneOf(Field, Vec<String>),
    /// The field is a number within these bounds.
    Between(Field, f64, f64),
    /// The report is one of a parallel job.
    Jobs,
}

impl Field {
    /// Returns an SQLite expression over the table `task`.
    fn sql(self) -> String {
        let of_document = |path: &str| format!("document ->> '$.{path}'");
        match self {
            Self::Class => "class".to_owned(),
            Self::Node => "host".to_owned(),
            Self::Set => "nullif(collection, '')".to_owned(),
            Self::Monitor => "monitor".to_owned(),
            Self::Started => "start_seconds".to_owned(),
            Self::Ended => "end_seconds".to_owned(),
            Self::Exit => "exit_type".to_owned(),
            Self::Status => "status".to_owned(),
            Self::Command => "(SELECT group_concat(value, ' ' ORDER BY key)
                 FROM json_each(document, '$.task.command'))"
                .to_owned(),
            Self::Folder => of_document("task.folder"),
            Self::Signal => of_document("ended.signal"),
            Self::Level => of_document("level"),
            Self::Job => {
                format!("coalesce({}, {})", of_document("job.id"), of_document("task.rank.job"))
            }
            Self::Rank => of_document("task.rank.rank"),
            Self::Launcher => of_document("job.launcher"),
            Self::Ranks => of_document("job.ranks_total"),
            Self::MissingRanks => of_document("job.missing_total"),
            Self::LowerBounds => "(SELECT group_concat(name, ',' ORDER BY name) FROM reading
                 JOIN resource ON resource.id = reading.resource
                 WHERE reading.task = task.id AND value IS NOT NULL AND NOT is_whole)"
                .to_owned(),
            // A resource's name is a constant of this program and needs no escaping.
            Self::Used(Resource { name, .. }) => format!(
                "(SELECT value FROM reading WHERE reading.task = task.id
                 AND resource = (SELECT id FROM resource WHERE name = '{name}'))"
            ),
        }
    }
}

impl Archive {
    /// Returns at most `most` rows with these columns, in the order of import, of the reports whose
    /// number is above `after`. Each row comes with the number of its report.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn rows(
        &self,
        fields: &[Field],
        filters: &[Filter],
        after: i64,
        most: usize,
    ) -> Result<Vec<(i64, Vec<Cell>)>, Error> {
        let (clause, values) = condition(filters, after);
        let columns: String = fields.iter().map(|field| format!(", {}", field.sql())).collect();
        let query = format!("SELECT id{columns} FROM task WHERE {clause} ORDER BY id LIMIT {most}");
        let mut rows = Vec::new();
        self.for_each_row(&query, values, "the reports cannot be read", |row| {
            let cells = (1..=fields.len()).map(|at| row.get(at));
            rows.push((row.get(0)?, cells.collect::<rusqlite::Result<Vec<Cell>>>()?));
            Ok(true)
        })?;
        Ok(rows)
    }
}

/// Returns an SQLite condition on the table `task`, with its values: of reports that pass the filters and whose number is
/// above `after`.
pub(super) fn condition(filters: &[Filter], after: i64) -> (String, Vec<Value>) {
    let mut values: Vec<Value> = vec![after.into()];
    let mut clause = "id > ?".to_owned();
    for filter in filters {
        clause += " AND ";
        clause += &match filter {
            Filter::OneOf(field, texts) => {
                values.extend(texts.iter().cloned().map(Value::from));
                format!("{} IN ({})", field.sql(), vec!["?"; texts.len()].join(", "))
            }
            Filter::Between(field, from, to) => {
                values.extend([Value::from(*from), Value::from(*to)]);
                format!("{} BETWEEN ? AND ?", field.sql())
            }
            Filter::Jobs => "document -> '$.job' IS NOT NULL".to_owned(),
        };
    }
    (clause, values)
}
