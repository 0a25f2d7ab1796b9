//! A hub that is dead, has stalled or belongs to another user: every client is told so, and no client
//! waits for ever. Also the facts that a hub publishes about itself until it exits.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::sql::Hub;
use crate::support::{Ran, Running, eventually, run, runtime_dir, signal, skopos};

const ONE: &str = "SELECT count(*) FROM latest WHERE topic LIKE '%/mem/total_bytes'";

/// The remark on an answer that was computed without the hub.
const ONLY_HERE: &str = "the answer has only the topics of this machine";

fn watch(dir: &Path, time: &str) -> Ran {
    run(dir, &["watch", "--plain", "--count", "1", "--for", time, "--sql", ONE])
}

#[test]
fn a_dead_hub_is_reported_and_this_machine_answers() {
    let agent = Running::start(&[]);
    let ask = || agent.run(&["sql", "--plain", ONE]);
    let without = ask();
    assert_eq!((without.code, &*without.stdout, &*without.stderr), (0, "1\n", ""), "no hub at all");

    let mut hub = Hub::start();
    let alone = run(hub.dir.path(), &["sql", "--plain", "SELECT 1"]);
    assert_eq!((alone.code, &*alone.stdout, &*alone.stderr), (0, "1\n", ""));
    hub.child.kill().expect("it runs");
    hub.child.wait().expect("it ends");
    let nothing = run(hub.dir.path(), &["sql", "--plain", "SELECT 1"]);
    assert_eq!((nothing.code, &*nothing.stdout), (2, ""), "{nothing:?}");
    assert!(nothing.stderr.starts_with("error: the hub at "), "{nothing:?}");
    assert!(nothing.stderr.contains("is dead") && nothing.stderr.contains("start it"));

    let socket = agent.path().join("hub.sock");
    std::fs::rename(hub.dir.path().join("hub.sock"), &socket).expect("it stays a socket");
    let dead = ask();
    assert_eq!((dead.code, &*dead.stdout), (0, "1\n"), "{dead:?}");
    assert!(dead.stderr.contains("is dead") && dead.stderr.contains(ONLY_HERE), "{dead:?}");
    let watched = watch(agent.path(), "30s");
    assert_eq!((watched.code, watched.stdout.lines().count()), (0, 1), "{watched:?}");
    assert!(watched.stderr.contains("is dead") && watched.stderr.contains(ONLY_HERE));
    let got = agent.run(&["get", "no/such"]);
    assert!(got.code == 1 && got.stderr.contains("is dead"), "{got:?}");
}

#[test]
fn a_hub_of_another_user_is_reported() {
    let agent = Running::start(&[]);
    std::fs::set_permissions(agent.path(), PermissionsExt::from_mode(0o755)).expect("own");
    let socket = agent.path().join("hub.sock");
    let _hub = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o600)).expect("own");
    let mut other = Command::new("setpriv");
    other.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    other.args([env!("CARGO_BIN_EXE_skopos"), "sql", "--plain", ONE]);
    let ran = other.env("SKOPOS_DIR", agent.path()).output().expect("setpriv(1)");
    let told = String::from_utf8_lossy(&ran.stderr);
    if told.contains("setpriv:") {
        println!("skipped: {told}");
        return;
    }
    assert_eq!((ran.status.code(), &*ran.stdout), (Some(0), &b"1\n"[..]), "{told}");
    assert!(
        told.contains("this user has no access to the hub at") && told.contains(ONLY_HERE),
        "{told}"
    );
}

#[test]
fn a_hub_that_stands_still_is_not_waited_for() {
    let hub = Hub::start();
    let dir = hub.dir.path();
    signal(&hub.child, "STOP");
    let asked = run(dir, &["sql", "--timeout", "100ms", "SELECT 1"]);
    let watched = watch(dir, "300ms");
    let lasting =
        run(dir, &["watch", "--count", "1", "--for", "300ms", "--sql", "SELECT 1", "--json"]);
    signal(&hub.child, "CONT");
    for ran in [asked, watched, lasting] {
        assert_eq!((ran.code, &*ran.stdout), (2, ""), "{ran:?}");
        assert!(
            ran.stderr.starts_with("error: the hub does not answer in time\nhint: "),
            "{ran:?}"
        );
    }
    assert_eq!(hub.ask("SELECT 1 AS one"), json!([{"one": 1}]), "the watch goes on");
}

/// Returns the names of segments and of the hub's socket.
fn left(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir).expect("a folder").flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut left: Vec<_> =
        names.filter(|name| name.ends_with(".seg") || name.ends_with(".sock")).collect();
    left.sort();
    left
}

#[test]
fn a_hub_without_an_agent_tells_what_it_counts_until_its_end() {
    // Nothing listens at this port.
    let config = "[hub.remote_write]\nurl = \"http://127.0.0.1:9/api/v1/write\"\nevery = \"1s\"\n";
    let mut hub = Hub::with(config);
    let own = "SELECT count(*) AS n FROM self WHERE value > 0 AND topic LIKE '%/self/listener/unix/requests_total'";
    eventually("the number of requests is a fact", || hub.ask(own) == json!([{"n": 1}]));
    let lost = "SELECT count(*) AS n FROM self WHERE value > 0 AND topic LIKE '%/self/remote_write/retries_total'";
    eventually("the number of failed sends is a fact", || hub.ask(lost) == json!([{"n": 1}]));
    assert_eq!(hub.ask("SELECT node FROM nodes"), json!([]), "a hub alone is not a node");
    let whose = "SELECT DISTINCT node FROM self";
    let host = hub.ask(whose)[0]["node"].clone();

    // An agent with the host's name joins from another directory. The hub has one node, with the facts
    // of both.
    let name = host.as_str().expect("a name");
    let agent = hub.agent(name);
    let facts = "SELECT count(*) AS n FROM latest WHERE metric = 'total_bytes' AND family = 'mem'";
    eventually("the facts of the agent are there", || hub.ask(facts) == json!([{"n": 1}]));
    let all = hub.ask("SELECT topic, count(*) AS n FROM topics GROUP BY topic HAVING count(*) > 1");
    assert_eq!(all, json!([]), "each topic once");
    assert_eq!(hub.ask(own), json!([{"n": 1}]), "the topics of the hub are there, too");
    assert_eq!(hub.ask("SELECT node, alive FROM nodes"), json!([{"node": name, "alive": true}]));
    drop(agent);
    eventually("the agent is reported as dead", || {
        hub.ask("SELECT node, alive FROM nodes") == json!([{"node": name, "alive": false}])
    });

    assert_eq!(left(hub.dir.path()), ["hub.seg", "hub.sock"]);
    signal(&hub.child, "TERM");
    assert!(hub.child.wait().expect("it ends").success());
    assert_eq!(left(hub.dir.path()), [""; 0], "all of its files are removed");
}

#[test]
fn an_agent_with_a_hub_leaves_no_segment() {
    let config = "[hub.remote_write]\nurl = \"http://127.0.0.1:9/api/v1/write\"\n";
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(config.as_bytes()).expect("written");
    let mut up = Running::start_as("up", &["--config", file.path().to_str().expect("UTF-8")]);
    let sent = "SELECT count(*) FROM self WHERE topic = 'n01/self/remote_write/samples_sent_total'";
    eventually("the number of sent samples is a fact", || {
        up.run(&["sql", "--plain", sent]).stdout == "1\n"
    });
    assert!(left(up.path()).len() >= 3, "{:?}", left(up.path()));
    signal(&up.child, "TERM");
    assert!(up.child.wait().expect("it ends").success());
    assert_eq!(left(up.path()), [""; 0]);
}

#[test]
fn a_hub_that_cannot_do_as_configured_reports_it_at_its_start() {
    let dir = runtime_dir();
    let config = dir.path().join("skopos.toml");
    let hub = |more: &[&str]| {
        let args = ["hub", "--http", "none", "--flight", "none", "--config"];
        let config = config.to_str().expect("UTF-8");
        run(dir.path(), &[&args[..], &[config], more].concat())
    };
    std::fs::write(&config, "[hub.aliases]\nlatest = \"a/b/c\"\n").expect("written");
    let alias = hub(&[]);
    assert!(alias.code == 2 && alias.stderr.contains("there is a table `latest`"), "{alias:?}");
    std::fs::write(&config, "").expect("written");
    let nowhere = hub(&["--insecure", "--listen", "tcp/192.0.2.1:99"]);
    assert!(nowhere.code == 2 && !nowhere.stderr.contains(".rs:"), "{nowhere:?}");
    for wrong in [["--look-on", "nope0"], ["--site", "a/b"]] {
        let ran = hub(&wrong);
        assert!(ran.code == 2 && ran.stdout.is_empty(), "{ran:?}");
    }
    let of_agents = "[[insight]]\nname = \"sum\"\nsql = \"SELECT sum(value) FROM latest\"\n";
    std::fs::write(&config, of_agents).expect("written");
    let args = ["hub", "--insecure", "--connect", "tcp/127.0.0.1:9", "--config"];
    let more = [config.to_str().expect("UTF-8"), "--http", "none", "--flight", "none"];
    let child = skopos(dir.path(), &[&args[..], &more].concat())
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn();
    let mut child = child.expect("it starts");
    let told = BufReader::new(child.stderr.take().expect("piped")).lines().take(2);
    let told: Vec<String> = told.map_while(Result::ok).collect();
    signal(&child, "TERM");
    assert!(child.wait().expect("it ends").success());
    assert!(told[0].contains("these insights belong to agents: `sum`"), "{told:?}");
    assert!(told[1].contains("tcp/127.0.0.1:9 does not answer"), "{told:?}");
}

#[test]
fn several_statements_are_asked_one_after_the_other() {
    let agent = Running::start(&[]);
    let ask = |sql: &str| agent.run(&["sql", "--plain", sql]);
    let both = ask("SELECT ';';\nSELECT 'a\nb\tc';");
    assert_eq!((both.code, &*both.stdout), (0, ";\na\\nb\\tc\n"), "{both:?}");
    let second = ask("SELECT 1;\n SELECT valu FROM latest; SELECT 3");
    assert_eq!((second.code, &*second.stdout), (2, "1\n"), "{second:?}");
    assert!(second.stderr.starts_with("error: line 2, column 9: "), "{second:?}");
    for (sql, told) in [
        ("SELECT rate(value, 3, 4) FROM samples", "column 8: this function is called `rate(x)`"),
        ("SELECT sum(topic) FROM latest", "column 8: `sum` takes "),
    ] {
        let ran = ask(sql);
        assert!(ran.code == 2 && ran.stderr.contains(told), "{ran:?}");
    }
}
