//! Jobs: records arrive by Arrow Flight, and are found in SQL while the job runs and after it.

use std::process::Command;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, ListArray, RecordBatch, StringArray, types::Float64Type};
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::{FlightDescriptor, PutResult};
use futures_util::{StreamExt as _, TryStreamExt as _};
use serde_json::{Value as Json, json};
use tonic::Status;

use crate::flight::FlightServer;
use crate::support::{PATIENCE, Ran, eventually, runtime_dir};

/// A record of a job: sequence, job, kind, and a document or values of the schema `node`.
pub(crate) type Row<'r> = (i64, &'r str, &'r str, Result<&'r str, Vec<f64>>);

pub(crate) const START: &str =
    r#"{"user":"ann","project":"astro","application":"gromacs","nodes":["n01"]}"#;
pub(crate) const METRICS: &str = r#"{"schema":"node","names":["cpu/busy_ratio","mem/used_bytes"]}"#;

fn batch(rows: &[Row<'_>]) -> RecordBatch {
    let all = |text: &dyn Fn(&Row<'_>) -> Option<String>| -> ArrayRef {
        Arc::new(rows.iter().map(text).collect::<StringArray>())
    };
    let sequences: Int64Array = rows.iter().map(|row| row.0).collect();
    let times: Int64Array = rows.iter().map(|row| 1_000_000_000 * (1 + row.0)).collect();
    let values = rows.iter().map(|row| row.3.as_ref().err());
    let values = values
        .map(|values| values.map(|all| all.iter().map(|value| Some(*value)).collect::<Vec<_>>()));
    let values = ListArray::from_iter_primitive::<Float64Type, _, _>(values);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("sequence", Arc::new(sequences)),
        ("job", all(&|row| Some(row.1.to_owned()))),
        ("node", all(&|_| Some("n01".to_owned()))),
        ("time", Arc::new(times)),
        ("kind", all(&|row| Some(row.2.to_owned()))),
        ("schema", all(&|row| row.3.is_err().then(|| "node".to_owned()))),
        ("values", Arc::new(values)),
        ("document", all(&|row| row.3.as_ref().ok().map(|text| (*text).to_owned()))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true)))
        .expect("a batch")
}

/// Sends records, and returns the acknowledgements.
pub(crate) async fn put(
    server: &FlightServer,
    path: &[&str],
    rows: &[Row<'_>],
) -> Result<Vec<Json>, Status> {
    let descriptor = FlightDescriptor::new_path(path.iter().map(|p| (*p).to_owned()).collect());
    let data = FlightDataEncoderBuilder::new()
        .with_flight_descriptor(Some(descriptor))
        .build(futures_util::stream::iter([Ok(batch(rows))]));
    let data = data.map(|data| data.expect("encoded"));
    let mut client = server.client().await;
    let answers = client.do_put(data).await?.into_inner();
    let parse = |answer: PutResult| serde_json::from_slice(&answer.app_metadata).expect("JSON");
    answers.map_ok(parse).try_collect().await
}

pub(crate) fn rows(ran: &Ran) -> Json {
    ran.json()["rows"].clone()
}

pub(crate) fn count(server: &FlightServer, sql: &str) -> i64 {
    let ran = server.up.run(&["sql", "--json", sql]);
    rows(&ran)[0]["n"].as_i64().unwrap_or_else(|| panic!("{ran:?}"))
}

#[tokio::test]
async fn a_job_is_found_while_it_runs_and_after_it_and_survives_a_kill() {
    let mut server = FlightServer::start();
    let path = ["jobs", "prolog", "1"];
    let busy = Err(vec![0.5, 4096.0]);
    let first = [
        (0, "a/7", "start", Ok(START)),
        (1, "a/7", "metrics", Ok(METRICS)),
        (2, "a/7", "sample", busy.clone()),
    ];
    let acknowledged = put(&server, &path, &first).await.expect("stored");
    let last = acknowledged.last().expect("an acknowledgement");
    assert_eq!(*last, json!({"level": "disk", "sequence": 2}));
    // The same records again are duplicates, and acknowledged.
    let again = put(&server, &path, &first).await.expect("known");
    assert_eq!(again.last().map(|ack| ack["sequence"].clone()), Some(json!(2)));

    let running = "SELECT count(*) AS n FROM jobs WHERE state = 'running' AND \"user\" = 'ann'";
    eventually("the running job is found", || count(&server, running) == 1);
    let samples = "SELECT metric, value FROM job_samples WHERE job = 'a/7' ORDER BY metric";
    let expected = json!([
        {"metric": "cpu/busy_ratio", "value": 0.5}, {"metric": "mem/used_bytes", "value": 4096.0}
    ]);
    assert_eq!(rows(&server.up.run(&["sql", "--json", samples])), expected);

    server.restart();
    assert_eq!(rows(&server.up.run(&["sql", "--json", samples])), expected, "after a kill");
    let end = [(3, "a/7", "sample", busy), (4, "a/7", "end", Ok(r#"{"state":"completed"}"#))];
    put(&server, &["jobs", "prolog", "1", "lts"], &end).await.expect("sealed");
    let sealed = "SELECT count(*) AS n FROM jobs WHERE state = 'completed' AND samples = 2";
    eventually("the finished job is found", || count(&server, sealed) == 1);
    server.restart();
    assert_eq!(count(&server, sealed), 1);
    assert_eq!(count(&server, "SELECT count(*) AS n FROM job_samples WHERE job = 'a/7'"), 4);
    let listed = server.up.run(&["jobs", "--plain", "--user", "ann", "--state", "completed"]);
    assert!(listed.stdout.starts_with("a/7\tann\tastro\tgromacs\tcompleted"), "{listed:?}");
    let other = server.up.run(&["jobs", "--json", "--user", "bob"]);
    assert_eq!(rows(&other), json!([]));
}

#[tokio::test]
async fn facts_of_its_nodes_are_recorded_while_a_job_runs() {
    let server = FlightServer::configured("[hub.jobs]\nfacts_every = \"1s\"\n");
    // The records of these tests have times of 1970, when no job that runs has begun.
    let since = std::time::UNIX_EPOCH.elapsed().expect("a clock").as_secs();
    let of = |node: &str| format!(r#"{{"nodes":["{node}"],"start_seconds":{since}}}"#);
    let (here, elsewhere) = (of("n01"), of("n77"));
    let start = [(0, "7", "start", Ok(&*here)), (1, "8", "start", Ok(&*elsewhere))];
    put(&server, &["jobs", "prolog", "1"], &start).await.expect("stored");
    let recorded = "SELECT count(DISTINCT time) AS n FROM job_samples WHERE job = '7' \
                    AND node = 'n01' AND metric = 'cpu/total/busy_ratio'";
    eventually("the node is measured again and again", || count(&server, recorded) > 2);
    let end = [(2, "7", "end", Ok(r#"{"state":"completed"}"#))];
    put(&server, &["jobs", "prolog", "1"], &end).await.expect("stored");
    let ended = "SELECT count(*) AS n FROM jobs WHERE state = 'completed'";
    eventually("the job is known to have ended", || count(&server, ended) == 1);
    // A round may be under way.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let measured = count(&server, recorded);
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(count(&server, recorded), measured, "an ended job is not measured");
    let of_other = "SELECT count(*) AS n FROM job_samples WHERE job = '8'";
    assert_eq!(count(&server, of_other), 0, "a node that is not there has no facts");
}

#[tokio::test]
async fn records_that_are_not_valid_are_named_and_the_others_are_stored() {
    let server = FlightServer::start();
    let records = [
        (0, "7", "sample", Err(vec![1.0])),
        (1, "", "start", Ok("{}")),
        (2, "7", "start", Ok("{\"user\":")),
        (3, "7", "end", Ok("{}")),
    ];
    let answers = put(&server, &["jobs", "p", "1"], &records).await.expect("stored");
    let refused = answers.iter().find(|answer| answer.get("refused").is_some());
    let refused = refused.expect("a refusal");
    assert_eq!(refused["refused"], 2, "{refused}");
    assert_eq!(refused["refusals"][0], json!([1, "the id of the job is empty"]));
    assert_eq!(answers.last().expect("an answer")["sequence"], 3);
    for (path, row, expected) in [
        (&["jobs", "p"][..], (0, "7", "end", Ok("{}")), "the descriptor is not one of records"),
        (&["jobs", "p", "x"], (0, "7", "end", Ok("{}")), "the descriptor is not one of records"),
        (&["jobs", "p", "1", "tape"], (0, "7", "end", Ok("{}")), "`replica` or `lts`"),
        (&["jobs", "p", "1"], (9, "7", "begin", Ok("{}")), "has the kind \"begin\""),
        (&["jobs", "p", "0"], (9, "7", "end", Ok("{}")), "has begun its epoch 1 since"),
    ] {
        let status = put(&server, path, &[row]).await.expect_err("refused");
        assert!(status.message().contains(expected), "{path:?}: {status:?}");
    }
}

#[test]
fn a_task_of_run_is_a_job_of_the_hub_of_its_machine() {
    let server = FlightServer::start();
    let args = ["run", "--quiet", "--name", "align", "--", "sh", "-c", "exit 3"];
    assert_eq!(server.up.run(&args).code, 3);
    let sql = "SELECT application, state, exit, cpu_seconds > 0 AS used, lost FROM jobs";
    let expected = json!([
        {"application": "align", "state": "failed", "exit": "normal", "used": true, "lost": 0}
    ]);
    eventually("the job is found", || rows(&server.up.run(&["sql", "--json", sql])) == expected);
    // Without a hub the task runs as before.
    let alone = crate::support::runtime_dir();
    let ran = crate::support::run(alone.path(), &args);
    assert_eq!((ran.code, ran.stderr.as_str()), (3, ""));
}

/// Returns the batches that wait in the spool of a runtime directory of the tests.
fn spool_files(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let files = std::fs::read_dir(dir.join("state/spool")).into_iter().flatten();
    let paths = files.filter_map(|file| Some(file.ok()?.path()));
    paths.filter(|path| path.extension() == Some("batch".as_ref())).collect()
}

#[test]
fn tasks_that_end_while_the_hub_is_away_are_jobs_once_it_is_back() {
    let mut server = FlightServer::start();
    server.up.kill();
    let dir = server.up.path().to_owned();
    let run = |status: &str| {
        let script = format!("exit {status}");
        crate::support::run(&dir, &["run", "--quiet", "--name", "align", "--", "sh", "-c", &script])
    };
    let ran = run("3");
    assert_eq!((ran.code, spool_files(&dir).len()), (3, 2), "{ran:?}");
    let told = format!("records of the job wait in {}", dir.join("state/spool").display());
    assert_eq!(ran.stderr.matches(&told).count(), 2, "{ran:?}");
    assert_eq!(run("0").code, 0);
    assert_eq!(spool_files(&dir).len(), 4);
    let copies: Vec<_> = spool_files(&dir)
        .into_iter()
        .map(|path| (path.clone(), std::fs::read(path).expect("readable")))
        .collect();
    // A batch that a disk has damaged does not hold up the others.
    let damaged = dir.join("state/spool/00000000000000000001-k.batch");
    std::fs::write(&damaged, "not a batch").expect("written");
    server.restart();
    let sql = "SELECT state, exit, lost, cpu_seconds > 0 AS used FROM jobs \
               WHERE application = 'align' ORDER BY state";
    let expected = json!([
        {"state": "completed", "exit": "normal", "lost": 0, "used": true},
        {"state": "failed", "exit": "normal", "lost": 0, "used": true}
    ]);
    eventually("the jobs are found", || rows(&server.up.run(&["sql", "--json", sql])) == expected);
    eventually("the spool is empty", || spool_files(&dir).is_empty());
    let aside = std::fs::read_dir(dir.join("state/spool/quarantine")).expect("a quarantine");
    assert_eq!(aside.count(), 1);
    // A process that is killed after the acknowledgement leaves the files, and they are sent again.
    let used = "SELECT job, cpu_seconds FROM jobs ORDER BY job";
    let once = rows(&server.up.run(&["sql", "--json", used]));
    server.up.kill();
    copies.into_iter().for_each(|(path, bytes)| std::fs::write(path, bytes).expect("written"));
    server.restart();
    eventually("the spool is empty again", || spool_files(&dir).is_empty());
    assert_eq!(run("0").stderr, "");
    let third = "SELECT count(*) AS n FROM jobs WHERE state = 'completed'";
    eventually("a third job is found", || count(&server, third) == 2);
    // The ids of jobs contain their times, so the third one is the last.
    let first = format!("{used} LIMIT 2");
    assert_eq!(rows(&server.up.run(&["sql", "--json", &first])), once, "reports are added once");
}

/// Returns the number of kilobytes behind a name in a file of procfs.
fn kilobytes(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).expect("procfs");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
    line.split_whitespace().find_map(|word| word.parse().ok()).expect("a number")
}

/// A record of a gigabyte costs the hub no memory, and its producer learns why it was refused.
#[tokio::test]
async fn a_record_of_a_gigabyte_is_refused_and_the_hub_goes_on() {
    // The client holds the record twice.
    let available = kilobytes("/proc/meminfo", "MemAvailable:");
    if available < 6 << 20 {
        println!("skipped: the record needs 6 GB of memory, and {available} kB are available");
        return;
    }
    let server = FlightServer::start();
    let path = ["jobs", "p", "1"];
    put(&server, &path, &[(0, "7", "start", Ok(START))]).await.expect("stored");
    let status_file = format!("/proc/{}/status", server.up.child.id());
    let before = kilobytes(&status_file, "VmHWM:");
    let descriptor = FlightDescriptor::new_path(path.map(str::to_owned).to_vec());
    let small = FlightDataEncoderBuilder::new()
        .with_flight_descriptor(Some(descriptor))
        .build(futures_util::stream::iter([Ok(batch(&[(1, "7", "spans", Ok("[]"))]))]));
    let mut messages: Vec<_> = small.try_collect().await.expect("encoded");
    let mut huge = messages.last().expect("a batch").clone();
    huge.data_body = vec![0; 1 << 30].into();
    messages.push(huge);
    let mut client = server.client().await;
    let answers = async {
        client.do_put(futures_util::stream::iter(messages)).await?.into_inner().try_collect().await
    };
    let answers: Result<Vec<PutResult>, Status> = answers.await;
    let refused = answers.expect_err("refused");
    assert_eq!(refused.code(), tonic::Code::OutOfRange, "{refused:?}");
    for word in ["1048576 bytes", "hint: send records in batches of less than a megabyte"] {
        assert!(refused.message().contains(word), "{refused:?}");
    }
    let grown = kilobytes(&status_file, "VmHWM:") - before;
    assert!(grown < 256 << 10, "the hub grew by {grown} kB");
    // The records before it are there, and others are taken.
    put(&server, &path, &[(2, "7", "end", Ok(r#"{"state":"completed"}"#))]).await.expect("stored");
    let ended = "SELECT count(*) AS n FROM jobs WHERE job = '7' AND state = 'completed'";
    eventually("the job has ended", || count(&server, ended) == 1);
    let long = serde_json::to_string(&"x".repeat(900_000)).expect("a document");
    put(&server, &path, &[(3, "7", "spans", Ok(&long))]).await.expect("stored");
}

/// Records of a job whose start is lost or late are kept and can be asked for; the start joins them.
#[tokio::test]
async fn an_orphan_is_kept_and_shown_as_one_until_its_start_arrives() {
    let mut server = FlightServer::start();
    let path = ["jobs", "agent", "1"];
    let records = [
        (0, "o/1", "metrics", Ok(METRICS)),
        (1, "o/1", "sample", Err(vec![0.5, 1.0])),
        (2, "o/1", "end", Ok(r#"{"state":"failed"}"#)),
    ];
    put(&server, &path, &records).await.expect("stored");
    // Another producer: the level `lts` waits for all records of one, and this job is not sealed for an hour.
    let running = [(0, "o/2", "sample", Err(vec![0.5, 1.0]))];
    put(&server, &["jobs", "other", "1"], &running).await.expect("stored");
    let orphans = "SELECT count(*) AS n FROM jobs WHERE state = 'orphan'";
    eventually("the orphans are listed", || count(&server, orphans) == 2);
    // After a kill, and once one of them is sealed.
    put(&server, &["jobs", "agent", "1", "lts"], &[(3, "o/1", "sample", Err(vec![0.5, 2.0]))])
        .await
        .expect("sealed");
    server.restart();
    eventually("the orphans are listed again", || count(&server, orphans) == 2);
    let listed = server.up.run(&["jobs", "--plain", "--state", "orphan"]);
    assert_eq!(listed.stdout.lines().count(), 2, "{listed:?}");
    let shown = server.up.run(&["job", "show", "o/1", "--json"]);
    assert!(shown.stdout.contains("\"orphan\""), "{shown:?}");
    let samples = "SELECT count(*) AS n FROM job_samples WHERE job = 'o/1'";
    assert_eq!(count(&server, samples), 4);

    let starts = [(0, "o/1", "start", Ok(START)), (1, "o/2", "start", Ok(START))];
    put(&server, &["jobs", "prolog", "1"], &starts).await.expect("stored");
    eventually("the starts have joined their jobs", || count(&server, orphans) == 0);
    let joined = "SELECT job, state, samples FROM jobs WHERE \"user\" = 'ann' ORDER BY job";
    let joined = rows(&server.up.run(&["sql", "--json", joined]));
    let expected = json!([
        {"job": "o/1", "state": "failed", "samples": 2},
        {"job": "o/2", "state": "running", "samples": 1}
    ]);
    assert_eq!(joined, expected);
    // No producer says that a job is an orphan.
    let odd = [(2, "o/2", "end", Ok(r#"{"state":"orphan"}"#))];
    let answers = put(&server, &["jobs", "prolog", "1"], &odd).await.expect("answered");
    let expected = json!([[2, "a job does not end in the state `orphan`"]]);
    assert!(answers.iter().any(|answer| answer["refusals"] == expected), "{answers:?}");
}

/// The options of `skopos jobs` and the conditions of SQL, over a running and an ended job.
#[tokio::test]
async fn jobs_are_searched_by_node_tag_text_end_time_and_resources() {
    let server = FlightServer::start();
    let since = std::time::UNIX_EPOCH.elapsed().expect("a clock").as_secs();
    let slow = format!(
        r#"{{"user":"ann","nodes":["n01","n02"],"tags":["slow","it's"],"name":"Protein fold",
            "command":["/opt/gromacs/mdrun"],"start_seconds":{}}}"#,
        since - 7200
    );
    let quick = format!(r#"{{"user":"ann","nodes":["n03"],"start_seconds":{since}}}"#);
    let end = r#"{"state":"timeout","exit_type":"limit","used":{"resident_bytes_max":2147483648.0,
                  "cpu_seconds":60.0}}"#;
    let records = [
        (0, "slow", "start", Ok(&*slow)),
        (1, "quick", "start", Ok(&*quick)),
        (2, "slow", "end", Ok(end)),
    ];
    put(&server, &["jobs", "prolog", "1"], &records).await.expect("stored");
    let ended = "SELECT count(*) AS n FROM jobs WHERE state = 'timeout'";
    eventually("the job has ended", || count(&server, ended) == 1);
    for (options, expected) in [
        ("", "quick slow"),
        ("--host n02", "slow"),
        ("--host n2", ""),
        ("--tag slow --tag it's", "slow"),
        ("--tag slow --tag fast", ""),
        ("--text gromacs", "slow"),
        ("--text PROT*", "slow"),
        ("--exit limit", "slow"),
        ("--since 1h", "quick"),
        ("--until 1h", "slow"),
        ("--since 3h --until 1h", "slow"),
        ("--used memory>1GiB", "slow"),
        ("--used memory>2GiB", ""),
        ("--used memory>=2GiB --used cpu<=1m", "slow"),
        ("--sort memory", "slow quick"),
        ("--sort memory --limit 1", "slow"),
        ("--limit 1", "quick"),
    ] {
        let options: Vec<&str> = options.split_whitespace().collect();
        let ran = server.up.run(&[&["jobs", "--plain"], &options[..]].concat());
        let found: Vec<&str> =
            ran.stdout.lines().filter_map(|line| line.split('\t').next()).collect();
        assert_eq!(found.join(" "), expected, "{options:?}: {ran:?}");
    }
    let refused = server.up.run(&["jobs", "--used", "memry>1GiB"]);
    assert!(refused.code == 2 && refused.stderr.contains("did you mean `memory`?"), "{refused:?}");
}

/// A list of names that changes in mid-job renames no earlier measurement, in SQL and in an export.
#[tokio::test]
async fn a_schema_that_changes_in_mid_job_is_exported_with_the_names_of_its_time() {
    let server = FlightServer::start();
    let path = ["jobs", "p", "1"];
    let records = [
        (0, "7", "start", Ok(START)),
        (1, "7", "metrics", Ok(r#"{"schema":"node","names":["a","b"]}"#)),
        (2, "7", "sample", Err(vec![1.0, 2.0])),
        (3, "7", "metrics", Ok(r#"{"schema":"node","names":["b","c"]}"#)),
        (4, "7", "sample", Err(vec![3.0, 4.0])),
    ];
    put(&server, &path, &records).await.expect("stored");
    let expected = ["a,1.0", "b,2.0", "b,3.0", "c,4.0"];
    let exported = || -> Vec<String> {
        let ran = server.up.run(&["job", "export", "7", "--format", "csv"]);
        let last_two = |line: &str| {
            let columns: Vec<&str> = line.split(',').collect();
            columns[columns.len() - 2..].join(",")
        };
        ran.stdout.lines().skip(1).map(last_two).collect()
    };
    eventually("the job is there", || !exported().is_empty());
    assert_eq!(exported(), expected, "not sealed");
    let end = [(5, "7", "end", Ok(r#"{"state":"completed"}"#))];
    put(&server, &["jobs", "p", "1", "lts"], &end).await.expect("sealed");
    assert_eq!(exported(), expected, "sealed");
}

/// A hub whose disk is full warns, its answers name what they lack, and all is found once there is room.
#[test]
fn jobs_that_a_full_disk_keeps_out_of_the_catalogue_are_named_as_missing() {
    let dir = runtime_dir();
    let script = r#"
        mkdir "$SKOPOS_STATE" && mount -t tmpfs -o size=16m none "$SKOPOS_STATE" || exit 77
        "$0" hub --http none --flight none >/dev/null 2>"$SKOPOS_DIR/told" & hub=$!
        until "$0" jobs >/dev/null 2>&1; do kill -0 $hub || exit 78; sleep 0.1; done
        "$0" run --name first -- true
        until "$0" jobs --plain | grep -q first; do sleep 0.1; done
        cat /dev/zero >"$SKOPOS_STATE/full" 2>/dev/null
        "$0" run --name second -- true
        until "$0" jobs --json | grep -q 'the catalogue cannot be written'; do sleep 0.1; done
        rm "$SKOPOS_STATE/full"
        until "$0" jobs --json | grep -q '"missing":\[\]'; do sleep 0.1; done
        kill -9 $hub
        cat "$SKOPOS_DIR/told"
    "#;
    let seconds = PATIENCE.as_secs().to_string();
    let ran = Command::new("timeout")
        .args([seconds.as_str(), "unshare", "--mount", "sh", "-c", script])
        .arg(env!("CARGO_BIN_EXE_skopos"))
        .env("SKOPOS_DIR", dir.path())
        .env("SKOPOS_STATE", dir.path().join("state"))
        .env_remove("SKOPOS_CONFIG")
        .env("XDG_CONFIG_HOME", dir.path().join("config"))
        .output()
        .expect("timeout(1)");
    let said = String::from_utf8_lossy(&ran.stderr);
    if ran.status.code() == Some(77) || said.contains("unshare failed") {
        println!("skipped: no file system can be mounted here");
        return;
    }
    let told = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{ran:?}");
    assert!(told.contains("warning: the catalogue of jobs cannot be written"), "{told}");
}
