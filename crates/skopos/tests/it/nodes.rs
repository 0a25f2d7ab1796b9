//! Nodes and their hub: one connection each, a hub that is away, a second hub, and values that are too
//! old.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::json::check;
use crate::plane::{Simulated, number, value};
use crate::sql::{Hub, INSIGHTS};
use crate::support::{PATIENCE, Running, eventually, free_port, run, runtime_dir, signal, skopos};

/// Returns the number of a process's TCP connections.
fn connections(child: &Child) -> usize {
    let proc = format!("/proc/{}", child.id());
    let list = fs::read_to_string(format!("{proc}/net/tcp")).expect("it lives");
    // The fourth word is the state, where 01 is established. The tenth is the socket's inode.
    let connected = list.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let connected: Vec<String> = connected
        .filter(|words| words[3] == "01")
        .map(|words| format!("socket:[{}]", words[9]))
        .collect();
    let files = fs::read_dir(format!("{proc}/fd")).expect("it is ours");
    let files = files.flatten().filter_map(|file| fs::read_link(file.path()).ok());
    files.filter(|file| connected.iter().any(|socket| file.as_os_str() == &**socket)).count()
}

#[test]
fn nodes_of_one_hub_have_one_connection_each_hear_each_other_and_come_back() {
    /// Enough nodes to see whether the number of connections grows with them.
    const NODES: usize = 10;
    let mut hub = Hub::start();
    let agents: Vec<Running> = (0..NODES)
        .map(|at| {
            let node = format!("a{at}");
            let mut args = vec![
                "--node",
                &node,
                "--interval",
                "1s",
                "--live",
                "--insecure",
                "--connect",
                &hub.at,
            ];
            if at < 3 {
                args.extend(["--mirror", "a*/load/load_1m", "--mirror", "a*/app/**"]);
            }
            Running::start(&args)
        })
        .collect();
    let all = |hub: &Hub| {
        let sql = "SELECT count(*) AS n FROM nodes WHERE alive AND topics > 100";
        number(hub, sql) == NODES as u64
    };
    eventually("all nodes are there", || all(&hub));
    let mirrored = |topic: &str| (0..3).all(|at| value(&agents[at], topic).is_some());
    for at in 0..NODES {
        let topic = format!("a{at}/load/load_1m");
        eventually("each node is mirrored", || mirrored(&topic));
    }
    // A node that lost its connection on a busy machine has a second one for a moment.
    let are_few = |hub: &Hub| {
        let one_each = agents.iter().all(|agent| connections(&agent.child) == 1);
        one_each && connections(&hub.child) == NODES
    };
    eventually("each node has one connection, to the hub", || are_few(&hub));

    hub.child.kill().expect("it runs");
    hub.child.wait().expect("it ends");
    hub.child = Hub::child(hub.dir.path(), &hub.at);
    eventually("all nodes come back", || all(&hub));
    assert_eq!(agents[9].run(&["publish", "app/depth", "3"]).code, 0);
    eventually("the nodes mirror each other again", || mirrored("a9/app/depth"));
    let measured = || agents[0].run(&["get", "--max-age", "0s", "a9/load/load_1m"]).code == 0;
    eventually("the nodes poll for each other", measured);
    eventually("each node still has one connection", || are_few(&hub));
}

#[test]
fn a_node_works_without_its_hub_and_joins_when_there_is_one() {
    let mut hub = Hub::start();
    hub.child.kill().expect("it runs");
    hub.child.wait().expect("it ends");
    let dir = runtime_dir();
    // The agent exits by itself, so that the test does not wait for its output for ever.
    let args = [
        "agent",
        "--json",
        "--node",
        "a1",
        "--live",
        "--insecure",
        "--connect",
        &hub.at,
        "--for",
        "2m",
    ];
    let mut child = skopos(dir.path(), &args).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut told = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut next = |what: &str| {
        let line = told.find(|line| line.as_ref().is_ok_and(|line| line.contains(what)));
        line.unwrap_or_else(|| panic!("it ended without {what}")).expect("a line")
    };
    next("\"started\"");
    let load = run(dir.path(), &["get", "load/load_1m"]);
    assert_eq!(load.code, 0, "it measures: {load:?}");
    let alone = next("no hub answers at");
    assert!(alone.contains(&hub.at), "{alone}");
    hub.child = Hub::child(hub.dir.path(), &hub.at);
    next("a hub answers now");
    eventually("the node is alive", || {
        number(&hub, "SELECT count(*) AS n FROM nodes WHERE alive") == 1
    });
    drop(Simulated(child));
}

#[test]
fn a_node_goes_to_another_hub_when_its_own_is_gone() {
    let mut first = Hub::start();
    let second = {
        let mut hub = Hub::start();
        hub.child.kill().expect("it runs");
        hub.child.wait().expect("it ends");
        hub.child = Hub::child_asked_at(hub.dir.path(), &hub.at, &["--connect", &first.at]);
        hub
    };
    let either = format!("{},{}", first.at, second.at);
    let agents = ["a1", "a2"].map(|node| {
        Running::start(&["--node", node, "--live", "--insecure", "--connect", &either])
    });
    let both = |hub: &Hub| {
        hub.ask("SELECT node FROM nodes WHERE alive AND topics > 100 ORDER BY node")
            == json!([{"node": "a1"}, {"node": "a2"}])
    };
    eventually("the first hub has both nodes", || both(&first));
    eventually("the second hub has both nodes", || both(&second));
    eventually("each node has one connection", || {
        agents.iter().all(|agent| connections(&agent.child) == 1)
    });
    first.child.kill().expect("it runs");
    first.child.wait().expect("it ends");
    assert_eq!(agents[0].run(&["publish", "app/depth", "3"]).code, 0);
    let begun = Instant::now();
    let values = "SELECT count(*) AS n FROM latest WHERE topic = 'a1/app/depth'";
    while !(both(&second) && number(&second, values) == 1) {
        let nodes = second.ask("SELECT node, alive, topics FROM nodes");
        let connections = agents.each_ref().map(|agent| connections(&agent.child));
        assert!(
            begun.elapsed() < PATIENCE,
            "both nodes go to the second hub with new values: {nodes}, {} values, {connections:?} connections",
            number(&second, values)
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_insight_of_a_hub_is_not_published_by_the_agent_beside_it() {
    let (other, hub) = (Hub::start(), Hub::with(INSIGHTS));
    let has = |topic: &str| run(hub.dir.path(), &["get", topic]).code == 0;
    eventually("the insight is computed", || has("default/insight/deepest"));
    let args = ["agent", "--json", "--node", "a1", "--live", "--insecure", "--connect", &other.at];
    let child = skopos(hub.dir.path(), &args).stdout(Stdio::null()).spawn().expect("it starts");
    let _agent = Simulated(child);
    eventually("the agent publishes the insight", || {
        number(&other, "SELECT count(*) AS n FROM latest WHERE topic = 'a1/mem/total_bytes'") == 1
    });
    assert!(has("default/insight/deepest"));
    let echo = "SELECT count(*) AS n FROM topics WHERE topic LIKE '%/insight/deepest'";
    assert_eq!(number(&other, echo), 0);
}

/// Returns the response of the hub's HTTP listener to `path`.
fn by_http(at: &str, path: &str) -> Json {
    let mut stream = TcpStream::connect(at).expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {answer}"))
}

#[test]
fn a_value_that_is_too_old_is_measured_for_a_client_of_a_hub() {
    let port = free_port();
    let at = format!("127.0.0.1:{port}");
    let hub = Hub::asked_at("", &["--http", &at]);
    // Both agents poll once, and later only on request. One of them is on the hub's machine.
    let once = ["--interval", "1h", "--live", "--insecure", "--connect", &hub.at];
    let mut there = Running::start(&[&["--node", "a1"], &once[..]].concat());
    let args = [&["agent", "--node", "here"], &once[..2]].concat();
    let child = skopos(hub.dir.path(), &args).stdout(Stdio::null()).spawn();
    let _here = Simulated(child.expect("it starts"));
    let get = |args: &[&str]| run(hub.dir.path(), &[&["get", "--json"], args].concat());
    let load = "a1/load/load_1m";
    for topic in [load, "here/load/load_1m"] {
        eventually("the topic is known", || get(&[topic]).code == 0);
    }
    let before = get(&[load]).json()["readings"][0].clone();
    assert_eq!(before["publisher"]["segment"], "a1", "the hub answers for the node");
    let checked = |reading: &Json| reading["checked_at_ns"].as_i64().expect("a time");
    let age = |reading: &Json| reading["age_seconds"].as_f64().expect("an age");
    eventually("the value is old", || age(&get(&[load]).json()["readings"][0]) > 0.3);
    let fresh = get(&["--max-age", "200ms", load]);
    assert_eq!(fresh.code, 0, "{fresh:?}");
    check("get", &fresh.json());
    assert!(checked(&fresh.json()["readings"][0]) > checked(&before), "{fresh:?}");

    eventually("both values are old", || {
        let both = by_http(&at, "/api/v1/get?topic=*/load/load_1m");
        both["readings"].as_array().expect("a list").iter().all(|reading| age(reading) > 0.3)
    });
    let both = by_http(&at, "/api/v1/get?topic=*/load/load_1m&max_age=200ms");
    assert_eq!(
        (both["readings"].as_array().map(Vec::len), &both["refused"]),
        (Some(2), &json!([])),
        "{both}"
    );

    assert_eq!(there.run(&["publish", "app/depth", "17"]).code, 0);
    let depth = "/api/v1/get?topic=a1/app/depth&max_age=0s";
    let said = |path: &str, what: &str| {
        let refused = by_http(&at, path);
        refused["refused"][0]["reason"].as_str().is_some_and(|why| why.contains(what))
    };
    eventually("the hub reports that no sensor measures the topic", || said(depth, "no sensor"));
    there.kill();
    let dead = "/api/v1/get?topic=a1/load/load_1m&max_age=0s";
    eventually("the hub reports that the node cannot be reached", || {
        said(dead, "no node `a1` can be reached")
    });
    let shown = get(&["--max-age", "0s", load]);
    assert!(shown.code == 1 && shown.stdout.contains("no node `a1` can be reached"), "{shown:?}");
    let nobody = get(&["a1/load/load_2m"]);
    assert!(nobody.code == 1 && nobody.stderr.contains("did you mean `a1/load/"), "{nobody:?}");
}

#[test]
fn without_a_hub_nothing_is_known_of_other_nodes_and_that_is_said() {
    let agent = Running::start(&[]);
    let ran = agent.run(&["get", "n02/load/load_1m"]);
    assert!(ran.code == 1 && ran.stderr.contains("--mirror 'n02/load/load_1m'"), "{ran:?}");
    let typo = agent.run(&["get", "laod/load_1m"]);
    assert!(typo.stderr.contains("did you mean"), "{typo:?}");
}

#[test]
fn a_mirror_that_stands_still_holds_up_neither_the_hub_nor_its_nodes() {
    let hub = Hub::start();
    let mirror = ["--live", "--insecure", "--connect", &hub.at, "--mirror", "sim*/**"];
    let here = Running::start(&[&["--node", "a1", "--interval", "1s"], &mirror[..]].concat());
    let nodes = ["--nodes", "4", "--facts", "500", "--rate", "50", "--change", "1"];
    let _nodes = Simulated::start(&[&hub], &nodes);
    eventually("all nodes have all facts", || {
        number(&hub, "SELECT count(*) AS n FROM nodes WHERE alive AND topics = 500") == 4
    });
    let about = |what: &str| {
        let topic = format!("a1/mirror/sim0003/{what}");
        value(&here, &topic).and_then(|value| value.as_f64()).unwrap_or_default()
    };
    eventually("the nodes are mirrored by way of the hub", || about("alive") == 1.0);
    let lost = "SELECT sum(lost_batches) AS n FROM nodes";
    let (lost_here, lost_there) = (about("lost_batches_total"), number(&hub, lost));
    signal(&here.child, "STOP");
    let told = "SELECT max(CAST(time AS BIGINT)) AS n FROM latest WHERE node = 'sim0003'";
    for _ in 0..8 {
        let before = number(&hub, told);
        eventually("the hub receives their facts", || number(&hub, told) > before + 500_000_000);
    }
    signal(&here.child, "CONT");
    eventually("the lost batches are counted", || about("lost_batches_total") > lost_here);
    eventually("the nodes are alive again", || about("alive") == 1.0);
    let looked_at = || {
        let facts = here.run(&["get", "--json", "sim0003/**"]);
        let facts = facts.json()["readings"].as_array().cloned().unwrap_or_default();
        facts.iter().filter_map(|fact| fact["checked_at_ns"].as_i64()).min()
    };
    let before = looked_at();
    eventually("all facts are fresh", || looked_at() > before);
    // A busy machine may lose some batches by itself.
    let lost = number(&hub, lost) - lost_there;
    assert!(lost < 100, "the hub lost {lost} batches of some 800");
}
