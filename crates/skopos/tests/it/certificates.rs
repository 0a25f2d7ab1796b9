//! A site with certificates: who joins, who asks, and what each of them gets at each listener.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

use crate::flight::python;
use crate::support::{Ran, Running, eventually, free_port, run, runtime_dir, skopos};

/// The id of a user without rights.
pub(crate) const NOBODY: &str = "65534";

/// A hub with certificates and an agent, on the loopback.
pub(crate) struct Site {
    pub(crate) dir: TempDir,
    child: Child,
    pub(crate) live: String,
    http: String,
    pub(crate) flight: String,
}

impl Site {
    pub(crate) fn start() -> Self {
        Self::with("")
    }

    /// Starts a hub with this configuration.
    pub(crate) fn with(config: &str) -> Self {
        Self::named("s1", config)
    }

    /// Starts the hub of the site `name`.
    pub(crate) fn named(name: &str, config: &str) -> Self {
        let dir = runtime_dir();
        std::fs::write(dir.path().join("hub.toml"), config).expect("written");
        let made = run(
            dir.path(),
            &["pki", "init", "--site", name, "--node", "hub1", "--host", "127.0.0.1"],
        );
        assert_eq!(made.code, 0, "{made:?}");
        let at = || format!("127.0.0.1:{}", free_port());
        let (live, http, flight) = (format!("tls/{}", at()), at(), at());
        let child = Self::spawn(dir.path(), (&live, &http, &flight));
        let mut site = Self { dir, child, live, http, flight };
        site.wait();
        site
    }

    fn spawn(dir: &Path, (live, http, flight): (&str, &str, &str)) -> Child {
        let config = dir.join("hub.toml").display().to_string();
        let args = ["up", "--live", "--listen", live, "--http", http, "--flight", flight];
        let args = [&args[..], &["--config", &config]].concat();
        skopos(dir, &args).stdout(Stdio::null()).spawn().expect("it starts")
    }

    /// Kills the hub.
    pub(crate) fn kill(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("it ran");
    }

    /// Starts a hub in the place of the one that was killed.
    pub(crate) fn start_again(&mut self) {
        self.child = Self::spawn(self.dir.path(), (&self.live, &self.http, &self.flight));
        self.wait();
    }

    fn wait(&mut self) {
        // The last listener that opens.
        eventually("the hub listens", || {
            let ended = self.child.try_wait().expect("ours");
            assert_eq!(ended, None, "the hub ended");
            std::net::TcpStream::connect(&self.flight).is_ok()
        });
        let url = format!("https://{}/api/v1/get?topic=load/load_1m", self.http);
        eventually("the hub knows the load", || {
            let asked = Command::new("curl").args(["-skf", &url]).stdout(Stdio::null()).status();
            asked.expect("curl(1)").success()
        });
    }

    fn pki(&self, args: &[&str]) -> Ran {
        let ran = run(self.dir.path(), &[&["pki"], args].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        ran
    }

    pub(crate) fn token(&self, args: &[&str]) -> String {
        self.pki(args).stdout.trim().to_owned()
    }

    pub(crate) fn authority(&self) -> PathBuf {
        self.dir.path().join("state/pki/authority.pem")
    }

    /// Joins as a node, in a runtime directory of its own.
    pub(crate) fn join(&self, dir: &Path, node: &str, token: &str) -> Ran {
        run(dir, &["join", &self.http, "--token", token, "--node", node])
    }

    /// Asks over HTTPS as another user of this machine.
    pub(crate) fn curl(&self, words: &[&str]) -> String {
        let authority = self.authority();
        // The other user cannot read this one's folder.
        let copy = std::env::temp_dir().join(format!("skopos-authority-{}.pem", self.child.id()));
        std::fs::copy(authority, &copy).expect("copied");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(&copy, open).expect("ours");
        let ran = Command::new("setpriv")
            .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "curl", "-s"])
            .args(["--max-time", "30", "-w", "\n%{http_code}", "--cacert"])
            .arg(&copy)
            .args(words)
            .output()
            .expect("setpriv(1)");
        let _ = std::fs::remove_file(copy);
        String::from_utf8_lossy(&ran.stdout).into_owned()
    }

    /// Asks a statement over HTTPS as another user of this machine; the last line is the status.
    pub(crate) fn sql(&self, words: &[&str], sql: &str) -> String {
        let url = format!("https://{}/api/v1/sql", self.http);
        let body = ["-H", "content-type: application/sql", "-d", sql, &url];
        self.curl(&[words, &body].concat())
    }

    /// Requests a path over HTTPS as another user; the last line is the status.
    pub(crate) fn request(&self, words: &[&str], path: &str) -> String {
        let url = format!("https://{}{path}", self.http);
        self.curl(&[words, &[&url]].concat())
    }

    /// Returns the status of a request over HTTPS by another user, with this token if there is one.
    fn status(&self, token: Option<&str>, words: &[&str], path: &str) -> String {
        let header = token.map(|token| format!("authorization: Bearer {token}"));
        let mut all: Vec<&str> = header.iter().flat_map(|header| ["-H", header]).collect();
        all.extend(words);
        let url = format!("https://{}{path}", self.http);
        all.push(&url);
        let told = self.curl(&all);
        told.lines().last().unwrap_or_default().to_owned()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: only root can become another user");
    }
    is_root
}

#[test]
fn a_node_joins_with_one_command_and_sends_its_facts() {
    let site = Site::start();
    let node = runtime_dir();
    let token = site.token(&["token", "--for", "10m"]);
    let joined = site.join(node.path(), "n1", &token);
    assert!(joined.code == 0 && joined.stdout.contains("the node n1 of the site s1"), "{joined:?}");
    // The agent has the name in its certificate.
    let args = ["agent", "--live", "--connect", &site.live];
    let mut agent = skopos(node.path(), &args).stdout(Stdio::null()).spawn().expect("it starts");
    eventually("the hub knows the node", || {
        let sql = "SELECT alive FROM nodes WHERE node = 'n1' AND topics > 100";
        run(site.dir.path(), &["sql", sql]).stdout.contains("true")
    });
    agent.kill().and_then(|()| agent.wait()).expect("it ran");
    // The name is taken now, and a token for it alone takes it over.
    let other = runtime_dir();
    let taken = site.join(other.path(), "n1", &token);
    assert!(taken.code == 2 && taken.stderr.contains("`n1` has a certificate"), "{taken:?}");
    let own = site.token(&["token", "--node", "n1"]);
    let wrong = site.join(other.path(), "n2", &own);
    assert!(wrong.code == 2 && wrong.stderr.contains("may not join as n2"), "{wrong:?}");
    let unused = site.pki(&["ls"]).stdout;
    assert!(unused.contains("to join as n1"), "{unused}");
    assert_eq!(site.join(other.path(), "n1", &own).code, 0);
    let again = site.join(other.path(), "n1", &own);
    assert!(again.code == 2 && again.stderr.contains("the token is not valid"), "{again:?}");
    let hub = site.join(other.path(), "hub1", &token);
    assert!(hub.code == 2 && hub.stderr.contains("is the hub itself"), "{hub:?}");
    let listed = site.pki(&["ls"]).stdout;
    assert!(listed.contains("n1\t127.0.0.1") && !listed.contains("to join as n1"), "{listed}");
}

#[test]
fn a_second_hub_joins_and_a_hub_renews_its_certificate() {
    let (site, other) = (Site::start(), runtime_dir());
    let token = site.token(&["token", "--node", "hub2", "--hub-at", "127.0.0.1"]);
    let listed = site.pki(&["ls"]).stdout;
    assert!(listed.contains("to join as the hub hub2"), "{listed}");
    let joined = site.join(other.path(), "hub2", &token);
    assert!(joined.code == 0 && joined.stdout.contains("skopos hub --listen"), "{joined:?}");
    let at = || format!("127.0.0.1:{}", free_port());
    let (live, http) = (format!("tls/{}", at()), at());
    let args = ["hub", "--listen", &live, "--connect", &site.live, "--http", &http];
    let args = [&args[..], &["--flight", "none"]].concat();
    let child = skopos(other.path(), &args).stdout(Stdio::null()).spawn().expect("it starts");
    let second = Running { dir: other, child, _stdout: None };
    eventually("the second hub knows the nodes of the first", || {
        let sql = "SELECT alive FROM nodes WHERE node = 'hub1' AND topics > 100";
        run(second.path(), &["sql", sql]).stdout.contains("true")
    });
    let user = run(second.path(), &["pki", "user", "ann"]);
    assert_eq!(user.code, 0, "{user:?}");
    let header = format!("authorization: Bearer {}", user.stdout.trim());
    let asked = Command::new("curl")
        .args(["-s", "--cacert"])
        .arg(second.path().join("state/pki/authority.pem"))
        .args(["-H", &header, &format!("https://{http}/api/v1/nodes")])
        .output()
        .expect("curl(1)");
    let told = String::from_utf8_lossy(&asked.stdout);
    assert!(told.contains("\"hub1\""), "{told} {}", String::from_utf8_lossy(&asked.stderr));
    let token = run(second.path(), &["pki", "token"]);
    assert!(token.code == 2 && token.stderr.contains("on the first hub"), "{token:?}");
    let renewed = run(second.path(), &["pki", "renew"]);
    assert!(renewed.code == 2 && renewed.stderr.contains("there is no authority"), "{renewed:?}");
    let file = site.dir.path().join("state/pki/identity.pem");
    let before = std::fs::read_to_string(&file).expect("text");
    site.pki(&["renew"]);
    assert_ne!(before, std::fs::read_to_string(&file).expect("text"));
    assert_eq!(site.pki(&["token"]).code, 0, "it is a good one");
}

#[test]
fn a_token_that_is_not_valid_or_for_another_hub_joins_nothing() {
    let (site, other) = (Site::start(), runtime_dir());
    let good = site.token(&["token"]);
    let (head, secret) = good.rsplit_once('-').expect("a token");
    let forged = format!("{head}-{}", "0".repeat(secret.len()));
    let refused = site.join(other.path(), "n1", &forged);
    assert!(refused.code == 2 && refused.stderr.contains("the token is not valid"), "{refused:?}");
    let elsewhere = format!("skopos-join-{}-{secret}", "0".repeat(64));
    let refused = site.join(other.path(), "n1", &elsewhere);
    assert!(refused.stderr.contains("is not the hub that made this token"), "{refused:?}");
    let ended = site.token(&["token", "--for", "0s"]);
    assert!(site.join(other.path(), "n1", &ended).stderr.contains("not valid"));
    let user = site.token(&["user", "ann"]);
    assert!(site.join(other.path(), "n1", &user).stderr.contains("not a token to join with"));
    assert!(!other.path().join("state/pki/identity.pem").exists());
}

#[test]
fn a_ranking_is_asked_for_over_https_with_a_token() {
    let (site, other) = (Site::start(), runtime_dir());
    let files = [("good", site.token(&["user", "ann"])), ("bad", "0123456789abcdef".to_owned())];
    for (name, token) in files {
        std::fs::write(other.path().join(name), token).expect("written");
    }
    let (hub, authority) = (format!("https://{}", site.http), site.authority());
    let authority = ["--authority", authority.to_str().expect("UTF-8")];
    let ask = |token: &str, more: &[&str]| {
        let token = other.path().join(token).display().to_string();
        let words = ["rank", "--profile", "reads", "--hub", &hub, "--token-file", &token];
        run(other.path(), &[&words[..], more].concat())
    };
    let asked = ask("good", &authority);
    assert!(asked.stderr.contains("no node ranks the profile `reads`"), "{asked:?}");
    let refused = ask("bad", &authority);
    assert!(refused.code == 2 && !refused.stderr.contains("no node ranks"), "{refused:?}");
    let untrusted = ask("good", &[]);
    assert!(untrusted.stderr.contains("the hub does not answer"), "{untrusted:?}");
}

/// The matrix: a row for each question, a column for each caller, all of them another user of this machine.
#[test]
fn each_caller_gets_what_the_policy_says_over_https() {
    if !is_root() {
        return;
    }
    let site = Site::start();
    let tokens = [
        None,
        Some("0123456789abcdef".to_owned()),
        Some(site.token(&["token"])),
        Some(site.token(&["user", "ann"])),
        Some(site.token(&["user", "eve", "--role", "support"])),
        Some(site.token(&["user", "ida", "--role", "admin"])),
    ];
    let sql = |text: &'static str| vec!["-H", "content-type: application/sql", "-d", text];
    let questions: [(&str, Vec<&str>, &str, &str); 9] = [
        ("is it well", vec![], "/healthz", "200 401 200 200 200 200"),
        ("the authority", vec![], "/api/v1/authority", "200 401 200 200 200 200"),
        ("metrics", vec![], "/metrics", "401 401 403 200 200 200"),
        ("nodes", vec![], "/api/v1/nodes", "401 401 403 200 200 200"),
        ("a value", vec![], "/api/v1/get?topic=load/load_1m", "401 401 403 200 200 200"),
        (
            "a measurement",
            vec![],
            "/api/v1/get?topic=load/load_1m&max_age=1ms",
            "401 401 403 403 200 200",
        ),
        (
            "a statement",
            sql("SELECT count(*) FROM latest"),
            "/api/v1/sql",
            "401 401 403 200 200 200",
        ),
        ("jobs", sql("SELECT count(*) FROM tasks"), "/api/v1/sql", "401 401 403 403 200 200"),
        (
            "changes",
            vec!["--max-time", "0.5"],
            "/api/v1/watch?topic=load/load_1m",
            "401 401 403 200 200 200",
        ),
    ];
    for (what, words, path, expected) in questions {
        let told: Vec<String> =
            tokens.iter().map(|token| site.status(token.as_deref(), &words, path)).collect();
        assert_eq!(told.join(" "), expected, "{what}");
    }
    // The owner needs no token, at any listener.
    let own =
        Command::new("curl").args(["-sk", &format!("https://{}/metrics", site.http)]).output();
    assert!(String::from_utf8_lossy(&own.expect("curl(1)").stdout).contains("skopos_"));
    // A token that was revoked is none, and ends what was open.
    let watched = std::thread::scope(|scope| {
        let path = "/api/v1/watch?topic=load/load_1m";
        let watching = scope.spawn(|| site.status(tokens[3].as_deref(), &[], path));
        std::thread::sleep(std::time::Duration::from_secs(1));
        assert!(!watching.is_finished());
        site.pki(&["revoke", "ann"]);
        let begun = std::time::Instant::now();
        (watching.join().expect("asked"), begun.elapsed())
    });
    // curl(1) itself gives up after half a minute.
    assert!(watched.0 == "200" && watched.1.as_secs() < 20, "{watched:?}");
    assert_eq!(site.status(tokens[3].as_deref(), &[], "/metrics"), "401");
    // Clear text is not answered.
    let clear = site.curl(&[&format!("http://{}/healthz", site.http)]);
    assert_eq!(clear.trim(), "000");
}

#[test]
fn each_caller_gets_what_the_policy_says_over_flight() {
    let Some(python) = python().filter(|_| is_root()) else {
        println!("skipped: no adbc-driver-flightsql, or not root");
        return;
    };
    let site = Site::start();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/flight_callers.py");
    let authority = std::fs::read_to_string(site.authority()).expect("text");
    let ask = |tokens: &[&str]| -> Output {
        // The script reads the certificate as root and becomes the other user then.
        let uri = format!("grpc+tls://{}", site.flight);
        let mut command = Command::new(&python);
        command.arg(script).args([&uri, &authority, NOBODY]).args(tokens);
        command.output().expect("it starts")
    };
    let (ann, eve) =
        (site.token(&["user", "ann"]), site.token(&["user", "eve", "--role", "support"]));
    let ran = ask(&[&ann, &eve]);
    let told = String::from_utf8_lossy(&ran.stdout);
    let expected = [
        "stranger: UNAUTHENTICATED",
        "wrong token: UNAUTHENTICATED",
        "first user: facts",
        "first user, jobs: FORBIDDEN",
        "second user, jobs: answered",
        "another's prepared statement: NOT_FOUND",
        "compressed values: INVALID_ARGUMENT",
    ];
    let steps: Vec<&str> = told.lines().collect();
    assert_eq!(steps, expected, "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn a_listener_of_the_network_needs_certificates_or_a_loud_word() {
    let dir = runtime_dir();
    for (option, at) in [("--http", "0.0.0.0:0"), ("--flight", "0.0.0.0:0")] {
        let ran = run(dir.path(), &["up", "--for", "100ms", option, at]);
        assert!(ran.code == 2 && ran.stderr.contains("would answer everybody"), "{ran:?}");
        assert!(ran.stderr.contains("hint: ") && ran.stderr.contains("skopos pki init"), "{ran:?}");
    }
    let loud = ["up", "--for", "100ms", "--insecure", "--http", "127.0.0.1:0", "--flight", "none"];
    let ran = run(dir.path(), &loud);
    assert_eq!(ran.code, 0, "{ran:?}");
}
