//! A private PostgreSQL server on a UNIX socket, for tests.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::ports::free_port;

/// Ends a test that would wait for ever. A server starts in a second.
const START: Duration = Duration::from_secs(60);

/// Pause between two looks at a server that starts.
const PAUSE: Duration = Duration::from_millis(20);

/// The folder in which Debian keeps the programs of each version.
const PROGRAMS: &str = "/usr/lib/postgresql";

/// The port of a server without TCP, which names its socket.
const PORT: u16 = 5432;

/// The user of the database.
const USER: &str = "skopos";

/// A running server. Its processes and its folder are gone when it is dropped.
pub(crate) struct Server {
    programs: PathBuf,
    /// User and group that it runs as, if those are not the test's own.
    account: Option<(u32, u32)>,
    process: Child,
    /// Settings beside the usual ones.
    settings: Vec<String>,
    port: u16,
    databases: AtomicU32,
    folder: tempfile::TempDir,
}

/// Returns the folder with the programs of the latest version.
fn programs() -> Option<PathBuf> {
    let version = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let folders = fs::read_dir(PROGRAMS).ok()?.flatten().map(|entry| entry.path());
    let whole = folders.filter(|folder| {
        ["initdb", "postgres", "psql"].iter().all(|name| folder.join("bin").join(name).exists())
    });
    Some(whole.max_by_key(version)?.join("bin"))
}

/// Returns user and group of an account of this machine.
fn account(name: &str) -> Option<(u32, u32)> {
    let accounts = fs::read_to_string("/etc/passwd").ok()?;
    let line = accounts.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2).map(|field| field.parse().ok());
    Some((fields.next()??, fields.next()??))
}

fn skipped(why: &str) -> Option<Server> {
    // Also where the harness captures the output of tests that pass.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}; `make test` installs it");
    None
}

impl Server {
    /// Starts a server, or says why that is impossible here.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&[], (&[], PORT))
    }

    /// Starts a server that is reached by TCP, too, with files that it reads and settings that may name them in `FOLDER`.
    #[allow(dead_code, reason = "some of the tests that share this file need no TCP")]
    pub(crate) fn start_with_tcp(files: &[(&str, &[u8])], settings: &[&str]) -> Option<Self> {
        let settings = [settings, &["listen_addresses=127.0.0.1"]].concat();
        Self::start_with(files, (&settings, free_port()))
    }

    fn start_with(files: &[(&str, &[u8])], (settings, port): (&[&str], u16)) -> Option<Self> {
        let Some(programs) = programs() else {
            return skipped("PostgreSQL is not installed (Debian: postgresql)");
        };
        // The server refuses to run as root.
        let account = match (rustix::process::geteuid().is_root(), account("postgres")) {
            (true, None) => {
                return skipped("PostgreSQL does not run as root, and its user is missing");
            }
            (true, user) => user,
            (false, _) => None,
        };
        let folder = tempfile::tempdir().expect("a folder");
        if let Some((user, group)) = account {
            chown(folder.path(), Some(user), Some(group)).expect("root");
        }
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("ours");
        let made = command(&programs.join("initdb"), account, folder.path())
            .args([
                "-A",
                "trust",
                "-U",
                USER,
                "-E",
                "UTF8",
                "--locale=C",
                "--no-sync",
                "-D",
                "data",
            ])
            .output()
            .expect("initdb runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        for (name, content) in files {
            let path = folder.path().join(name);
            fs::write(&path, content).expect("ours");
            fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("ours");
            if let Some((user, group)) = account {
                chown(&path, Some(user), Some(group)).expect("root");
            }
        }
        let here = folder.path().display().to_string();
        let mut settings: Vec<String> =
            settings.iter().map(|setting| setting.replace("FOLDER", &here)).collect();
        settings.push(format!("port={port}"));
        let process = serve(&programs, account, folder.path(), &settings);
        let databases = AtomicU32::new(0);
        let mut server = Self { programs, account, process, settings, port, databases, folder };
        server.wait();
        Some(server)
    }

    /// Kills the server's first process. The others notice that and end.
    #[allow(dead_code, reason = "some of the tests that share this file kill no server")]
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("our own child");
        self.process.wait().expect("our own child");
    }

    /// Starts a server again that was killed.
    #[allow(dead_code, reason = "some of the tests that share this file kill no server")]
    pub(crate) fn restart(&mut self) {
        self.process = self.serve();
        self.wait();
    }

    fn serve(&self) -> Child {
        serve(&self.programs, self.account, self.folder.path(), &self.settings)
    }

    /// Waits until the server answers.
    fn wait(&mut self) {
        let began = Instant::now();
        while !self.psql("postgres", "SELECT 1").status.success() {
            let log = || fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(began.elapsed() < START, "the server does not start: {}", log());
            if self.process.try_wait().expect("our own child").is_some() {
                // The last processes of a killed server are still there.
                self.process = self.serve();
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Returns the URL of a database.
    pub(crate) fn url(&self, database: &str) -> String {
        let folder = self.folder.path().display();
        format!("postgresql://{USER}@/{database}?host={folder}&port={}", self.port)
    }

    /// Returns the URL of a database by TCP, under a name of the server.
    #[allow(dead_code, reason = "some of the tests that share this file need no TCP")]
    pub(crate) fn tcp_url(&self, database: &str, name: &str) -> String {
        format!("postgresql://{USER}@{name}:{}/{database}?hostaddr=127.0.0.1", self.port)
    }

    /// Makes an empty database, and returns its URL.
    pub(crate) fn database(&self) -> String {
        let name = format!("d{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.execute("postgres", &format!("CREATE DATABASE {name}"));
        self.url(&name)
    }

    /// Runs a statement in a database, by its name or URL.
    pub(crate) fn execute(&self, database: &str, sql: &str) {
        let ran = self.psql(database, sql);
        assert!(ran.status.success(), "{sql}: {}", String::from_utf8_lossy(&ran.stderr));
    }

    fn psql(&self, database: &str, sql: &str) -> std::process::Output {
        let url = match database.contains("://") {
            true => database.to_owned(),
            false => self.url(database),
        };
        command(&self.programs.join("psql"), self.account, self.folder.path())
            .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", sql, &url])
            .output()
            .expect("psql runs")
    }
}

fn command(program: &Path, account: Option<(u32, u32)>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).stdin(Stdio::null()).env("LC_ALL", "C");
    if let Some((user, group)) = account {
        command.uid(user).gid(group);
    }
    command
}

/// Starts the server's first process, with the setting of a real server that writes to the disk.
fn serve(
    programs: &Path,
    account: Option<(u32, u32)>,
    folder: &Path,
    settings: &[String],
) -> Child {
    let log = File::options().create(true).append(true).open(folder.join("log"));
    command(&programs.join("postgres"), account, folder)
        .args(["-D", "data", "-c", "listen_addresses=", "-c", "fsync=on", "-k"])
        .arg(folder)
        .args(settings.iter().flat_map(|setting| ["-c", setting]))
        .stdout(Stdio::null())
        .stderr(log.expect("writable"))
        .spawn()
        .expect("postgres runs")
}

impl Drop for Server {
    fn drop(&mut self) {
        // An interrupt is PostgreSQL's fast shutdown: its other processes end before it.
        let pid = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let _ = self.process.wait();
    }
}
