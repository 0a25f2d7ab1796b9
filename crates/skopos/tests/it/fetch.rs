//! `skopos job fetch`: downloads from one hub and from two, by each caller, and of files that were damaged.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;

use serde_json::{Value as Json, json};
use skopos_hub::client::{reach, store_jobs};
use skopos_hub::jobs::Wanted;
use skopos_hub::messages::{JobDocument, StoreRequest};
use skopos_model::Timestamp;
use skopos_model::job::{JobId, JobRecord, Kind};
use skopos_serve::downloads::{JobName, PlacesCommand, VERSION};
use skopos_serve::fetch::{FetchError, Fetcher, FoundEndpoint, HubAddress};
use skopos_store::jobs::{JobPart, Lts, Segment, StoredRecord};

use crate::certificates::Site;
use crate::flight::FlightServer;
use crate::json::check;
use crate::support::{PATIENCE, Ran, Running, eventually, free_port, run};

/// An id that would be another path, or end a text of SQL.
const ODD: &str = "a/../b'; DROP";

/// Stores a job with a number of measurements in the hub of a runtime directory; one that has ended is sealed soon.
pub(crate) fn store(
    dir: &Path,
    (job, user, project): (&str, &str, &str),
    samples: usize,
    has_ended: bool,
) {
    let record = |kind: &str, at: usize, document: Json| JobDocument {
        job: job.to_owned(),
        generation: 0,
        node: "n01".to_owned(),
        time_ns: 1_700_000_000_000_000_000 + at as i64 * 1_000_000_000,
        kind: kind.to_owned(),
        document,
    };
    let mut records = vec![
        record("start", 0, json!({"user": user, "project": project})),
        record("metrics", 0, json!({"schema": "node", "names": ["cpu", "mem"]})),
    ];
    let sample = |at| record("sample", at, json!({"schema": "node", "values": [at, 0.5]}));
    records.extend((0..samples).map(sample));
    if has_ended {
        records.push(record("end", samples, json!({"state": "completed"})));
    }
    let request = StoreRequest {
        store_jobs: records,
        producer: format!("test/{job}"),
        epoch: 1,
        ..StoreRequest::default()
    };
    let stream = reach(dir, PATIENCE).expect("a hub").expect("it runs");
    store_jobs(&stream, &request).expect("stored");
}

pub(crate) fn is_sealed(dir: &Path, jobs: usize) -> bool {
    let listed = run(dir, &["sql", "--json", "SELECT job FROM jobs WHERE state = 'completed'"]);
    let segments = fs::read_dir(dir.join("state/jobs/lts")).into_iter().flatten();
    let parts = segments.filter_map(|file| Segment::open(&file.ok()?.path()).ok());
    let parts: usize = parts.map(|segment| segment.parts().len()).sum();
    listed.json()["rows"].as_array().is_some_and(|rows| rows.len() >= jobs) && parts >= jobs
}

/// Returns the segments of a folder.
fn segments(folder: &Path) -> Vec<PathBuf> {
    let files =
        fs::read_dir(folder).into_iter().flatten().filter_map(|file| Some(file.ok()?.path()));
    files.filter(|path| path.extension() == Some("parquet".as_ref())).collect()
}

/// Returns the number of records of a job in the segments of a folder, which must be whole.
pub(crate) fn records(folder: &Path, job: &str) -> usize {
    let id = JobId::new(job, 0).expect("an id");
    let of = |path: PathBuf| {
        let segment = Segment::open(&path).expect("a segment");
        segment.verify().expect("whole");
        let parts = segment.parts().iter().filter(|part| part.id == id);
        parts.map(|part| segment.read(&id, part.number).expect("read").len()).sum::<usize>()
    };
    segments(folder).into_iter().map(of).sum()
}

pub(crate) fn fetched(ran: &Ran) -> (i32, Json) {
    let document = ran.json();
    check("job_fetch", &document);
    (ran.code, document)
}

#[test]
fn jobs_are_fetched_once_and_again_only_what_is_not_whole() {
    let server = FlightServer::start();
    let dir = server.up.path();
    for (job, samples) in [(ODD, 20_000), ("4711", 3), ("4712", 5)] {
        store(dir, (job, "ann", "astro"), samples, true);
    }
    store(dir, ("4713", "ann", "astro"), 7, false);
    eventually("three jobs are sealed", || is_sealed(dir, 3));
    let out = dir.join("out");
    let fetch = |args: &[&str]| {
        let all =
            [&["job", "fetch", "--json", "--out", out.to_str().expect("text")], args].concat();
        server.up.run(&all)
    };
    let site = out.join("default");
    let (code, first) = fetched(&fetch(&["--where", "\"user\" = 'ann'"]));
    assert_eq!(
        (code, &first["jobs"], &first["fetched_parts"]),
        (0, &json!(4), &json!(4)),
        "{first}"
    );
    assert_eq!(first["records"], 20_003 + 6 + 8 + 9);
    assert_eq!([ODD, "4711", "4712"].map(|job| records(&site, job)), [20_003, 6, 8]);
    assert_eq!(records(&site.join("running"), "4713"), 9);
    // Sealed parts that are whole are not fetched again.
    let (_, again) = fetched(&fetch(&[ODD, "4711", "4712", "4713"]));
    assert_eq!((&again["kept_parts"], &again["fetched_parts"]), (&json!(3), &json!(1)), "{again}");
    assert_eq!(records(&site.join("running"), "4713"), 9);
    // A flipped bit costs its file, which is set aside, and an unfinished file is removed.
    for path in segments(&site) {
        let mut bytes = fs::read(&path).expect("readable");
        bytes[100] ^= 4;
        fs::write(&path, bytes).expect("ours");
    }
    fs::write(site.join("segment-00000099.tmp"), "torn").expect("ours");
    let (code, mended) = fetched(&fetch(&["4711", "4712"]));
    assert_eq!((code, &mended["fetched_parts"]), (0, &json!(2)), "{mended}");
    assert_eq!(["4711", "4712"].map(|job| records(&site, job)), [6, 8]);
    assert!(!site.join("segment-00000099.tmp").exists());
    // Jobs that are missing are named, and the rest is fetched.
    let (code, missing) = fetched(&fetch(&["4711", "none", "4712.g7"]));
    let names: Vec<&Json> =
        missing["missing"].as_array().expect("a list").iter().map(|m| &m["jobs"][0]).collect();
    assert_eq!((code, names), (1, vec![&json!("4712.g7"), &json!("none")]), "{missing}");
    let other = fetch(&["4711", "--kind", "start"]);
    assert!(other.code == 2 && other.stderr.contains("are of other records"), "{other:?}");
    let wrong = fetch(&["--where", "colour = 'red'"]);
    assert!(wrong.code == 2 && wrong.stderr.contains("line 1, column 1: "), "{wrong:?}");
    let starts = dir.join("starts");
    let kinds =
        ["job", "fetch", "4711", "--kind", "start", "--out", starts.to_str().expect("text")];
    assert_eq!(server.up.run(&kinds).code, 0);
    assert_eq!(records(&starts.join("default"), "4711"), 1);
    // Reads of the owner are in the log, too.
    let sql = "SELECT question, outcome, sum(records) AS n FROM job_reads WHERE question = 'download' \
               GROUP BY question, outcome";
    let log = server.up.run(&["sql", "--json", sql]).json()["rows"][0].clone();
    assert_eq!(
        (&log["question"], &log["outcome"]),
        (&json!("download"), &json!("granted")),
        "{log}"
    );
    assert!(log["n"].as_u64().is_some_and(|n| n >= 20_000), "{log}");
}

#[test]
fn jobs_are_fetched_beside_a_copy_that_cannot_be_read_and_the_copy_is_missing() {
    let mut server = FlightServer::start();
    store(server.up.path(), ("4711", "ann", "astro"), 3, true);
    eventually("the job is sealed", || is_sealed(server.up.path(), 1));
    server.up.kill();
    let copy = server.up.path().join("state/replicas/hub9");
    fs::create_dir_all(&copy).expect("a folder");
    fs::write(copy.join("replica"), "torn").expect("written");
    server.restart();
    let out = server.up.path().join("out");
    let out = out.to_str().expect("text");
    for (place, question) in
        [("by-id", &["4711"][..]), ("by-condition", &["--where", "job = '4711'"])]
    {
        let out = format!("{out}/{place}");
        let args = [&["job", "fetch", "--out", &out, "--json"], question].concat();
        let (code, document) = fetched(&server.up.run(&args));
        assert_eq!((code, &document["records"]), (1, &json!(6)), "{document}");
        let missing = document["missing"].as_array().expect("a list");
        let why = missing.iter().map(|one| one["why"].as_str().unwrap_or_default());
        let mut why = why.peekable();
        assert!(why.peek().is_some(), "{document}");
        assert!(why.all(|why| why.starts_with("the copy of the jobs of hub9")), "{document}");
    }
}

fn command(jobs: &[&str]) -> PlacesCommand {
    let name = |job: &&str| JobName { job: (*job).to_owned(), generation: None };
    PlacesCommand {
        skopos_jobs: VERSION,
        jobs: jobs.iter().map(name).collect(),
        ..PlacesCommand::default()
    }
}

/// Returns the number of records that a ticket gives, or the code and text of the refusal.
fn get(hub: &mut Fetcher, ticket: &[u8]) -> Result<u64, String> {
    match hub.get(ticket, &mut |_| Ok(())) {
        Ok(sum) => Ok(sum.records()),
        Err(FetchError::Ticket(e)) => Err(e.in_one_line()),
        Err(e) => panic!("{}", e.into_failure().in_one_line()),
    }
}

/// Checks the jobs that a caller finds and downloads. Returns its tickets.
fn own_tickets(hub: &mut Fetcher, name: &str, expected: &str) -> Vec<Vec<u8>> {
    let names = |endpoints: &[FoundEndpoint]| {
        let mut names: Vec<String> =
            endpoints.iter().flat_map(|e| &e.metadata.jobs).map(|of| of.job.clone()).collect();
        names.sort();
        names.dedup();
        names.join(" ")
    };
    let all = command(&["x/ann", "x/joe", "x/none"]);
    let condition =
        PlacesCommand { condition: Some("true".to_owned()), jobs: Vec::new(), ..all.clone() };
    let mut tickets = Vec::new();
    for command in [&all, &condition] {
        let (metadata, endpoints) = hub.places(command).expect("answered");
        assert_eq!(names(&endpoints), expected, "{name}");
        let count = expected.split_whitespace().count() as u64;
        assert_eq!((metadata.jobs, metadata.after), (count, None), "{name}");
        let records: u64 = endpoints.iter().map(|e| get(hub, &e.ticket).expect(name)).sum();
        let of = |job: &str| if job == "x/ann" { 6 } else { 8 };
        assert_eq!(records, expected.split_whitespace().map(of).sum::<u64>(), "{name}");
        tickets.extend(endpoints.into_iter().map(|e| e.ticket));
    }
    // A job of another one looks like one that is not there.
    let mut one = |job: &str| {
        let (metadata, endpoints) = hub.places(&command(&[job])).expect("answered");
        (metadata, endpoints.len())
    };
    let none = one("x/none");
    assert_eq!(none.1, 0);
    for job in ["x/ann", "x/joe"].into_iter().filter(|job| !expected.contains(job)) {
        assert_eq!(one(job), none, "{name}");
    }
    tickets
}

/// The whole matrix: each role asks for places by id and by condition, downloads with its own tickets and with those of every
/// other role. Nothing tells a job that may not be read from one that does not exist.
#[test]
fn each_caller_downloads_its_jobs_and_no_ticket_of_another() {
    let site = Site::start();
    let dir = site.dir.path();
    store(dir, ("x/ann", "ann", "astro"), 3, true);
    store(dir, ("x/joe", "joe", "bio"), 5, true);
    eventually("they are listed", || {
        let listed = run(dir, &["sql", "--json", "SELECT job FROM jobs WHERE state = 'completed'"]);
        listed.json()["rows"].as_array().is_some_and(|rows| rows.len() == 2)
    });
    let authority = fs::read(site.authority()).expect("readable");
    let hub = |token: Option<String>| {
        let (url, authority) = (format!("grpc+tls://{}", site.flight), Some(authority.clone()));
        Fetcher::connect(&HubAddress { url, authority, token }).expect("a hub")
    };
    let token = |args: &[&str]| Some(site.token(&[&["user"], args].concat()));
    let callers = [
        ("owner", None, "x/ann x/joe"),
        ("ann", token(&["ann"]), "x/ann"),
        ("lead", token(&["bob", "--leads", "astro"]), "x/ann"),
        ("kim", token(&["kim"]), ""),
        ("support", token(&["eve", "--role", "support"]), "x/ann x/joe"),
        ("admin", token(&["ida", "--role", "admin"]), "x/ann x/joe"),
    ];
    let mut hubs: Vec<Fetcher> = callers.iter().map(|caller| hub(caller.1.clone())).collect();
    let mut tickets = Vec::new();
    for ((name, _, expected), hub) in callers.iter().zip(&mut hubs) {
        tickets.extend(own_tickets(hub, name, expected).into_iter().map(|ticket| (*name, ticket)));
    }
    let mut refused = 0;
    for ((name, ..), hub) in callers.iter().zip(&mut hubs) {
        for (holder, ticket) in &tickets {
            match get(hub, ticket) {
                Ok(_) => assert_eq!(name, holder),
                Err(why) => {
                    refused += 1;
                    assert_ne!(name, holder);
                    assert!(why.contains("the ticket was given to another caller"), "{why}");
                    assert!(!["ann", "joe", "x/"].iter().any(|word| why.contains(word)), "{why}");
                }
            }
        }
        let mut altered = tickets[0].1.clone();
        let last = altered.len() - 5;
        altered[last] ^= 1;
        for forged in
            [&altered[..], b"SKT\x01", b"SKT\x01\x00junk", &[&tickets[0].1[..], b" "].concat()]
        {
            let why = get(hub, forged).expect_err("refused");
            assert!(why.contains("the ticket is not one of this site"), "{why}");
        }
    }
    assert!(refused > 30, "{refused}");
    // The policy is asked again: this is the same user, who does not lead the project any more.
    let mut bob = hub(token(&["bob"]));
    let of_lead = tickets.iter().find(|(name, _)| *name == "lead").expect("a ticket");
    let why = get(&mut bob, &of_lead.1).expect_err("refused");
    assert!(why.contains("may not be read, or is gone"), "{why}");
    // All of it is in the log, which members do not read.
    let count = |condition: &str| {
        let sql = format!("SELECT count(*) AS n FROM job_reads WHERE {condition}");
        run(dir, &["sql", "--json", &sql]).json()["rows"][0]["n"].as_u64().unwrap_or_default()
    };
    assert_eq!(count("question = 'download' AND outcome = 'refused'"), refused + 4 * 6 + 1);
    assert_eq!(count("\"user\" = 'kim' AND outcome = 'granted' AND jobs > 0"), 0);
    assert!(count("\"user\" = 'ann' AND question = 'places' AND outcome = 'refused'") >= 2);
}

#[test]
fn commands_that_are_not_valid_are_refused_with_the_form() {
    let server = FlightServer::start();
    store(server.up.path(), ("7", "ann", ""), 1, true);
    let address =
        HubAddress { url: format!("grpc://{}", server.address()), ..HubAddress::default() };
    let mut hub = Fetcher::connect(&address).expect("a hub");
    let base = command(&["7"]);
    let many: Vec<String> = (0..2000).map(|at| at.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let kinds = ["song".to_owned()].into();
    for (command, expected) in [
        (PlacesCommand { skopos_jobs: 2, ..base.clone() }, "a version that this hub does not know"),
        (PlacesCommand { jobs: Vec::new(), ..base.clone() }, "either `jobs` or `where`"),
        (PlacesCommand { condition: Some("true".to_owned()), ..base.clone() }, "either `jobs` or"),
        (command(&many), "names more than 1000 jobs"),
        (
            PlacesCommand { records: Wanted { kinds, ..Wanted::default() }, ..base.clone() },
            "no kind \"song\"",
        ),
    ] {
        let error = hub.places(&command).expect_err("refused").into_failure();
        assert!(error.message().contains(expected), "{expected}: {}", error.message());
        assert!(error.hint_text().is_some_and(|hint| hint.contains("skopos_jobs")));
    }
    let condition = |text: &str| PlacesCommand {
        condition: Some(text.to_owned()),
        jobs: Vec::new(),
        ..base.clone()
    };
    for text in ["job = (", "true; DROP TABLE jobs", "--"] {
        let error = hub.places(&condition(text)).expect_err("refused").into_failure();
        assert!(!error.message().is_empty(), "{text}");
    }
    eventually("the job is listed", || {
        let (found, _) = hub.places(&condition("job = '7' -- a comment")).expect("answered");
        found.jobs == 1
    });
    // A condition that ends its parenthesis has the rights of the caller, and what it finds is no job.
    let beyond = condition("true) UNION (SELECT node, 0 FROM nodes");
    let (found, _) = hub.places(&beyond).expect("answered");
    assert_eq!(found.jobs, 1);
}

/// Two sites: each hub answers for its own jobs, and one that is away is named.
#[test]
fn jobs_of_two_sites_are_fetched_at_once_and_a_site_that_is_away_is_named() {
    let ports = [free_port(), free_port()];
    let url = |at: usize| format!("grpc://127.0.0.1:{}", ports[at]);
    let config = |at: usize| {
        let folder = crate::support::runtime_dir();
        let other = ["b", "a"][at];
        let text = format!("[hub.jobs]\nsites = {{ {other} = \"{}\" }}\n", url(1 - at));
        fs::write(folder.path().join("skopos.toml"), text).expect("written");
        folder
    };
    let configs = [config(0), config(1)];
    let file = |at: usize| configs[at].path().join("skopos.toml").display().to_string();
    let flights = [0, 1].map(|at: usize| format!("127.0.0.1:{}", ports[at]));
    let (files, live) = ([file(0), file(1)], format!("tcp/127.0.0.1:{}", free_port()));
    let live_b = format!("tcp/127.0.0.1:{}", free_port());
    let lives = [live, live_b];
    let args = |at: usize| {
        vec![
            "--config",
            &files[at],
            "--flight",
            &flights[at],
            "--live",
            "--listen",
            &lives[at],
            "--site",
            ["a", "b"][at],
            "--insecure",
        ]
    };
    let (a, mut b) = (Running::start_as("up", &args(0)), Running::start_as("up", &args(1)));
    let out = a.path().join("out");
    let fetch = || {
        let out = out.to_str().expect("text");
        fetched(&a.run(&["job", "fetch", "--json", "--all-sites", "--where", "true", "--out", out]))
    };
    // A hub without jobs names the other sites, too.
    eventually("both sites answer", || fetch().1["sites"] == json!(["a", "b"]));
    store(a.path(), ("1", "ann", ""), 10, true);
    store(b.path(), ("2", "ann", ""), 20, true);
    for hub in [&a, &b] {
        eventually("its job is sealed", || is_sealed(hub.path(), 1));
    }
    b.kill();
    let (code, document) = fetch();
    let missing = &document["missing"][0];
    assert_eq!(
        (code, &missing["site"], &document["sites"]),
        (1, &json!("b"), &json!(["a"])),
        "{document}"
    );
    assert_eq!(records(&out.join("a"), "1"), 13);
    b.restart_as("up", &args(1));
    let (code, document) = fetch();
    assert_eq!((code, &document["sites"]), (0, &json!(["a", "b"])), "{document}");
    assert_eq!((&document["kept_parts"], &document["fetched_parts"]), (&json!(1), &json!(1)));
    assert_eq!(records(&out.join("b"), "2"), 23);
}

/// A hub tells a location that does not answer before its own: the client goes on to the next one.
#[test]
fn the_next_location_is_taken_when_one_does_not_answer() {
    let [dead, own] = [free_port(), free_port()];
    let folder = crate::support::runtime_dir();
    let file = folder.path().join("skopos.toml");
    let text = format!(
        "[hub.jobs]\nlocations = [\"grpc://127.0.0.1:{dead}\", \"grpc://127.0.0.1:{own}\"]\n"
    );
    fs::write(&file, text).expect("written");
    let (file, flight) = (file.display().to_string(), format!("127.0.0.1:{own}"));
    let up = Running::start_as("up", &["--config", &file, "--flight", &flight]);
    store(up.path(), ("1", "ann", ""), 10, true);
    eventually("it is sealed", || is_sealed(up.path(), 1));
    let out = up.path().join("out");
    let fetch = ["job", "fetch", "1", "--json", "--out", out.to_str().expect("text")];
    let (code, document) = fetched(&up.run(&fetch));
    assert_eq!((code, &document["records"]), (0, &json!(13)), "{document}");
    assert_eq!(records(&out.join("default"), "1"), 13);
}

/// Returns the part of a job that has ended, with a number of measurements.
fn part(job: &str, user: &str, samples: usize) -> JobPart {
    let id = JobId::new(job, 0).expect("an id");
    let document = json!({ "user": user }).to_string();
    let contents = std::iter::once((Kind::Start, document.into_bytes()))
        .chain(
            (0..samples)
                .map(|at| (Kind::Sample, JobRecord::sample_content("node", &[at as f64, 0.5]))),
        )
        .chain(std::iter::once((Kind::End, b"{\"state\":\"completed\"}".to_vec())));
    let record = |(at, (kind, content)): (i64, (Kind, Vec<u8>))| {
        let time = Timestamp::from_nanos(1_700_000_000_000_000_000 + at);
        StoredRecord::of(&JobRecord {
            kind,
            job,
            generation: 0,
            node: "n01",
            time,
            content: &content,
        })
    };
    let records = (0..).zip(contents).map(record).collect();
    JobPart { id, number: 0, records, marks: Vec::new() }
}

/// Returns a hub whose jobs are sealed in segments, one for each list of jobs.
fn hub_of(segments: &[&[JobPart]], port: u16) -> Running {
    let folder = crate::support::runtime_dir();
    let lts = folder.path().join("state/jobs/lts");
    let store = Lts::open(&lts).expect("a folder");
    for parts in segments {
        store.seal(parts, Timestamp::from_nanos(1_700_000_100_000_000_000)).expect("sealed");
    }
    drop(store);
    fs::write(folder.path().join("state/jobs/site"), "default\n").expect("written");
    let rebuilt = run(folder.path(), &["mds", "rebuild"]);
    assert_eq!(rebuilt.code, 0, "{}", rebuilt.stderr);
    Running::start_in(folder, "up", &["--flight", &format!("127.0.0.1:{port}")])
}

/// A segment whose jobs are all wanted comes as the file that it is; its parts that are there already do not come twice.
#[test]
fn a_whole_segment_is_fetched_as_a_file() {
    let port = free_port();
    let hub = hub_of(&[&[part("1", "ann", 5), part("2", "ann", 7)], &[part("3", "ann", 9)]], port);
    let fetch = |folder: &str, args: &[&str]| {
        let out = hub.path().join(folder);
        let all =
            [&["job", "fetch", "--json", "--out", out.to_str().expect("text")], args].concat();
        let (code, document) = fetched(&hub.run(&all));
        assert_eq!(code, 0, "{document}");
        (out.join("default"), document)
    };
    let (site, document) = fetch("all", &["1", "2", "3"]);
    let numbers = (&document["fetched_parts"], &document["records"]);
    assert_eq!(numbers, (&json!(3), &json!(7 + 9 + 11)), "{document}");
    let (mut own, mut sent) = (segments(&hub.path().join("state/jobs/lts")), segments(&site));
    own.sort();
    sent.sort();
    let content = |paths: &[PathBuf]| {
        let file = |path: &PathBuf| {
            (path.file_name().map(ToOwned::to_owned), fs::read(path).expect("whole"))
        };
        paths.iter().map(file).collect::<Vec<_>>()
    };
    assert_eq!((content(&own), own.len()), (content(&sent), 2));
    // One of two jobs is there: the other one alone is kept of the segment.
    let (site, document) = fetch("some", &["2"]);
    assert_eq!((segments(&site).len(), &document["records"]), (1, &json!(9)), "{document}");
    let (site, document) = fetch("some", &["1", "2"]);
    assert_eq!((&document["kept_parts"], &document["fetched_parts"]), (&json!(1), &json!(1)));
    assert_eq!(["1", "2"].map(|job| records(&site, job)), [7, 9]);
    assert_eq!(fs::read_dir(site.join("arriving")).expect("a folder").count(), 0);
    // Of a file that comes for most kinds of records, the client keeps these alone.
    let kinds = ["1", "2", "3", "--kind", "sample", "--kind", "end"];
    let (site, document) = fetch("kinds", &kinds);
    let numbers = (&document["fetched_parts"], &document["records"]);
    assert_eq!(numbers, (&json!(3), &json!(6 + 8 + 10)), "{document}");
    assert_eq!(
        (segments(&site).len(), ["1", "2", "3"].map(|job| records(&site, job))),
        (2, [6, 8, 10])
    );
    assert_eq!(fs::read_dir(site.join("arriving")).expect("a folder").count(), 0);
    let (_, document) = fetch("kinds", &kinds);
    assert_eq!((&document["kept_parts"], &document["fetched_parts"]), (&json!(3), &json!(0)));
    // A ticket of a segment is one for all of its records, and for a client that asks for some only if it filters.
    let url = format!("grpc://127.0.0.1:{port}");
    let mut fetcher =
        Fetcher::connect(&HubAddress { url, ..HubAddress::default() }).expect("a hub");
    let mut files_of = |jobs: &[&str], records: Wanted, filters: bool| {
        let asked = PlacesCommand { segments: true, records, filters, ..command(jobs) };
        let (_, endpoints) = fetcher.places(&asked).expect("answered");
        endpoints.iter().filter(|endpoint| endpoint.metadata.segment.is_some()).count()
    };
    let all = ["1", "2", "3"];
    let of = |kind: &str| Wanted { kinds: [kind.to_owned()].into(), ..Wanted::default() };
    assert_eq!(files_of(&all, Wanted::default(), false), 2);
    assert_eq!(files_of(&["1", "3"], Wanted::default(), false), 1);
    assert_eq!(files_of(&["1"], Wanted::default(), false), 0);
    assert_eq!(files_of(&all, of("sample"), false), 0);
    assert_eq!(files_of(&all, of("sample"), true), 2);
    assert_eq!(files_of(&all, of("end"), true), 0);
    assert_eq!(files_of(&all, Wanted { from_ns: Some(0), ..of("sample") }, true), 0);
}

/// A damaged segment is not taken over; the jobs in it that are whole come one by one.
#[test]
fn a_damaged_segment_does_not_keep_its_whole_jobs() {
    let hub = hub_of(&[&[part("1", "ann", 40_000), part("2", "ann", 40_000)]], free_port());
    let path = segments(&hub.path().join("state/jobs/lts")).remove(0);
    let mut bytes = fs::read(&path).expect("readable");
    // Most of the file are values, first those of job 1.
    let quarter = bytes.len() / 4;
    bytes[quarter] ^= 4;
    fs::write(&path, bytes).expect("ours");
    let out = hub.path().join("out");
    let all = ["job", "fetch", "--json", "1", "2", "--out", out.to_str().expect("text")];
    let (code, document) = fetched(&hub.run(&all));
    let site = out.join("default");
    assert_eq!((code, &document["missing"][0]["jobs"]), (1, &json!(["1"])), "{document}");
    assert_eq!([records(&site, "1"), records(&site, "2")], [0, 40_002], "{document}");
    assert_eq!(fs::read_dir(site.join("arriving")).expect("a folder").count(), 0);
}

/// A part without a wanted record is not progress: with a damaged one beside it, the verb would never end.
#[test]
fn a_download_ends_although_a_part_has_no_record_of_the_kind_and_another_is_damaged() {
    let mut unended = part("1", "ann", 5);
    unended.records.pop();
    let hub = hub_of(&[&[unended], &[part("2", "ann", 5)]], free_port());
    let has_2 = |path: &PathBuf| {
        let segment = Segment::open(path).expect("a segment");
        segment.parts().iter().any(|part| part.id.job() == "2")
    };
    let path = segments(&hub.path().join("state/jobs/lts")).into_iter().find(has_2);
    let path = path.expect("the segment of job 2");
    let mut bytes = fs::read(&path).expect("readable");
    bytes[100] ^= 4;
    fs::write(&path, bytes).expect("ours");
    let out = hub.path().join("out");
    let out = out.to_str().expect("text");
    let all = ["job", "fetch", "--json", "1", "2", "--kind", "end", "--out", out];
    let (code, document) = fetched(&hub.run(&all));
    assert_eq!((code, &document["missing"][0]["jobs"]), (1, &json!(["2"])), "{document}");
    // The part of job 1 was asked for once, although it has none of these records.
    let sql = "SELECT count(*) AS n FROM job_reads \
               WHERE question = 'download' AND outcome = 'granted'";
    assert_eq!(hub.run(&["sql", "--json", sql]).json()["rows"][0]["n"], 1);
}

/// Starts a relay to a port. It passes on what `alter` makes of a client's bytes, or else ends the connection. Returns its port.
fn relay(port: u16, alter: fn(&[u8]) -> Option<Vec<u8>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let own = listener.local_addr().expect("bound").port();
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut hub = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
            let clone = |stream: &TcpStream| stream.try_clone().expect("a socket");
            let (mut from_hub, mut to_client) = (clone(&hub), clone(&client));
            thread::spawn(move || {
                let _ = io::copy(&mut from_hub, &mut to_client);
                let _ = to_client.shutdown(Shutdown::Both);
            });
            thread::spawn(move || {
                let mut bytes = vec![0; 64 << 10];
                while let Ok(read @ 1..) = client.read(&mut bytes) {
                    match alter(&bytes[..read]) {
                        Some(altered) if hub.write_all(&altered).is_ok() => {}
                        _ => break,
                    }
                }
                let _ = hub.shutdown(Shutdown::Both);
            });
        }
    });
    own
}

fn place_of(bytes: &[u8], word: &[u8]) -> Option<usize> {
    bytes.windows(word.len()).position(|window| window == word)
}

/// The second question to the first hub never gets an answer, although the first one does each time.
#[test]
fn another_hub_of_the_site_is_asked_for_what_the_first_one_cannot_answer() {
    let port = free_port();
    let hub = hub_of(&[&[part("1", "ann", 5)], &[part("2", "ann", 7)]], port);
    let poor = relay(port, |bytes| {
        let asks_for_2 = place_of(bytes, br#""job":"2""#).is_some();
        (!asks_for_2).then(|| bytes.to_vec())
    });
    let hubs = [poor, port].map(|port| format!("grpc://127.0.0.1:{port}"));
    let out = hub.path().join("out");
    let mut all = vec!["job", "fetch", "--json", "--out", out.to_str().expect("text")];
    all.extend(["--hub", &hubs[0], "--hub", &hubs[1]]);
    // A question has at most 500 ids.
    all.extend(["1"; 500]);
    all.push("2");
    let (code, document) = fetched(&hub.run(&all));
    assert_eq!((code, &document["fetched_parts"]), (0, &json!(2)), "{document}");
    assert_eq!(["1", "2"].map(|job| records(&out.join("default"), job)), [7, 9]);
}

#[test]
fn a_hub_of_an_earlier_version_is_to_be_updated() {
    let port = free_port();
    let hub = hub_of(&[&[part("1", "ann", 5)]], port);
    // The hub behind it does not know this field.
    let earlier = relay(port, |bytes| {
        let mut altered = bytes.to_vec();
        if let Some(at) = place_of(bytes, b"\"partial\"") {
            altered[at..at + 9].copy_from_slice(b"\"partiel\"");
        }
        Some(altered)
    });
    let (url, out) = (format!("grpc://127.0.0.1:{earlier}"), hub.path().join("out"));
    let out = out.to_str().expect("text");
    let ran = hub.run(&["job", "fetch", "1", "--hub", &url, "--out", out]);
    assert!(ran.code == 2 && ran.stderr.contains("hint: update the hub"), "{ran:?}");
}

#[test]
fn a_mistake_about_another_site_is_told_before_anything_is_downloaded() {
    let hub = hub_of(&[&[part("1", "ann", 5)]], free_port());
    fs::write(hub.path().join("token"), "secret").expect("written");
    let out = hub.path().join("out");
    for (file, expected) in [("token", "knows no site \"south\""), ("none", "none cannot be read")]
    {
        let named = format!("south={}", hub.path().join(file).display());
        let all = ["job", "fetch", "1", "--all-sites", "--site-token", &named, "--out"];
        let ran = hub.run(&[&all[..], &[out.to_str().expect("text")]].concat());
        assert!(ran.code == 2 && ran.stderr.contains(expected), "{ran:?}");
        assert!(!out.join("default").exists(), "{expected}");
    }
}
