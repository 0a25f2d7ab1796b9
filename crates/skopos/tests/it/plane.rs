//! Nodes that exchange facts: mirrors in shared memory, clocks that are wrong, hubs that restart.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use serde_json::{Value as Json, json};

use crate::json::check;
use crate::sql::Hub;
use crate::support::{Running, eventually, runtime_dir, skopos};

/// Simulated nodes that run until dropped.
pub(crate) struct Simulated(pub(crate) Child);

impl Simulated {
    /// Starts the nodes of `hubs` and waits until all of them run.
    pub(crate) fn start(hubs: &[&Hub], args: &[&str]) -> Self {
        Self::start_at(hubs.iter().map(|hub| &*hub.at), args)
    }

    /// Starts nodes of the hubs at these addresses, and waits until all of them run.
    pub(crate) fn start_at<'a>(hubs: impl Iterator<Item = &'a str>, args: &[&'a str]) -> Self {
        let mut all = vec!["simulate", "--json", "--insecure"];
        hubs.for_each(|at| all.extend(["--connect", at]));
        all.extend(args);
        let dir = runtime_dir();
        let mut child = skopos(dir.path(), &all).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        check("simulate", &serde_json::from_str(&line).expect("JSON"));
        Self(child)
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the reading of one topic by `skopos get`.
fn reading(agent: &Running, topic: &str) -> Option<Json> {
    let ran = agent.run(&["get", "--json", topic]);
    (ran.code == 0).then(|| ran.json()["readings"][0].clone())
}

pub(crate) fn value(agent: &Running, topic: &str) -> Option<Json> {
    reading(agent, topic).map(|reading| reading["value"].clone())
}

#[test]
fn facts_of_another_node_are_read_here_as_they_are_there() {
    let hub = Hub::start();
    let connect = ["--live", "--insecure", "--connect", &hub.at];
    // The agent polls once, and later only on request.
    let mut there = Running::start(&[&["--node", "a1", "--interval", "1h"], &connect[..]].concat());
    let patterns = ["--mirror", "a*/app/**", "--mirror", "a1/load/*"];
    let here = Running::start(&[&["--node", "a2"], &patterns[..], &connect[..]].concat());
    eventually("the other node is alive", || value(&here, "a2/mirror/a1/alive") == Some(json!(1)));
    assert_eq!(there.run(&["publish", "app/depth", "17", "--unit", "bytes"]).code, 0);
    assert_eq!(here.run(&["publish", "app/own", "1"]).code, 0);
    eventually("the published fact is mirrored", || {
        value(&here, "a1/app/depth") == Some(json!(17.0))
    });
    let both = [&there, &here].map(|agent| reading(agent, "a1/app/depth").expect("a reading"));
    for what in ["value", "unit", "kind", "value_type", "origin", "time_ns"] {
        assert_eq!(both[0][what], both[1][what], "{what}");
    }
    assert_eq!(both[1]["publisher"]["segment"], "mirror");
    let load = || reading(&here, "a1/load/load_1m");
    eventually("the fact of a sensor is mirrored", || load().is_some());
    let looked_at = |topic| reading(&here, topic).expect("a reading")["checked_at_ns"].as_i64();
    let before = looked_at("a1/app/depth");
    assert_eq!(there.run(&["publish", "app/depth", "17", "--unit", "bytes"]).code, 0);
    eventually("a repeated value is fresh", || looked_at("a1/app/depth") > before);
    assert_eq!(value(&here, "a1/mem/total_bytes"), None, "the topic is not in a pattern");
    assert_eq!(value(&here, "a2/app/own"), Some(json!(1.0)));
    let ls = here.run(&["ls", "--plain", "a2/**"]).stdout;
    assert_eq!(ls.matches("a2/app/own").count(), 1, "its own facts are not mirrored: {ls}");
    let echo =
        "SELECT count(*) AS n FROM topics WHERE topic LIKE 'a2/a1/%' OR publisher = 'mirror'";
    assert_eq!(hub.ask(echo), json!([{"n": 0}]), "mirrored facts are not published again");

    let drops = |like: &str| {
        number(&hub, &format!("SELECT count(*) AS n FROM latest WHERE topic LIKE '{like}/%_total'"))
    };
    eventually("a node counts what it drops", || drops("a2/self/live/agent") == 8);
    eventually("a hub counts what it drops", || drops("%/self/live/hub") == 12);

    let before = looked_at("a1/load/load_1m");
    eventually("the other node polls on request", || {
        here.run(&["get", "--max-age", "1s", "a1/load/load_1m"]).code == 0
    });
    assert!(looked_at("a1/load/load_1m") > before);
    // A command waits for the poll of a busy machine for a moment only.
    eventually("a node polls its own facts on request", || {
        here.run(&["get", "--max-age", "0s", "a2/load/load_1m"]).code == 0
    });
    let app = here.run(&["get", "--max-age", "0s", "a1/app/depth"]);
    assert!(app.code == 1 && app.stderr.contains("no sensor"), "{app:?}");

    assert_eq!(there.run(&["publish", "--remove", "app/depth"]).code, 0);
    eventually("the removed fact disappears", || value(&here, "a1/app/depth").is_none());
    there.kill();
    eventually("the node is reported as dead", || {
        value(&here, "a2/mirror/a1/alive") == Some(json!(0))
    });
    let last = load().expect("the last value stays");
    assert!(last["age_seconds"].as_f64() > Some(0.0), "{last}");
    let dead = here.run(&["get", "--max-age", "0s", "a1/load/load_1m"]);
    assert!(dead.code == 1 && dead.stderr.contains("no node `a1` can be reached"), "{dead:?}");
}

/// Returns whether a hub has all of these nodes with all of their facts.
pub(crate) fn has_all(hub: &Hub, nodes: u64, facts: u64) -> bool {
    let sql = "SELECT count(*) AS n, coalesce(min(topics), 0) AS t FROM nodes WHERE alive";
    hub.ask(sql) == json!([{"n": nodes, "t": facts}])
}

pub(crate) fn number(hub: &Hub, sql: &str) -> u64 {
    hub.ask(sql)[0]["n"].as_u64().unwrap_or_default()
}

#[test]
fn wrong_clocks_are_shown_and_spoil_nothing() {
    let hub = Hub::start();
    let args = |prefix, which| ["--nodes", "1", "--facts", "50", "--prefix", prefix, which, "2h"];
    let _ahead = Simulated::start(&[&hub], &args("ahead", "--ahead"));
    let _behind = Simulated::start(&[&hub], &args("behind", "--behind"));
    let sql = "SELECT node, round(clock_offset / 3600) AS hours FROM nodes ORDER BY node";
    let hours = json!([{"node": "ahead0001", "hours": 2.0}, {"node": "behind0001", "hours": -2.0}]);
    eventually("both clock offsets are estimated", || hub.ask(sql) == hours);
    assert_eq!(hub.ask("SELECT count(*) AS n FROM latest WHERE age < 0"), json!([{"n": 0}]));
    // Rows and the evaluator of aggregates take the clock offsets into account.
    let seen =
        "SELECT count(*) AS n FROM nodes WHERE seen_at BETWEEN now() - INTERVAL '1 hour' AND now()";
    // A message may arrive between the statement's time and its look at the nodes.
    eventually("both nodes were seen before now", || number(&hub, seen) == 2);
    for node in ["ahead0001", "behind0001"] {
        let like = format!("FROM latest WHERE topic LIKE '{node}/%'");
        let latest = format!("SELECT count(*) AS n {like} AND age > 0 AND age < 3600");
        eventually("ages are by the node's clock", || number(&hub, &latest) == 50);
        let oldest = || hub.ask(&format!("SELECT max(age) AS a {like}"))[0]["a"].as_f64();
        eventually("the oldest age is by the node's clock", || {
            oldest().is_some_and(|age| 0.0 < age && age < 3600.0)
        });
        let samples = format!("SELECT count(*) AS n FROM samples WHERE node = '{node}'");
        eventually("the hub has the changes of the node", || number(&hub, &samples) > 50);
    }
}

#[test]
fn nodes_come_back_to_a_hub_that_starts_again() {
    let mut hub = Hub::start();
    let nodes = Simulated::start(&[&hub], &["--nodes", "20", "--facts", "40", "--rate", "5"]);
    eventually("all nodes have all facts", || has_all(&hub, 20, 40));
    hub.child.kill().expect("it runs");
    hub.child.wait().expect("it ends");
    hub.child = Hub::child(hub.dir.path(), &hub.at);
    eventually("all nodes come back", || has_all(&hub, 20, 40));
    drop(nodes);
    eventually("all nodes are reported as dead", || {
        hub.ask("SELECT count(*) AS n FROM nodes WHERE NOT alive") == json!([{"n": 20}])
    });
}
