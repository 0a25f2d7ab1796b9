//! SQLite, in this process: a row for each topic, which is the key, in a file in memory.

use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::feed::{Feed, Row};
use super::load::{Client, Connects};
use super::question::Question;

/// Readers and the writer do not wait for each other.
const TABLE: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;
    CREATE TABLE latest (topic TEXT PRIMARY KEY, time INTEGER, value REAL) WITHOUT ROWID;";

const WRITE: &str = "INSERT OR REPLACE INTO latest VALUES (?1, ?2, ?3)";

/// A private database.
pub(super) struct Sqlite {
    file: PathBuf,
}

/// The version that is compiled into this program.
pub(super) fn version() -> &'static str {
    rusqlite::version()
}

/// Makes the database in `dir`.
pub(super) fn start(dir: &Path) -> Result<(Sqlite, Feed), String> {
    let file = dir.join("latest.sqlite");
    let mut connection = Connection::open(&file).map_err(|e| e.to_string())?;
    connection.execute_batch(TABLE).map_err(|e| e.to_string())?;
    let feed = move |rows: &[Row]| write(&mut connection, rows).map_err(|e| e.to_string());
    Ok((Sqlite { file }, Box::new(feed)))
}

fn write(connection: &mut Connection, rows: &[Row]) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    {
        let mut write = transaction.prepare_cached(WRITE)?;
        for Row { topic, time, value } in rows {
            write.execute((topic, time, value))?;
        }
    }
    transaction.commit()
}

impl Connects for Sqlite {
    fn connect(&self, questions: &[Question]) -> Result<Client, String> {
        let connection = Connection::open(&self.file).map_err(|e| e.to_string())?;
        connection.set_prepared_statement_cache_capacity(questions.len());
        let statements: Vec<String> = questions.iter().map(Question::keyed).collect();
        Ok(Box::new(move |question, values| {
            let mut read = |sql: &str| {
                let mut statement = connection.prepare_cached(sql)?;
                let mut rows = statement.query(())?;
                while let Some(row) = rows.next()? {
                    values.push(row.get(1)?);
                }
                Ok(())
            };
            read(&statements[question]).map_err(|e: rusqlite::Error| e.to_string())
        }))
    }
}
