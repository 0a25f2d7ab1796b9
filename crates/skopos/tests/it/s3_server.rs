//! A real server that speaks S3: `s3s-fs`, with its objects in a folder of the test.

use std::io::Write as _;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::support::{eventually, free_port, runtime_dir};

/// The keys of the server, for the environment of a hub.
pub(crate) const KEYS: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", "skopos"), ("AWS_SECRET_ACCESS_KEY", "a secret of the test")];

/// A server with the bucket `jobs`. It ends when this is dropped.
pub(crate) struct S3Server {
    program: PathBuf,
    dir: TempDir,
    port: u16,
    child: Option<Child>,
}

impl Drop for S3Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl S3Server {
    /// Prepares a server; `None` if `scripts/setup test` has not installed it.
    pub(crate) fn new() -> Option<Self> {
        let set =
            |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
        let program = cache.join("skopos/s3s/bin/s3s-fs");
        if !program.exists() {
            // Also where the harness captures the output of tests that pass.
            let _ =
                writeln!(std::io::stderr(), "SKIPPED: no s3s-fs; `scripts/setup test` installs it");
            return None;
        }
        let (dir, port) = (runtime_dir(), free_port());
        std::fs::create_dir_all(dir.path().join("jobs")).expect("a bucket");
        Some(Self { program, dir, port, child: None })
    }

    /// Starts the server.
    pub(crate) fn start(&mut self) {
        let mut command = Command::new(&self.program);
        let port = self.port.to_string();
        command.args(["--host", "127.0.0.1", "--port", &port]);
        command.args(["--access-key", KEYS[0].1, "--secret-key", KEYS[1].1]);
        command.arg(self.dir.path()).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().expect("it starts"));
        eventually("the server listens", || TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }

    /// Kills the server. It can start again.
    pub(crate) fn stop(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("it runs");
        child.wait().expect("it ends");
    }

    /// Returns the bucket with a prefix, as the entries of a table of the configuration.
    pub(crate) fn entries(&self, prefix: &str) -> String {
        let port = self.port;
        format!(
            "bucket = \"jobs\"\nprefix = \"{prefix}\"\nregion = \"test\"\n\
             endpoint = \"http://127.0.0.1:{port}\"\n"
        )
    }

    /// Returns the segments below a prefix.
    pub(crate) fn segments(&self, prefix: &str) -> Vec<PathBuf> {
        let folder = self.dir.path().join("jobs").join(prefix).join("lts");
        let paths = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|it| it.path());
        paths.filter(|path| path.extension().is_some_and(|it| it == "parquet")).collect()
    }
}
