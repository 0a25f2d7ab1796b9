//! Files of earlier versions of the format. Their SQL stands here as those versions had it, and never changes: a new version adds
//! the one before it.

use std::path::Path;

use rusqlite::{Connection, params};

use super::super::conformance::{EARLIER_SEGMENTS, check_upgraded, earlier};
use super::super::contract::Catalogue;
use super::super::stored::Stored;
use super::SqliteCatalogue;

const TABLES_1: &str = "CREATE TABLE job (
        number INTEGER PRIMARY KEY,
        site TEXT NOT NULL,
        job TEXT NOT NULL,
        generation INTEGER NOT NULL,
        owner TEXT,
        project TEXT,
        name TEXT NOT NULL,
        application TEXT NOT NULL,
        queue TEXT NOT NULL,
        state TEXT NOT NULL,
        exit TEXT,
        started INTEGER NOT NULL,
        ended INTEGER NOT NULL,
        nodes INTEGER NOT NULL,
        samples INTEGER NOT NULL,
        lost INTEGER NOT NULL,
        used TEXT NOT NULL,
        requested TEXT NOT NULL,
        parts TEXT NOT NULL,
        UNIQUE (site, job, generation)
    ) STRICT;
    CREATE INDEX job_by_owner ON job (owner, started, ended);
    CREATE INDEX job_by_project ON job (project, started, ended);
    CREATE INDEX job_by_application ON job (application, started, ended);
    CREATE INDEX job_by_state ON job (state, started, ended);
    CREATE INDEX job_by_start ON job (started, ended);
    CREATE INDEX job_by_id ON job (job);
    CREATE TABLE document (number INTEGER PRIMARY KEY, content TEXT NOT NULL) STRICT;
    CREATE TABLE host (job INTEGER NOT NULL, name TEXT NOT NULL, PRIMARY KEY (job, name))
        STRICT, WITHOUT ROWID;
    CREATE INDEX host_by_name ON host (name, job);
    CREATE TABLE tag (job INTEGER NOT NULL, name TEXT NOT NULL, PRIMARY KEY (job, name))
        STRICT, WITHOUT ROWID;
    CREATE INDEX tag_by_name ON tag (name, job);
    CREATE VIRTUAL TABLE word USING fts5
        (words, content='', contentless_delete=1, detail=none, tokenize='ascii');
    CREATE TABLE segment (name TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;";

const CHANGE_2: &str = "INSERT INTO word (word, rank) VALUES ('automerge', 8)";

const CHANGE_3: &str = "UPDATE job SET state = 'orphan' WHERE number IN
        (SELECT number FROM document WHERE content LIKE '%\"start\":null,%')";

/// The statements that made an empty file of each earlier version, from the first one on.
const EARLIER: [&[&str]; 3] = [&[TABLES_1], &[TABLES_1, CHANGE_2], &[TABLES_1, CHANGE_2, CHANGE_3]];

/// Writes a file of a version with jobs, as that version did.
fn write(path: &Path, version: usize, jobs: &[Stored]) -> rusqlite::Result<()> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.execute_batch("BEGIN")?;
    EARLIER[version - 1].iter().try_for_each(|sql| connection.execute_batch(sql))?;
    for (number, job) in (1_i64..).zip(jobs) {
        write_job(&connection, number, job)?;
    }
    if version > 2 {
        // These versions know orphans, which the jobs of the first one are not.
        connection.execute_batch(CHANGE_3)?;
    }
    for name in EARLIER_SEGMENTS {
        connection.execute("INSERT INTO segment (name) VALUES (?1)", [name])?;
    }
    connection.pragma_update(None, "application_id", 0x734b_6f4a)?;
    connection.pragma_update(None, "user_version", version as i64)?;
    connection.execute_batch("COMMIT")
}

fn write_job(connection: &Connection, number: i64, job: &Stored) -> rusqlite::Result<()> {
    let of = &job.columns;
    connection.execute(
        "INSERT INTO job (number, site, job, generation, owner, project, name, application,
            queue, state, exit, started, ended, nodes, samples, lost, used, requested, parts)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)",
        params![
            number,
            of.site,
            of.job,
            of.generation,
            of.owner,
            of.project,
            of.name,
            of.application,
            of.queue,
            of.state,
            of.exit,
            of.started,
            of.ended,
            of.nodes,
            of.samples,
            of.lost,
            of.used,
            of.requested,
            job.parts.to_string()
        ],
    )?;
    let document = "INSERT INTO document (number, content) VALUES (?1, ?2)";
    connection.execute(document, params![number, job.document])?;
    let word = "INSERT INTO word (rowid, words) VALUES (?1, ?2)";
    connection.execute(word, params![number, job.words])?;
    for (sql, names) in [
        ("INSERT INTO host (job, name) VALUES (?1, ?2)", &job.hosts),
        ("INSERT INTO tag (job, name) VALUES (?1, ?2)", &job.tags),
    ] {
        let insert = |name: &String| connection.execute(sql, params![number, name]).map(drop);
        names.iter().try_for_each(insert)?;
    }
    Ok(())
}

/// Returns the version of a file, and the definitions of everything in it.
fn definitions(path: &Path) -> rusqlite::Result<(usize, Vec<String>)> {
    let connection = Connection::open(path)?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let sql = "SELECT type || ' ' || name || ' ' || ifnull(sql, '') AS made FROM sqlite_master
        UNION ALL SELECT 'word_config ' || k || ' ' || v FROM word_config ORDER BY made";
    let mut statement = connection.prepare(sql)?;
    let made = statement.query_map([], |row| row.get(0))?;
    Ok((version as usize, made.collect::<rusqlite::Result<_>>()?))
}

#[test]
fn a_file_of_every_earlier_version_answers_as_a_new_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let new = folder.path().join("new");
    drop(SqliteCatalogue::open(&new).expect("a file"));
    let new = definitions(&new).expect("a file");
    assert_eq!(new.0, EARLIER.len() + 1, "the SQL of the version before belongs here");
    let open = || -> Box<dyn Catalogue> { Box::new(SqliteCatalogue::in_memory().expect("memory")) };
    for version in 1..=EARLIER.len() {
        for seed in 0..2 {
            let path = folder.path().join(format!("{version}-{seed}"));
            write(&path, version, &earlier(seed)).expect("written");
            let upgraded = SqliteCatalogue::open(&path).expect("upgraded");
            check_upgraded(&upgraded, &open, seed);
            drop(upgraded);
            assert_eq!(definitions(&path).expect("a file"), new, "version {version}");
        }
    }
}
