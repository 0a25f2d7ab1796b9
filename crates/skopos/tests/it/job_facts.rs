//! Facts of jobs, which the agents of their nodes deliver.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::{Value as Json, json};
use skopos_hub::client::{reach, store_jobs};
use skopos_hub::messages::{JobDocument, StoreRequest};
use tempfile::TempDir;

use crate::certificates::Site;
use crate::json::check;
use crate::support::{PATIENCE, Running, eventually, run, runtime_dir, skopos};

/// A fact of the control group of the job 7.
const GROUP: &str = "cgroup/system.slice:slurmstepd.scope:job_7/memory_bytes";

/// The table of an agent that delivers, every second.
pub(crate) const DELIVERS: &str = "[jobs]\nfacts = [\"*/load/load_1m\"]\nfacts_every = \"1s\"\n";

/// An agent with a certificate, which delivers.
struct Node {
    dir: TempDir,
    child: Child,
    live: String,
}

impl Node {
    fn start(site: &Site, name: &str) -> Self {
        let dir = runtime_dir();
        let token = site.token(&["token", "--for", "10m"]);
        let joined = site.join(dir.path(), name, &token);
        assert_eq!(joined.code, 0, "{joined:?}");
        std::fs::write(dir.path().join("agent.toml"), DELIVERS).expect("written");
        let child = Self::agent(dir.path(), &site.live, &[]).spawn().expect("it starts");
        let node = Self { dir, child, live: site.live.clone() };
        node.wait();
        node
    }

    fn agent(dir: &Path, live: &str, more: &[&str]) -> std::process::Command {
        let config = dir.join("agent.toml").display().to_string();
        let args = ["agent", "--live", "--connect", live, "--config", &config];
        let mut command = skopos(dir, &[&args[..], more].concat());
        command.stdout(Stdio::null());
        command
    }

    /// Kills the agent, and starts it again.
    fn restart(&mut self) {
        self.kill();
        self.child = Self::agent(self.dir.path(), &self.live, &[]).spawn().expect("it starts");
        self.wait();
    }

    fn kill(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("it ran");
    }

    /// Publishes the memory of the group of job 7, once the agent runs.
    fn wait(&self) {
        eventually("the agent publishes", || {
            run(self.dir.path(), &["publish", GROUP, "4096"]).code == 0
        });
    }

    /// Returns the latest value of a fact about the delivery.
    fn number(&self, metric: &str) -> Json {
        let topic = format!("self/delivery/agent/{metric}");
        let ran = run(self.dir.path(), &["get", "--json", &topic]);
        if ran.code == 0 { ran.json()["readings"][0]["value"].clone() } else { Json::Null }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Stores a document of a job in the hub of a runtime directory, as its owner.
fn announce(dir: &Path, job: &str, kind: &str, document: Json) {
    let since = std::time::UNIX_EPOCH.elapsed().expect("a clock");
    let record = JobDocument {
        job: job.to_owned(),
        kind: kind.to_owned(),
        time_ns: i64::try_from(since.as_nanos()).expect("it fits"),
        document,
        ..JobDocument::default()
    };
    let request = StoreRequest {
        store_jobs: vec![record],
        producer: format!("test/{job}/{kind}"),
        epoch: 1,
        ..StoreRequest::default()
    };
    let stream = reach(dir, PATIENCE).expect("a hub").expect("it runs");
    store_jobs(&stream, &request).expect("stored");
}

fn start(dir: &Path, job: &str, node: &str) {
    let since = std::time::UNIX_EPOCH.elapsed().expect("a clock").as_secs();
    announce(dir, job, "start", json!({"user": "ann", "nodes": [node], "start_seconds": since}));
}

pub(crate) fn number(dir: &Path, sql: &str) -> u64 {
    let ran = run(dir, &["sql", "--json", sql]);
    ran.json()["rows"][0]["n"].as_u64().unwrap_or_else(|| panic!("{ran:?}"))
}

/// Returns the number of samples of a metric.
fn samples(dir: &Path, job: &str, node: &str, metric: &str) -> u64 {
    let condition = format!("job = '{job}' AND node = '{node}' AND metric = '{metric}'");
    number(dir, &format!("SELECT count(*) AS n FROM job_samples WHERE {condition}"))
}

#[test]
fn facts_of_a_job_are_delivered_once_whatever_ends_meanwhile() {
    // The hub itself records nothing.
    let mut site = Site::with("[hub.jobs]\nfacts = []\n");
    let mut node = Node::start(&site, "n1");
    let hub = site.dir.path().to_path_buf();
    start(&hub, "7", "n1");
    let load = || samples(&hub, "7", "n1", "load/load_1m");
    let grows = |what: &str| {
        let before = load();
        eventually(what, || load() > before + 1);
    };
    grows("samples are there while the job runs");
    let memory = "SELECT count(*) AS n FROM job_samples WHERE job = '7' AND metric = 'job/memory_bytes' \
                  AND value = 4096";
    eventually("the facts of its control group too", || number(&hub, memory) > 0);
    node.restart();
    grows("the agent goes on after a kill");

    site.kill();
    let spool = node.dir.path().join("state/spool-n1");
    let is_batch = |file: &std::fs::DirEntry| file.path().extension().is_some_and(|e| e == "batch");
    let waiting = || {
        let files = std::fs::read_dir(&spool).into_iter().flatten().flatten();
        files.filter(is_batch).map(|file| file.metadata().map_or(0, |of| of.len())).sum::<u64>()
    };
    eventually("records wait while the hub is away", || waiting() > 0);
    let before = waiting();
    eventually("more of them come", || waiting() > before);
    // Waiting records survive a kill, too.
    node.restart();
    assert!(waiting() > 0);
    site.start_again();
    grows("the hub is back");
    eventually("nothing waits", || waiting() == 0);
    grows("and it goes on");
    eventually("nothing is lost", || node.number("lost_total") == 0);

    announce(&hub, "7", "end", json!({"state": "completed"}));
    // Its group is still there, and the hub says that the job is over.
    eventually("the node stops", || node.number("jobs") == 0);
    let all = load();
    let times = "SELECT count(DISTINCT time) AS n FROM job_samples WHERE job = '7' \
                 AND metric = 'load/load_1m'";
    assert_eq!(number(&hub, times), all, "each sample is there once");
    let ended = "SELECT count(*) AS n FROM jobs WHERE state = 'completed' AND lost = 0";
    eventually("the job has ended without a loss", || number(&hub, ended) == 1);
    let shown = run(&hub, &["job", "show", "7", "--json"]).json();
    check("job_show", &shown);
    let series = shown["series"].as_array().expect("series");
    let metrics: Vec<&Json> = series.iter().map(|line| &line["metric"]).collect();
    assert!(metrics.contains(&&json!("load/load_1m")), "{metrics:?}");
    assert!(metrics.contains(&&json!("job/memory_bytes")), "{metrics:?}");
}

#[test]
fn a_node_delivers_nothing_for_jobs_of_another_one() {
    let site = Site::with("[hub.jobs]\nfacts = []\n");
    let hub = site.dir.path();
    start(hub, "7", "n1");
    start(hub, "8", "n2");
    // The other node has a control group with the id of that job.
    let mut node = Node::start(&site, "n2");
    eventually("its own job has samples", || samples(hub, "8", "n2", "load/load_1m") > 2);
    let foreign = "SELECT count(*) AS n FROM job_samples WHERE job = '7'";
    assert_eq!(number(hub, foreign), 0);
    eventually("it has one job", || node.number("jobs") == 1);
    // With the name of the other node it does not get in.
    node.kill();
    let mut named = Node::agent(node.dir.path(), &site.live, &["--node", "n1", "--for", "2m"]);
    let mut named = named.stderr(Stdio::piped()).spawn().expect("it starts");
    let told = BufReader::new(named.stderr.take().expect("piped")).lines();
    let refused = told.map_while(Result::ok).find(|line| line.contains("is for the node `n2`"));
    named.kill().and_then(|()| named.wait()).expect("it ran");
    assert!(refused.is_some(), "its certificate has another name");
    assert_eq!(number(hub, foreign), 0);
}

#[test]
fn the_hub_leaves_nodes_out_that_deliver_themselves() {
    let dir = runtime_dir();
    let config = dir.path().join("skopos.toml");
    let text =
        format!("{DELIVERS}[hub.jobs]\nfacts = [\"*/load/load_5m\"]\nfacts_every = \"1s\"\n");
    std::fs::write(&config, text).expect("written");
    let config = config.display().to_string();
    let up = Running::start_in(dir, "up", &["--live", "--config", &config]);
    start(up.path(), "7", "n01");
    let of = |metric: &str| samples(up.path(), "7", "n01", metric);
    let delivered = || of("load/load_1m");
    eventually("the hub records nothing while the agent delivers", || {
        let (before, recorded) = (delivered(), of("load/load_5m"));
        eventually("the agent delivers", || delivered() > before + 3);
        of("load/load_5m") == recorded
    });
}
