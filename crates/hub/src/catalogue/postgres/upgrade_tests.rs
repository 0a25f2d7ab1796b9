//! Databases of earlier versions of the format. Their SQL stands here as those versions had it, and never changes: a new version
//! adds the one before it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use skopos_store::jobs::catalogue::Stored;
use skopos_store::jobs::catalogue::conformance::{EARLIER_SEGMENTS, check_upgraded, earlier};
use skopos_store::jobs::{Catalogue, Filter, Visibility};
use tokio_postgres::{NoTls, SimpleQueryMessage};

use super::server::Server;
use super::text::escaped;
use super::{PostgresCatalogue, PostgresUrl};

const TABLES_1: &str = r#"
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
"#;

const CHANGE_2: &str = r#"UPDATE job SET state = 'orphan' WHERE content LIKE '%"start":null,%'"#;

/// The statements that made the tables of each earlier version, from the first one on.
const EARLIER: [&[&str]; 2] = [&[TABLES_1], &[TABLES_1, CHANGE_2]];

/// Runs statements in a database. Returns the first column of the rows.
fn run(url: &str, sql: &str) -> Vec<String> {
    let place: PostgresUrl = url.parse().expect("a URL");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let (client, messages) = place.config().connect(NoTls).await.expect("connected");
        tokio::spawn(messages);
        let found = client.simple_query(sql).await.expect("a statement");
        let row = |message: SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
            _ => None,
        };
        found.into_iter().filter_map(row).collect()
    })
}

fn literal(text: &str) -> String {
    format!("'{}'", escaped(text.to_owned()).replace('\'', "''"))
}

fn optional(text: Option<&str>) -> String {
    text.map_or_else(|| "NULL".to_owned(), literal)
}

fn array(texts: &BTreeSet<String>) -> String {
    let texts: Vec<String> = texts.iter().map(|text| literal(text)).collect();
    format!("ARRAY[{}]::text[]", texts.join(", "))
}

/// Writes a database of a version with jobs, as that version did.
fn write(url: &str, version: usize, jobs: &[Stored]) {
    let mut sql =
        "BEGIN; CREATE SCHEMA skopos; CREATE TABLE skopos.version (applied bigint NOT NULL);
        SET search_path = skopos;"
            .to_owned();
    for (at, tables) in EARLIER[version - 1].iter().enumerate() {
        write!(sql, "{tables}; INSERT INTO version (applied) VALUES ({});", at + 1).expect("text");
    }
    for job in jobs {
        let of = &job.columns;
        write!(
            sql,
            "INSERT INTO job (site, job, generation, owner, project, name, application, queue, state, exit,
                started, ended, nodes, samples, lost, used, requested, parts, hosts, tags, words, content)
             VALUES ({}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {},
                array_to_tsvector(string_to_array({}, ' ')), {});",
            literal(&of.site),
            literal(&of.job),
            of.generation,
            optional(of.owner.as_deref()),
            optional(of.project.as_deref()),
            literal(&of.name),
            literal(&of.application),
            literal(&of.queue),
            literal(&of.state),
            optional(of.exit.as_deref()),
            of.started,
            of.ended,
            of.nodes,
            of.samples,
            of.lost,
            literal(&of.used),
            literal(&of.requested),
            literal(&job.parts.to_string()),
            array(&job.hosts),
            array(&job.tags),
            literal(&job.words),
            literal(&job.document),
        )
        .expect("text");
    }
    if version > 1 {
        // These versions know orphans, which the jobs of the first one are not.
        write!(sql, "{CHANGE_2};").expect("text");
    }
    for name in EARLIER_SEGMENTS {
        write!(sql, "INSERT INTO segment (name) VALUES ({});", literal(name)).expect("text");
    }
    run(url, &(sql + "COMMIT"));
}

/// Checks that the server compresses documents and words by LZ4, if it can.
fn check_compression(url: &str) {
    let is_expected =
        "SELECT (attcompression::text = 'l') = (SELECT 'lz4' = ANY (enumvals) FROM pg_settings
            WHERE name = 'default_toast_compression')
        FROM pg_attribute WHERE attrelid = 'skopos.job'::regclass AND attname IN ('content', 'words')";
    assert_eq!(run(url, is_expected), ["t", "t"]);
}

/// Returns the version of a database, and the definitions of everything in it.
fn definitions(url: &str) -> (usize, Vec<String>) {
    let version = run(url, "SELECT max(applied) FROM skopos.version");
    let made =
        "SELECT concat_ws(' ', table_name, ordinal_position, column_name, data_type, udt_name,
            collation_name, is_nullable, is_identity) AS made
        FROM information_schema.columns WHERE table_schema = 'skopos'
        UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'skopos' ORDER BY made";
    (version[0].parse().expect("a number"), run(url, made))
}

fn open(url: &str) -> PostgresCatalogue {
    PostgresCatalogue::new(&url.parse().expect("a URL")).expect("a catalogue")
}

#[test]
fn a_database_of_every_earlier_version_answers_as_a_new_one() {
    let Some(server) = Server::start() else { return };
    let new = server.database();
    open(&new).count(&Filter::new(Visibility::Everything)).expect("a count");
    check_compression(&new);
    let new = definitions(&new);
    assert_eq!(new.0, EARLIER.len() + 1, "the SQL of the version before belongs here");
    for version in 1..=EARLIER.len() {
        for seed in 0..2 {
            let url = server.database();
            write(&url, version, &earlier(seed));
            let fresh = || -> Box<dyn Catalogue> { Box::new(open(&server.database())) };
            check_upgraded(&open(&url), &fresh, seed);
            check_compression(&url);
            assert_eq!(definitions(&url), new, "version {version}");
        }
    }
}
