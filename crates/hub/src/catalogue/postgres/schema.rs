//! The tables, and their migrations. They are in the schema `skopos`, beside whatever else the database has.
//!
//! `version` has the number of applied migrations. A released migration never changes: a new one follows it.

use skopos_store::jobs::catalogue::Error;

use super::connection::Connection;

/// The lock under which migrations are applied: "skopos" as a number.
const LOCK: i64 = 0x736b_6f70_6f73;

/// The oldest version, which is the first with multiranges.
const OLDEST: i64 = 140_000;

const MIGRATIONS: &[&str] = &[
    r#"
    CREATE TABLE job (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        site text COLLATE "C" NOT NULL,
        job text COLLATE "C" NOT NULL,
        generation bigint NOT NULL,
        owner text COLLATE "C",
        project text COLLATE "C",
        name text COLLATE "C" NOT NULL,
        application text COLLATE "C" NOT NULL,
        queue text COLLATE "C" NOT NULL,
        state text COLLATE "C" NOT NULL,
        exit text COLLATE "C",
        started bigint NOT NULL,
        ended bigint NOT NULL,
        nodes bigint NOT NULL,
        samples bigint NOT NULL,
        lost bigint NOT NULL,
        used jsonb NOT NULL,
        requested jsonb NOT NULL,
        parts int8multirange NOT NULL,
        hosts text[] COLLATE "C" NOT NULL,
        tags text[] COLLATE "C" NOT NULL,
        words tsvector NOT NULL,
        content text NOT NULL,
        UNIQUE (site, job, generation)
    );
    CREATE INDEX job_by_owner ON job (owner, started, ended);
    CREATE INDEX job_by_project ON job (project, started, ended);
    CREATE INDEX job_by_application ON job (application, started, ended);
    CREATE INDEX job_by_state ON job (state, started, ended);
    CREATE INDEX job_by_start ON job (started, ended);
    CREATE INDEX job_by_id ON job (job);
    CREATE INDEX job_by_host ON job USING gin (hosts);
    CREATE INDEX job_by_tag ON job USING gin (tags);
    CREATE INDEX job_by_word ON job USING gin (words);
    CREATE TABLE segment (name text COLLATE "C" PRIMARY KEY);
"#,
    // Jobs without a start have a state of their own. No text of a document has these bytes: it would write the quotes as `\"`.
    r#"UPDATE job SET state = 'orphan' WHERE content LIKE '%"start":null,%'"#,
    // A row has 3 kB and more, so the server compresses its document and its words. Its own method, the default, takes several
    // times as long for that as LZ4, without which a server may be built.
    "DO $$ BEGIN
        IF (SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression') THEN
            ALTER TABLE job ALTER COLUMN content SET COMPRESSION lz4, ALTER COLUMN words SET COMPRESSION lz4;
        END IF;
    END $$",
];

/// Applies the missing migrations. Of several hubs that start at once, one does.
pub(super) async fn prepare(connection: &mut Connection) -> Result<(), Error> {
    let place = connection.place.clone();
    let error = |e: tokio_postgres::Error| Error::database(&place, "it cannot be prepared", e);
    let settings =
        "SELECT current_setting('server_version_num')::bigint, current_setting('server_encoding'),
        current_setting('fsync')";
    let settings = connection.client.query_one(settings, &[]).await.map_err(error)?;
    let version: i64 = settings.try_get(0).map_err(error)?;
    let (encoding, fsync): (String, String) =
        (settings.try_get(1).map_err(error)?, settings.try_get(2).map_err(error)?);
    let unfit = match (version, encoding.as_str(), fsync.as_str()) {
        (version, ..) if version < OLDEST => {
            format!("its version is {}, and 14 is the oldest that works", version / 10_000)
        }
        (_, "UTF8", "on") => String::new(),
        (_, "UTF8", _) => {
            "its setting `fsync` is off, so a loss of power costs jobs; turn it on".to_owned()
        }
        (_, encoding, _) => format!("its encoding is {encoding}; create the database with UTF8"),
    };
    if !unfit.is_empty() {
        return Err(Error::Unfit { place, why: unfit });
    }
    let transaction = connection.client.transaction().await.map_err(error)?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await.map_err(error)?;
    let tables = "CREATE SCHEMA IF NOT EXISTS skopos;
        CREATE TABLE IF NOT EXISTS skopos.version (applied bigint NOT NULL)";
    transaction.batch_execute(tables).await.map_err(error)?;
    let found = transaction.query_opt("SELECT max(applied) FROM version", &[]).await;
    let found: Option<i64> = match found.map_err(error)? {
        Some(row) => row.try_get(0).map_err(error)?,
        None => None,
    };
    let (found, known) = (found.unwrap_or(0), MIGRATIONS.len() as i64);
    if found > known {
        return Err(Error::Newer { place, found, known });
    }
    for (at, migration) in MIGRATIONS.iter().enumerate().skip(usize::try_from(found).unwrap_or(0)) {
        transaction.batch_execute(migration).await.map_err(error)?;
        let applied = at as i64 + 1;
        let insert = "INSERT INTO version (applied) VALUES ($1)";
        transaction.execute(insert, &[&applied]).await.map_err(error)?;
    }
    transaction.commit().await.map_err(error)
}
