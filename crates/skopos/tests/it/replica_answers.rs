//! A replica that answers for a hub that is away: to those who may read a job, marked as a copy, and nothing twice.

use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use skopos_serve::downloads::{JobName, PlacesCommand, SAME_HUB, VERSION};
use skopos_serve::fetch::{FetchError, Fetcher, FoundEndpoint, HubAddress};

use crate::fetch::{fetched, records, store};
use crate::jobs::rows;
use crate::replica::{Hub, has_segment, site};
use crate::support::{eventually, runtime_dir};

/// The jobs: id, user, number of measurements, and whether it has ended.
const JOBS: [(&str, &str, usize, bool); 3] =
    [("ann/1", "ann", 5, true), ("ann/2", "ann", 7, false), ("bob/3", "bob", 9, false)];

/// Number of the records of the jobs: a start, names, measurements and an end.
fn all_records() -> usize {
    let of = |(_, _, samples, has_ended): &(&str, &str, usize, bool)| {
        2 + samples + usize::from(*has_ended)
    };
    JOBS.iter().map(of).sum()
}

/// Returns the jobs that a hub lists to its owner: id, number of measurements, and the hub of which it has a copy.
fn listed(hub: &Hub) -> Json {
    let sql = "SELECT job, samples, copy_of FROM jobs ORDER BY job";
    rows(&hub.running.run(&["sql", "--json", sql]))
}

/// Returns the list of all jobs, of a hub itself or of a copy of another one.
fn expected(copy_of: Option<&str>) -> Json {
    let row = |(job, _, samples, _): &(&str, &str, usize, bool)| json!({"job": job, "samples": samples, "copy_of": copy_of});
    JOBS.iter().map(row).collect()
}

impl Hub {
    fn url(&self) -> String {
        format!("grpc+tls://{}", self.flight)
    }

    /// Returns a file with a token of a user at this hub.
    fn token(&self, user: &str) -> PathBuf {
        let made = self.running.run(&["pki", "user", user]);
        assert_eq!(made.code, 0, "{made:?}");
        let file = self.running.path().join(format!("{user}.token"));
        std::fs::write(&file, made.stdout).expect("written");
        file
    }

    /// Connects with the token in a file.
    fn fetcher(&self, token: &Path, authority: &Path) -> Fetcher {
        let address = HubAddress::new(&self.url(), Some(authority), Some(token));
        Fetcher::connect(&address.expect("an address")).expect("a hub")
    }

    /// Kills the hub, and returns its folder.
    fn killed(mut self) -> tempfile::TempDir {
        self.running.kill();
        std::mem::replace(&mut self.running.dir, runtime_dir())
    }

    /// Asks about one number in SQL.
    fn count(&self, sql: &str) -> Json {
        rows(&self.running.run(&["sql", "--json", sql]))[0]["n"].clone()
    }
}

/// Asks for the places of a job.
fn ask(hub: &mut Fetcher, job: &str) -> Result<Vec<FoundEndpoint>, FetchError> {
    let jobs = vec![JobName { job: job.to_owned(), generation: None }];
    let command = PlacesCommand { skopos_jobs: VERSION, jobs, ..PlacesCommand::default() };
    hub.places(&command).map(|(_, places)| places)
}

/// Returns the places of a job that a user may read.
fn places(hub: &mut Fetcher, job: &str) -> Vec<FoundEndpoint> {
    ask(hub, job).map_err(FetchError::into_failure).expect("an answer")
}

/// Downloads the records of a ticket. Returns their number, or the text of the refusal.
fn download(hub: &mut Fetcher, place: &FoundEndpoint) -> Result<u64, String> {
    let sum = hub.get(&place.ticket, &mut |_| Ok(()));
    sum.map(|sum| sum.records()).map_err(|e| e.into_failure().in_one_line())
}

/// Waits until the replica has all records, and the ended job in a segment.
fn wait_copied(primary: &Hub, keeper: &Hub) {
    let copy = keeper.running.path().join("state/replicas/hub1");
    eventually("the ended job is sealed and copied", || has_segment(&copy.join("lts")));
    eventually("the other records are copied", || {
        let told = primary.running.run(&["get", "--plain", "self/jobs/replicated_total"]).stdout;
        let mut numbers = told.split_whitespace().filter_map(|word| word.parse::<f64>().ok());
        numbers.any(|number| number >= all_records() as f64)
    });
    eventually("the first hub lists its jobs", || listed(primary) == expected(None));
    assert_eq!(listed(keeper), json!([]), "the first hub answers for its jobs");
}

/// Returns the places that the first hub tells, which name both hubs.
fn at_both(primary: &Hub, keeper: &Hub, (token, authority): (&Path, &Path)) -> [FoundEndpoint; 2] {
    let mut hub = primary.fetcher(token, authority);
    let found = ["ann/1", "ann/2"].map(|job| places(&mut hub, job).remove(0));
    for place in &found {
        assert_eq!(place.locations, [SAME_HUB.to_owned(), keeper.url()]);
    }
    found
}

/// Checks that the replica sends the records of tickets that the first hub gave, to the holder of each alone.
fn check_tickets(
    keeper: &Hub,
    (ann, bob, authority): (&Path, &Path, &Path),
    (of_ann, of_bob): (&[FoundEndpoint; 2], &FoundEndpoint),
) {
    let (mut ann, mut bob) = (keeper.fetcher(ann, authority), keeper.fetcher(bob, authority));
    assert_eq!(of_ann.each_ref().map(|place| download(&mut ann, place)), [Ok(8), Ok(9)]);
    assert_eq!(download(&mut bob, of_bob), Ok(11));
    let refuse = |hub: &mut Fetcher, place: &FoundEndpoint| {
        let why = download(hub, place).expect_err("refused");
        assert!(why.contains("given to another caller") && !why.contains("ann/"), "{why}");
    };
    of_ann.iter().for_each(|place| refuse(&mut bob, place));
    refuse(&mut ann, of_bob);
    let mut altered = of_bob.clone();
    let last = altered.ticket.len() - 5;
    altered.ticket[last] ^= 1;
    let why = download(&mut bob, &altered).expect_err("refused");
    assert!(why.contains("not one of this site"), "{why}");
}

/// Checks the answers of the replica to its owner, to users, and to a caller with a token that no hub gave.
fn check_answers(keeper: &Hub, authority: &Path) {
    eventually("the second hub lists the copies", || listed(keeper) == expected(Some("hub1")));
    let latest = "SELECT job FROM jobs WHERE state = 'running' ORDER BY started_at DESC LIMIT 1";
    assert_eq!(
        rows(&keeper.running.run(&["sql", "--json", latest])).as_array().map(Vec::len),
        Some(1)
    );
    let shown = keeper.running.run(&["job", "show", "ann/2", "--json"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    let shown = shown.json();
    let metadata = &shown["metadata"];
    assert_eq!((&metadata["copy_of"], &metadata["state"]), (&json!("hub1"), &json!("running")));
    assert_eq!(shown["series"].as_array().map(Vec::len), Some(2), "{shown}");
    assert_eq!(keeper.count("SELECT count(*) AS n FROM job_samples WHERE job = 'ann/1'"), 10);
    let sealed = "SELECT job, copy_of, count(*) AS n FROM sealed_samples GROUP BY job, copy_of";
    let of_copy = json!([{"job": "ann/1", "copy_of": "hub1", "n": 10}]);
    assert_eq!(rows(&keeper.running.run(&["sql", "--json", sealed])), of_copy);
    for (user, readable) in
        [("ann", ["ann/1", "ann/2"].as_slice()), ("bob", &["bob/3"]), ("eve", &[])]
    {
        let mut hub = keeper.fetcher(&keeper.token(user), authority);
        for (job, ..) in JOBS {
            let is_told = !places(&mut hub, job).is_empty();
            assert_eq!(is_told, readable.contains(&job), "{user}, {job}");
        }
    }
    let forged = keeper.running.path().join("forged");
    std::fs::write(&forged, "0123abcd").expect("written");
    assert!(ask(&mut keeper.fetcher(&forged, authority), "ann/2").is_err());
    let reads =
        "SELECT count(*) AS n FROM job_reads WHERE question = 'download' AND outcome = 'refused'";
    eventually("refused downloads are in the log", || keeper.count(reads) == 4);
}

#[test]
fn a_replica_answers_for_a_hub_that_is_away_and_not_for_one_that_is_there() {
    let [first, second, _] = site();
    let authority = second.path().join("state/pki/authority.pem");
    let copy = runtime_dir();
    let authority_copy = copy.path().join("authority.pem");
    std::fs::copy(&authority, &authority_copy).expect("copied");
    let authority = authority_copy.as_path();
    let keeper = Hub::start(second, None);
    let primary = Hub::start(first, Some(&keeper.flight));
    for (job, user, samples, has_ended) in JOBS {
        store(primary.running.path(), (job, user, ""), samples, has_ended);
    }
    wait_copied(&primary, &keeper);
    let tokens = |user: &str| [primary.token(user), keeper.token(user)];
    let (ann, bob) = (tokens("ann"), tokens("bob"));
    let of_ann = at_both(&primary, &keeper, (&ann[0], authority));
    let of_bob = places(&mut primary.fetcher(&bob[0], authority), "bob/3").remove(0);
    let primary_url = primary.url();
    let folder = primary.killed();

    check_tickets(&keeper, (&ann[1], &bob[1], authority), (&of_ann, &of_bob));
    check_answers(&keeper, authority);
    // The client asks the second hub, because the first one does not answer.
    let out = copy.path().join("out");
    let fetch = |tokens: &[PathBuf; 2]| {
        let words =
            [&tokens[0], &tokens[1], authority, &out].map(|path: &Path| path.display().to_string());
        let [one, other, authority, out] = words.each_ref().map(String::as_str);
        let keeper_url = keeper.url();
        let hubs = ["--hub", &primary_url, "--hub", &keeper_url, "--token-file", one];
        let others = ["--token-file", other, "--authority", authority, "--out", out, "--json"];
        keeper.running.run(&[&["job", "fetch", "ann/1", "ann/2"], &hubs[..], &others].concat())
    };
    let (code, document) = fetched(&fetch(&bob));
    assert_eq!((code, &document["records"]), (1, &json!(0)), "{document}");
    assert!(
        document["missing"].to_string().contains("no such job that you may read"),
        "{document}"
    );
    let (code, document) = fetched(&fetch(&ann));
    assert_eq!((code, &document["records"]), (0, &json!(8 + 9)), "{document}");
    assert_eq!(records(&out.join("s1"), "ann/1"), 8);

    // A hub that starts while the first one is away answers as well.
    let flight = keeper.flight.clone();
    let keeper = Hub::start_at(keeper.killed(), None, flight);
    eventually("the second hub lists the copies", || listed(&keeper) == expected(Some("hub1")));
    // The first hub is back, and answers for its jobs itself.
    let primary = Hub::start(folder, Some(&keeper.flight));
    eventually("the second hub lists no copies", || listed(&keeper) == json!([]));
    eventually("the first hub lists its jobs", || listed(&primary) == expected(None));
    let samples = "SELECT count(*) AS n FROM job_samples WHERE job = 'ann/2'";
    assert_eq!((primary.count(samples), keeper.count(samples)), (json!(14), json!(0)));
    let sealed = "SELECT count(*) AS n FROM sealed_samples WHERE copy_of IS NOT NULL";
    assert_eq!((primary.count(sealed), keeper.count(sealed)), (json!(0), json!(0)));
}
