//! Two sites, each in a network namespace of its own, with certificates and tokens of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value as Json, json};
use skopos_hub::client::reach;
use tempfile::TempDir;

use crate::fetch::{is_sealed, records, store};
use crate::json::check;
use crate::support::{PATIENCE, eventually, run, runtime_dir, skopos};

fn ip(words: &[&str]) -> bool {
    Command::new("ip").args(words).stderr(Stdio::null()).status().is_ok_and(|it| it.success())
}

/// Two namespaces with a cable between them. They go when this is dropped.
struct Cable {
    names: [String; 2],
}

impl Cable {
    /// Returns `None` where namespaces cannot be made.
    fn lay() -> Option<Self> {
        let id = std::process::id();
        let names = ["a", "b"].map(|side| format!("skopos-{id}-{side}"));
        if !rustix::process::geteuid().is_root() || !ip(&["netns", "add", &names[0]]) {
            println!("skipped: network namespaces need root and the right to make them");
            return None;
        }
        let cable = Self { names };
        let [a, b] = &cable.names;
        assert!(ip(&["netns", "add", b]));
        let ends = ["-n", a, "link", "add", "cable", "type", "veth", "peer", "name", "cable"];
        assert!(ip(&[&ends[..], &["netns", b]].concat()));
        for at in 0..2 {
            let name = &cable.names[at];
            assert!(ip(&[
                "-n",
                name,
                "addr",
                "add",
                &format!("{}/24", address(at)),
                "dev",
                "cable"
            ]));
            assert!(ip(&["-n", name, "link", "set", "lo", "up"]));
            cable.set(at, true);
        }
        Some(cable)
    }

    fn set(&self, at: usize, is_up: bool) {
        let state = if is_up { "up" } else { "down" };
        assert!(ip(&["-n", &self.names[at], "link", "set", "cable", state]));
    }

    /// Returns a command of `skopos` in a namespace.
    fn skopos(&self, at: usize, dir: &Path, args: &[&str]) -> Command {
        let inner = skopos(dir, args);
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[at]]);
        command.arg(inner.get_program()).args(inner.get_args()).stdin(Stdio::null());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for name in &self.names {
            ip(&["netns", "del", name]);
        }
    }
}

fn address(at: usize) -> String {
    format!("10.203.0.{}", at + 1)
}

/// A hub of a site.
struct Hub {
    dir: TempDir,
    child: Child,
}

impl Hub {
    fn start(cable: &Cable, at: usize) -> Self {
        let (dir, names) = (runtime_dir(), ["a", "b"]);
        let node = format!("hub-{}", names[at]);
        let pki = ["pki", "init", "--site", names[at], "--node", &node, "--host", &address(at)];
        let made = run(dir.path(), &pki);
        assert_eq!(made.code, 0, "{made:?}");
        let other = format!("{} = \"grpc+tls://{}:7471\"", names[1 - at], address(1 - at));
        let config = dir.path().join("skopos.toml");
        fs::write(&config, format!("[hub.jobs]\nsites = {{ {other} }}\n")).expect("written");
        let [live, http, flight] =
            ["tls/", "", ""].map(|scheme| format!("{scheme}{}", address(at)));
        let (live, http, flight) =
            (format!("{live}:7447"), format!("{http}:7470"), format!("{flight}:7471"));
        let config = config.display().to_string();
        let args = ["up", "--config", &config, "--live", "--listen", &live];
        let args = [&args[..], &["--http", &http, "--flight", &flight]].concat();
        let mut command = cable.skopos(at, dir.path(), &args);
        let child = command.stdout(Stdio::null()).spawn().expect("it starts");
        Self { dir, child }
    }

    /// Writes a token of a user. Returns the file.
    fn token(&self, user: &str) -> PathBuf {
        let made = run(self.dir.path(), &["pki", "user", user]);
        assert_eq!(made.code, 0, "{made:?}");
        let path = self.dir.path().join(format!("{user}.token"));
        fs::write(&path, made.stdout).expect("written");
        path
    }

    fn authority(&self) -> String {
        self.dir.path().join("state/pki/authority.pem").display().to_string()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Downloads all jobs that a user may read at both sites. Returns the exit code and the document.
fn fetch(cable: &Cable, hubs: &[Hub; 2], user: &str, out: &Path) -> (i32, Json) {
    let tokens = [0, 1].map(|at: usize| hubs[at].token(user).display().to_string());
    let url = format!("grpc+tls://{}:7471", address(0));
    let (token, authority) = (format!("b={}", tokens[1]), format!("b={}", hubs[1].authority()));
    let out = out.display().to_string();
    let own = hubs[0].authority();
    let args = [
        &["job", "fetch", "--json", "--where", "true", "--out", &out, "--hub", &url][..],
        &["--authority", &own, "--token-file", &tokens[0], "--all-sites"],
        &["--site-token", &token, "--site-authority", &authority],
    ]
    .concat();
    let ran = cable.skopos(0, hubs[0].dir.path(), &args).output().expect("it starts");
    let document = serde_json::from_slice(&ran.stdout);
    let document = document.unwrap_or_else(|e| panic!("{e} in {ran:?}"));
    check("job_fetch", &document);
    (ran.status.code().unwrap_or(-1), document)
}

/// An owner finds jobs at both sites and downloads them; nobody else does. A site that is cut off is named, and fetched once
/// the cable is back.
#[test]
fn an_owner_downloads_from_two_sites_of_which_one_is_cut_off_for_a_while() {
    let Some(cable) = Cable::lay() else { return };
    let hubs = [Hub::start(&cable, 0), Hub::start(&cable, 1)];
    for (at, (job, samples)) in [("1", 10), ("2", 20)].into_iter().enumerate() {
        let dir = hubs[at].dir.path();
        eventually("the hub answers", || reach(dir, PATIENCE).is_ok_and(|hub| hub.is_some()));
        store(dir, (job, "ann", "astro"), samples, true);
        eventually("the job is sealed", || is_sealed(dir, 1));
    }
    let out = hubs[0].dir.path().join("out");
    cable.set(1, false);
    let (code, document) = fetch(&cable, &hubs, "ann", &out);
    let missing = &document["missing"][0]["site"];
    assert_eq!((code, missing, &document["sites"]), (1, &json!("b"), &json!(["a"])), "{document}");
    assert_eq!(records(&out.join("a"), "1"), 13);
    cable.set(1, true);
    eventually("both sites are fetched", || fetch(&cable, &hubs, "ann", &out).0 == 0);
    assert_eq!((records(&out.join("a"), "1"), records(&out.join("b"), "2")), (13, 23));
    let (code, document) = fetch(&cable, &hubs, "joe", &hubs[0].dir.path().join("of-joe"));
    assert_eq!((code, &document["jobs"]), (0, &json!(0)), "{document}");
}
