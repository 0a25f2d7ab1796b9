//! Users that may query a hub without a configured address: its owner and root.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value as Json;

use crate::support::{Running, eventually, runtime_dir};

/// The id of a user without rights.
const NOBODY: &str = "65534";

/// A hub at the usual ports, in a network namespace where nothing else has them.
struct Alone(Child);

impl Alone {
    /// Starts the hub; `None` where a network namespace cannot be made.
    fn start(dir: &Path) -> Option<Self> {
        let tried =
            Command::new("unshare").args(["--net", "ip", "link", "set", "lo", "up"]).output();
        if !tried.is_ok_and(|ran| ran.status.success()) {
            println!("skipped: no network namespace can be made here");
            return None;
        }
        let script = "ip link set lo up && exec \"$0\" hub --look-on none";
        let child = Command::new("unshare")
            .args(["--net", "sh", "-c", script, env!("CARGO_BIN_EXE_skopos")])
            .env("SKOPOS_DIR", dir)
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        Some(Self(child))
    }

    /// Runs a program in that namespace, as `user` or as root.
    fn run(&self, user: Option<&str>, words: &[&str]) -> Output {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.0.id()));
        if let Some(user) = user {
            command.args(["setpriv", "--reuid", user, "--regid", user, "--clear-groups"]);
        }
        command.args(words).output().expect("nsenter(1)")
    }

    fn curl(&self, user: Option<&str>, words: &[&str]) -> Output {
        self.run(user, &[&["curl", "-s", "--max-time", "30"][..], words].concat())
    }

    /// Returns the number of requests that a listener has refused so far.
    fn refused(&self, listener: &str) -> Option<u64> {
        let told = self.curl(None, &["http://127.0.0.1:7470/healthz"]).stdout;
        let told: Json = serde_json::from_slice(&told).ok()?;
        told["listeners"][listener]["requests_refused_total"].as_u64()
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn another_user_is_turned_away_at_every_listener() {
    let dir = runtime_dir();
    let Some(alone) = Alone::start(dir.path()) else { return };
    eventually("the hub answers its owner", || alone.refused("http") == Some(0));

    let url = "http://127.0.0.1:7470/healthz";
    let told = alone.curl(Some(NOBODY), &["-w", "%{http_code}", url]);
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("this hub belongs to another user") && told.ends_with("403"), "{told}");
    assert_eq!(alone.refused("http"), Some(1));

    // Any HTTP/2 response will do: a user with access is told that there is no such method.
    let grpc = ["--http2-prior-knowledge", "-o", "/dev/null", "-w", "%{http_code}"];
    let grpc = [&grpc[..], &["-X", "POST", "http://127.0.0.1:7471/nothing/there"]].concat();
    let own = alone.curl(None, &grpc);
    assert_eq!(String::from_utf8_lossy(&own.stdout), "200", "{own:?}");
    let before = alone.refused("flight").expect("a number");
    let other = alone.curl(Some(NOBODY), &grpc);
    assert!(!other.status.success() && other.stdout == b"000", "{other:?}");
    assert_eq!(alone.refused("flight"), Some(before + 1));

    // The modes of the files would keep other users out. Without them the hub refuses them itself.
    let socket = dir.path().join("hub.sock");
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("ours");
    };
    let mode = std::fs::metadata(&socket).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    open(dir.path(), 0o755);
    open(&socket, 0o666);
    let path = socket.display().to_string();
    // The hub keeps the connection for the next request, so curl has a timeout.
    let asks = ["--max-time", "2", "--http0.9", "--unix-socket", &path, "http://hub/"];
    let own = alone.curl(None, &asks);
    assert!(String::from_utf8_lossy(&own.stdout).contains("not a request"), "{own:?}");
    let before = alone.refused("unix").expect("a number");
    let other = alone.curl(Some(NOBODY), &asks);
    assert!(!other.status.success() && other.stdout.is_empty(), "{other:?}");
    assert_eq!(alone.refused("unix"), Some(before + 1));
}

/// The live plane of a user meets in a folder that nobody else can enter, and has no other listener.
#[test]
fn another_user_cannot_reach_the_live_plane() {
    let up = Running::start_as("up", &["--live", "--http", "none", "--flight", "none"]);
    let (plane, id) = (up.path().join("plane"), up.child.id());
    let sockets = || {
        let names = std::fs::read_dir(&plane).into_iter().flatten().flatten();
        names.filter(|entry| entry.path().extension().is_some_and(|end| end == "sock")).count()
    };
    eventually("agent and hub meet", || sockets() == 2);
    let mode = std::fs::metadata(&plane).expect("a folder").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let tables = ["tcp", "tcp6", "udp", "udp6"];
    let own: BTreeSet<String> = std::fs::read_dir(format!("/proc/{}/fd", id))
        .expect("our process")
        .flatten()
        .filter_map(|fd| std::fs::read_link(fd.path()).ok())
        .map(|target| target.display().to_string())
        .collect();
    for table in tables {
        let table = std::fs::read_to_string(format!("/proc/{}/net/{table}", id)).expect("it");
        for line in table.lines().skip(1) {
            let inode = line.split_ascii_whitespace().nth(9).expect("an inode");
            assert!(!own.contains(&format!("socket:[{inode}]")), "a network socket: {line}");
        }
    }
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    let Some(socket) = std::fs::read_dir(&plane).expect("a folder").flatten().next() else {
        panic!("no socket")
    };
    let reach = Command::new("setpriv")
        .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "stat"])
        .arg(socket.path())
        .output()
        .expect("setpriv(1)");
    let told = String::from_utf8_lossy(&reach.stderr);
    assert!(!reach.status.success() && told.contains("Permission denied"), "{told}");
}
