//! Rows of reports, for who asks for columns: page by page, so that nobody has to hold all of them.

use rusqlite::params_from_iter;
use rusqlite::types::Value;
use skopos_model::task::Resource;

use super::{Archive, Error, sql};

/// A cell of a row.
pub type Cell = Value;

/// A column of a report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Field {
    /// The class of the task.
    Class,
    /// The node that it ran on.
    Node,
    /// What it was called together with others when it was imported (`--set`).
    Set,
    /// What measured it.
    Monitor,
    /// The command and its arguments, with blanks between them.
    Command,
    /// The folder in which it was started.
    Folder,
    /// When it began, in seconds of UNIX time.
    Started,
    /// When it ended, likewise.
    Ended,
    /// How it ended: `normal`, `signal`, `limit`, `running`, `unknown`.
    Exit,
    /// What it returned.
    Status,
    /// The signal that ended it.
    Signal,
    /// The level of measurement.
    Level,
    /// The parallel job that it was, or was a rank of.
    Job,
    /// Its number in that job.
    Rank,
    /// Who started the job.
    Launcher,
    /// How many ranks the job had.
    Ranks,
    /// How many of them have no report.
    MissingRanks,
    /// Names of resources of which it used more than is known, with commas between them.
    LowerBounds,
    /// How much it used of a resource.
    Used(&'static Resource),
}

/// What a row has to have; who asks looks at it again.
#[derive(Clone, Debug, PartialEq)]
pub enum Only {
    /// One of these texts.
    OneOf(Field, Vec<String>),
    /// A number from here to there.
    Between(Field, f64, f64),
    /// A report of a whole job.
    Jobs,
}

impl Field {
    /// An expression of SQLite over `task`.
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
            // Names of resources are this program's own.
            Self::Used(Resource { name, .. }) => format!(
                "(SELECT value FROM reading WHERE reading.task = task.id
                 AND resource = (SELECT id FROM resource WHERE name = '{name}'))"
            ),
        }
    }
}

impl Archive {
    /// At most `most` rows with these columns, in the order of import, of reports that were imported
    /// after the one of the number `after`; with each its number.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn rows(
        &self,
        fields: &[Field],
        only: &[Only],
        after: i64,
        most: usize,
    ) -> Result<Vec<(i64, Vec<Cell>)>, Error> {
        let mut values: Vec<Value> = vec![after.into()];
        let mut clause = "id > ?".to_owned();
        for condition in only {
            clause += " AND ";
            clause += &match condition {
                Only::OneOf(field, texts) => {
                    values.extend(texts.iter().cloned().map(Value::from));
                    format!("{} IN ({})", field.sql(), vec!["?"; texts.len()].join(", "))
                }
                Only::Between(field, from, to) => {
                    values.extend([Value::from(*from), Value::from(*to)]);
                    format!("{} BETWEEN ? AND ?", field.sql())
                }
                Only::Jobs => "document -> '$.job' IS NOT NULL".to_owned(),
            };
        }
        let columns: String = fields.iter().map(|field| format!(", {}", field.sql())).collect();
        let query = format!("SELECT id{columns} FROM task WHERE {clause} ORDER BY id LIMIT {most}");
        let read = || {
            let mut statement = self.connection.prepare_cached(&query)?;
            let rows = statement.query_map(params_from_iter(values), |row| {
                let cells = (1..=fields.len()).map(|at| row.get(at));
                Ok((row.get(0)?, cells.collect::<rusqlite::Result<Vec<Cell>>>()?))
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(|e| sql(&self.path, "the reports cannot be read", e))
    }
}
