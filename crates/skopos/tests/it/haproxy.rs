//! Agent checks: the listener of the hub, and HAProxy itself, whose weights follow the ranks.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::{PATIENCE, Running, eventually, free_port, run, runtime_dir};

/// A profile of three candidates whose queues are user facts: a queue twice as long halves the weight.
const PROFILE: &str = r#"
[[rank]]
candidates = ["a", "b", "c"]
every = "200ms"
[rank.profile]
name = "db"
method = "given"
sharpness = 1.0
hysteresis = 0.0
exploration = 0.0
[[rank.profile.metrics]]
name = "queue"
topic = "{self}/app/{candidate}/queue"
floor = 1e-3
max_age_seconds = 3600
"#;

/// Starts a node with a hub that answers agent checks, and returns it with the port.
fn start() -> (Running, u16) {
    let (dir, port) = (runtime_dir(), free_port());
    let config = dir.path().join("skopos.toml");
    let text = format!("[hub.haproxy]\nlisten = \"127.0.0.1:{port}\"\n{PROFILE}");
    std::fs::write(&config, text).expect("written");
    let up = Running::start_in(dir, "up", &["--config", config.to_str().expect("UTF-8")]);
    (up, port)
}

/// Publishes the lengths of queues, from which the agent ranks.
fn queues(up: &Running, queues: &[(&str, &str)]) {
    for (candidate, queue) in queues {
        let topic = format!("app/{candidate}/queue");
        let ran = up.run(&["publish", &topic, queue, "--type", "f64"]);
        assert_eq!(ran.code, 0, "{ran:?}");
    }
}

const QUEUES: [(&str, &str); 3] = [("a", "1"), ("b", "2"), ("c", "3")];

fn ask(port: u16, line: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    // The listener may close before it has read all of a line that is too long.
    let _ = stream.write_all(line);
    let _ = stream.shutdown(Shutdown::Write);
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    text
}

#[test]
fn weights_follow_ranks_and_lines_that_ask_nothing_are_refused() {
    let (up, port) = start();
    assert_eq!(ask(port, b"none/a\n"), "up 100% #no node ranks it\n");
    queues(&up, &QUEUES);
    eventually("the ranks", || ask(port, b"db/b\n") == "up 50%\n");
    eventually("the ranks", || ask(port, b"db/c\n") == "up 33%\n");
    assert_eq!(ask(port, b"db/a\n"), "up 100%\n");
    assert_eq!(ask(port, b"n01/db/b"), "up 50%\n", "a line that ends with its connection");
    for line in [&b"\n"[..], b"GET / HTTP/1.1\n", b"db//a\n", b"\xff\xfe\n", &[b'x'; 4096]] {
        assert_eq!(ask(port, line), "", "{line:?}");
    }
    let refused = "n01/self/listener/haproxy/requests_refused_total";
    eventually("the refusals are counted", || {
        up.run(&["get", refused, "--json"]).stdout.contains("\"value\":5")
    });
}

#[test]
fn an_address_of_the_network_needs_insecure() {
    let dir = runtime_dir();
    let config = dir.path().join("skopos.toml");
    std::fs::write(&config, "[hub.haproxy]\nlisten = \"0.0.0.0:0\"\n").expect("written");
    let config = config.to_str().expect("UTF-8");
    let ran = run(dir.path(), &["up", "--http", "none", "--flight", "none", "--config", config]);
    assert!(ran.code == 2 && ran.stderr.contains("--insecure"), "{ran:?}");
}

/// HAProxy, until it is dropped.
struct Balancer(Child);

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the weight of each server, as HAProxy shows it.
fn weights(socket: &Path) -> Option<Vec<(String, String)>> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.write_all(b"show stat\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let mut lines = text.trim_start_matches("# ").lines();
    let head: Vec<&str> = lines.next()?.split(',').collect();
    let at = |name: &str| head.iter().position(|column| *column == name);
    let (server, weight) = (at("svname")?, at("weight")?);
    let cells = lines.map(|line| line.split(',').collect::<Vec<_>>());
    let row =
        |cells: Vec<&str>| Some((cells.get(server)?.to_string(), cells.get(weight)?.to_string()));
    Some(cells.filter_map(row).filter(|(name, _)| name.len() == 1).collect())
}

#[test]
fn haproxy_itself_weighs_its_servers() {
    let program = std::env::var("SKOPOS_TEST_HAPROXY").unwrap_or_else(|_| "haproxy".to_owned());
    let mut command = Command::new(&program);
    let found = command.arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        println!(
            "skipped: no haproxy; `apt-get install haproxy` gets it, SKOPOS_TEST_HAPROXY names it"
        );
        return;
    }
    let (up, port) = start();
    queues(&up, &QUEUES);
    let (socket, front) = (up.path().join("haproxy.sock"), free_port());
    let server = |name: &str| {
        format!(
            "  server {name} 127.0.0.1:1 weight 100 agent-check agent-addr 127.0.0.1 agent-port {port} \
             agent-inter 200ms agent-send \"db/{name}\\n\"\n"
        )
    };
    let config = format!(
        "global\n  stats socket {} level admin\ndefaults\n  mode tcp\n  timeout connect 1s\n  timeout client 1s\n  \
         timeout server 1s\nlisten db\n  bind 127.0.0.1:{front}\n{}{}{}",
        socket.display(),
        server("a"),
        server("b"),
        server("c"),
    );
    let file = up.path().join("haproxy.cfg");
    std::fs::write(&file, config).expect("written");
    let mut command = Command::new(&program);
    let child = command.args(["-db", "-f"]).arg(&file).stdout(Stdio::null()).spawn();
    let _balancer = Balancer(child.expect("it starts"));
    let expect = |what: &str, expected: [&str; 3]| {
        eventually(what, || {
            let weights = weights(&socket).unwrap_or_default();
            weights.iter().map(|(_, weight)| weight.as_str()).eq(expected)
        });
    };
    expect("the weights of the ranks", ["100", "50", "33"]);
    queues(&up, &[("b", "1")]);
    expect("the weights of the next ranks", ["100", "100", "33"]);
}
