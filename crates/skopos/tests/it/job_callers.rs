//! Jobs in SQL by every caller at every listener: rows, counts and texts of errors.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value as Json, json};
use skopos_hub::client::{reach, store_jobs};
use skopos_hub::messages::{JobDocument, StoreRequest};

use crate::certificates::{NOBODY, Site, is_root};
use crate::flight::python;
use crate::support::{PATIENCE, eventually, run, runtime_dir};

/// Jobs with their user and project. Only the jobs have the words `secret` and `n77`.
const JOBS: [(&str, &str, &str); 3] =
    [("a/1", "ann", "physics"), ("b/2", "bob", "bio"), ("c/3", "carol", "astro")];

/// Callers that have a token, with the options of `skopos pki`, and the jobs that each may read; `None` for a caller that asks
/// nothing.
const CALLERS: [(&str, &[&str], Option<&str>); 6] = [
    ("joins", &["token"], None),
    ("ann", &["user", "ann"], Some("a/1")),
    ("lia", &["user", "lia", "--leads", "bio"], Some("b/2")),
    ("eve", &["user", "eve", "--role", "support"], Some("a/1 b/2 c/3")),
    ("ida", &["user", "ida", "--role", "admin"], Some("a/1 b/2 c/3")),
    ("zoe", &["user", "zoe"], Some("")),
];

/// Texts that only a reader of a job may learn.
const SECRETS: [(&str, &[&str]); 3] = [
    ("a/1", &["ann's secret", "physics"]),
    ("b/2", &["bob's secret", "bio"]),
    ("c/3", &["carol's secret", "astro"]),
];

/// A question, of which `JOB` is replaced by the id of each job and of one that does not exist.
const OF_ONE_JOB: [&str; 8] = [
    "SELECT count(*) AS n FROM jobs WHERE job = 'JOB'",
    "SELECT name AS n FROM jobs WHERE job = 'JOB'",
    "SELECT value AS n FROM job_metadata WHERE job = 'JOB' AND field = 'tag'",
    "SELECT count(*) AS n FROM job_samples WHERE job = 'JOB'",
    "SELECT count(*) AS n FROM sealed_samples WHERE job = 'JOB'",
    "SELECT count(*) AS n FROM job_findings WHERE job = 'JOB'",
    "SELECT count(*) AS n FROM jobs WHERE job = 'JOB' AND has(hosts, 'n77')",
    // An error that would have the text of a row.
    "SELECT CAST(name AS BIGINT) AS n FROM jobs WHERE job = 'JOB'",
];

/// Questions about all jobs.
const OF_ALL: [&str; 7] = [
    "SELECT count(*) AS n FROM jobs",
    "SELECT count(DISTINCT project) AS n FROM jobs",
    "SELECT count(*) AS n FROM jobs WHERE has(tags, 'hidden')",
    "SELECT count(*) AS n FROM jobs WHERE has_words(text, 'secret')",
    "SELECT count(DISTINCT job) AS n FROM job_findings",
    "SELECT max(cpu_seconds) AS n FROM jobs",
    "SELECT count(*) AS n FROM job_reads WHERE question = 'none'",
];

fn statements() -> Vec<String> {
    let ids = JOBS.iter().map(|job| job.0).chain(["x/9"]);
    let of_jobs = ids.flat_map(|id| OF_ONE_JOB.map(|sql| sql.replace("JOB", id)));
    OF_ALL.iter().map(|sql| (*sql).to_owned()).chain(of_jobs).collect()
}

fn store(site: &Site) {
    let mut records = Vec::new();
    for (at, (job, user, project)) in JOBS.iter().enumerate() {
        let mut add = |kind: &str, document: Json| {
            let (job, node) = ((*job).to_owned(), "n77".to_owned());
            let (kind, time_ns) = (kind.to_owned(), 1_700_000_000_000_000_000);
            records.push(JobDocument { job, generation: 0, node, time_ns, kind, document });
        };
        add(
            "start",
            json!({"user": user, "project": project, "name": format!("{user}'s secret"),
                   "application": "solve", "nodes": ["n77"], "tags": ["hidden"]}),
        );
        add("metrics", json!({"schema": "s", "names": ["load"]}));
        add("sample", json!({"schema": "s", "values": [1.0]}));
        add(
            "end",
            json!({"state": "completed", "used": {"cpu_seconds": 10.0 * (at + 1) as f64, "wall_seconds": 10.0}}),
        );
    }
    let producer = "test".to_owned();
    let request =
        StoreRequest { store_jobs: records, producer, epoch: 1, ..StoreRequest::default() };
    let stream = reach(site.dir.path(), PATIENCE).expect("a hub").expect("it runs");
    store_jobs(&stream, &request).expect("stored");
    // The segments of ended jobs are sealed after some seconds.
    let sealed = "SELECT count(DISTINCT job) AS n FROM sealed_samples";
    eventually("the jobs are sealed", || {
        run(site.dir.path(), &["sql", "--json", sealed]).json()["rows"] == json!([{"n": 3}])
    });
}

/// Checks the answers of one caller: rows, or the text of an error, by statement.
fn check(what: &str, readable: &str, answers: &BTreeMap<String, Json>) {
    let count = readable.split_whitespace().count();
    let n = |sql: &str| answers[sql][0]["n"].clone();
    assert_eq!(n(OF_ALL[0]), count, "{what}");
    assert_eq!(n(OF_ALL[1]), count, "{what}");
    assert_eq!(n(OF_ALL[2]), count, "{what}");
    assert_eq!(n(OF_ALL[3]), count, "{what}");
    assert_eq!(n(OF_ALL[4]), count, "{what}");
    let most = readable.split_whitespace().map(|id| 10.0 * f64::from(id.as_bytes()[2] - b'0'));
    assert_eq!(n(OF_ALL[5]).as_f64(), most.reduce(f64::max), "{what}");
    for (id, secrets) in SECRETS {
        let may_read = readable.split_whitespace().any(|readable| readable == id);
        for sql in OF_ONE_JOB {
            let (asked, missing) = (sql.replace("JOB", id), sql.replace("JOB", "x/9"));
            let (answer, nothing) = (&answers[&asked], &answers[&missing]);
            let (answered, expected) = (answer.to_string(), nothing.to_string().replace("x/9", id));
            let is_the_same = answered == expected;
            // A job that the caller may not read answers as one that does not exist.
            assert_eq!(is_the_same, !may_read, "{what}: {asked}: {answer} {nothing}");
        }
        if !may_read {
            for (sql, answer) in answers {
                let text = answer.to_string();
                let told = secrets.iter().find(|secret| text.contains(**secret));
                assert_eq!(told, None, "{what}: {sql}: {text}");
            }
        }
    }
}

fn tokens(site: &Site) -> BTreeMap<&'static str, Option<String>> {
    let mut tokens = BTreeMap::from([("stranger", None), ("forger", Some("0123abcd".to_owned()))]);
    tokens.extend(CALLERS.map(|(name, words, _)| (name, Some(site.token(words)))));
    tokens
}

/// Each caller at the HTTP listener, and the owner at the UNIX socket and the HTTP listener.
#[test]
fn each_caller_reads_own_jobs_over_https_and_the_owner_at_the_socket() {
    if !is_root() {
        return;
    }
    let site = Site::start();
    store(&site);
    let tokens = tokens(&site);
    let ask = |words: &[&str], sql: &str| -> (String, Json) {
        let told = site.sql(words, sql);
        let (body, status) = told.rsplit_once('\n').expect("a status");
        let body: Json = serde_json::from_str(body).unwrap_or_else(|_| json!(body));
        (status.to_owned(), body.get("rows").unwrap_or(&body).clone())
    };
    for (caller, token) in &tokens {
        let header = token.as_ref().map(|token| format!("authorization: Bearer {token}"));
        let words: Vec<&str> = header.iter().flat_map(|header| ["-H", header]).collect();
        let Some(readable) = CALLERS.iter().find(|it| it.0 == *caller).and_then(|it| it.2) else {
            let refused = statements().into_iter().map(|sql| ask(&words, &sql));
            let expected = if *caller == "joins" { "403" } else { "401" };
            let mut texts = refused.map(|(status, body)| {
                assert_eq!(status, expected, "{caller}: {body}");
                body.to_string()
            });
            let first = texts.next().expect("a statement");
            texts.for_each(|text| assert_eq!(text, first, "{caller}: each refusal is the same"));
            continue;
        };
        let answers = statements().into_iter().map(|sql| {
            let answer = ask(&words, &sql).1;
            (sql, answer)
        });
        let answers: BTreeMap<String, Json> = answers.collect();
        check(&format!("{caller} over HTTPS"), readable, &answers);
        let reads = ask(&words, OF_ALL[6]).0;
        assert_eq!(reads, if *caller == "ida" { "200" } else { "403" }, "{caller}");
    }
    let of_socket = statements().into_iter().map(|sql| {
        let ran = run(site.dir.path(), &["sql", "--json", &sql]);
        let answer = if ran.code == 0 { ran.json()["rows"].clone() } else { json!(ran.stderr) };
        (sql, answer)
    });
    check("the owner at the socket", "a/1 b/2 c/3", &of_socket.collect());
    // Another user has no way to the socket.
    let dir = site.dir.path().to_str().expect("UTF-8");
    let socket = format!("{dir}/hub.sock");
    let words = ["--max-time", "2", "--http0.9", "--unix-socket", &socket, "http://hub/"];
    let told = site.curl(&words);
    assert_eq!(told.trim(), "000", "{told}");
}

/// Each caller's estimate is of the jobs that it may read, and says nothing of others.
#[test]
fn an_estimate_is_of_the_jobs_that_its_caller_may_read() {
    if !is_root() {
        return;
    }
    let site = Site::start();
    store(&site);
    for (caller, token) in &tokens(&site) {
        let header = token.as_ref().map(|token| format!("authorization: Bearer {token}"));
        let words: Vec<&str> = header.iter().flat_map(|header| ["-H", header]).collect();
        let path = "/api/v1/estimate?class=solve&resource=cpu_seconds&minimize=retries";
        let told = site.request(&words, path);
        let (body, status) = told.rsplit_once('\n').expect("a status");
        match CALLERS.iter().find(|it| it.0 == *caller).and_then(|it| it.2) {
            None => assert!(matches!(status, "401" | "403"), "{caller}: {told}"),
            Some("") => assert_eq!(status, "404", "{caller}: {told}"),
            Some(readable) => {
                let body: Json = serde_json::from_str(body).expect("JSON");
                let used =
                    readable.split_whitespace().map(|id| 10.0 * f64::from(id.as_bytes()[2] - b'0'));
                let most = used.clone().fold(0.0, f64::max);
                assert_eq!(
                    (&body["source"], &body["count"]),
                    (&json!("jobs"), &json!(used.count()))
                );
                assert_eq!((&body["allocation"], &body["maximum"]), (&json!(most), &json!(most)));
            }
        }
    }
}

/// Runs the script with a request, and returns its lines.
fn ask_over_flight(python: &std::path::Path, args: &[&str; 3], request: &Json) -> String {
    let mut child = Command::new(python)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(request.to_string().as_bytes()).expect("written");
    drop(input);
    let ran = child.wait_with_output().expect("it ran");
    assert!(ran.status.success());
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

/// Each caller at the Flight listener, and a node that sends records: of itself, and with the name of another one.
/// Holds the answers to one caller over Flight against the jobs that it may read.
fn check_over_flight(caller: &str, answers: &BTreeMap<String, Json>) {
    let of_token = CALLERS.iter().find(|it| it.0 == caller).and_then(|it| it.2);
    let readable = if caller == "node" { Some("") } else { of_token };
    let Some(readable) = readable else {
        let is_refused = |text: &str| {
            text.contains(if caller == "joins" { "may not" } else { "no valid token" })
                || text.contains("bearer")
                || text.contains("token")
        };
        let texts: std::collections::BTreeSet<String> =
            answers.values().map(ToString::to_string).collect();
        assert!(texts.len() == 1 && texts.iter().all(|t| is_refused(t)), "{caller}: {texts:?}");
        return;
    };
    check(&format!("{caller} over Flight"), readable, answers);
    let is_rows = answers[OF_ALL[6]].is_array();
    assert_eq!(is_rows, caller == "ida", "{caller}");
}

#[test]
fn each_caller_reads_own_jobs_over_flight_and_a_node_sends_records_of_itself_alone() {
    let Some(python) = python().filter(|_| is_root()) else {
        println!("skipped: no pyarrow, or not root");
        return;
    };
    let site = Site::start();
    store(&site);
    let node = runtime_dir();
    let joined = site.join(node.path(), "n1", &site.token(&["token"]));
    assert_eq!(joined.code, 0, "{joined:?}");
    let text = |path: std::path::PathBuf| std::fs::read_to_string(path).expect("text");
    let request = json!({
        "authority": text(site.authority()),
        "identity": text(node.path().join("state/pki/identity.pem")),
        "tokens": tokens(&site),
        "statements": statements(),
    });
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/job_callers.py");
    let uri = format!("grpc+tls://{}", site.flight);
    let lines = ask_over_flight(&python, &[script, &uri, NOBODY], &request);
    let (mut answers, mut sent) = (BTreeMap::<String, BTreeMap<String, Json>>::new(), Vec::new());
    for line in lines.lines() {
        match serde_json::from_str::<Json>(line).expect("JSON").as_array().map(Vec::as_slice) {
            Some([Json::String(caller), Json::Number(at), answer]) => {
                let sql = statements().swap_remove(at.as_u64().expect("a number") as usize);
                answers.entry(caller.clone()).or_default().insert(sql, answer.clone());
            }
            Some([Json::String(what), answer]) => sent.push((what.clone(), answer.to_string())),
            other => panic!("{other:?}"),
        }
    }
    answers.iter().for_each(|(caller, answers)| check_over_flight(caller, answers));
    assert_eq!(answers.len(), CALLERS.len() + 3);
    let told = |what: &str| &sent.iter().find(|it| it.0 == what).expect("sent").1;
    assert_eq!(told("a job of this node"), "[]");
    for (what, expected) in [
        ("a record about another node", "may not store records of jobs on n2"),
        ("the start of a job of another node", "may not store records of jobs on n1"),
        ("a start that names another node as its node", "may not store records of jobs on n2"),
        ("a job that is known to run elsewhere", "may not store records of jobs on n1"),
        ("a stranger", "unauthenticated"),
    ] {
        assert!(told(what).contains(expected), "{what}: {}", told(what));
    }
    let stored = "SELECT job, nodes FROM jobs WHERE job IN ('own', 'other', 'both')";
    eventually("the job of the node is there", || {
        run(site.dir.path(), &["sql", "--plain", stored]).stdout == "own\t1\n"
    });
    let ended = "SELECT state FROM jobs WHERE job = 'b/2'";
    assert_eq!(run(site.dir.path(), &["sql", "--plain", ended]).stdout, "completed\n");
}
