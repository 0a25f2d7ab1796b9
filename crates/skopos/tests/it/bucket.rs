//! Segments of jobs on a real server that speaks S3: `s3s-fs`, with its objects in a folder of the test.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::support::{Ran, eventually, free_port, listeners, runtime_dir, skopos};

const KEYS: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", "skopos"), ("AWS_SECRET_ACCESS_KEY", "a secret of the test")];

/// Returns the server that `scripts/setup test` installs.
fn server() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    let server = cache.join("skopos/s3s/bin/s3s-fs");
    if !server.exists() {
        // Also where the harness captures the output of tests that pass.
        let _ = writeln!(std::io::stderr(), "SKIPPED: no s3s-fs; `scripts/setup test` installs it");
        return None;
    }
    Some(server)
}

/// A server with a bucket, and a hub that keeps its segments there. Both end when this is dropped.
struct World {
    dir: TempDir,
    program: PathBuf,
    port: u16,
    server: Option<Child>,
    hub: Option<Child>,
}

impl Drop for World {
    fn drop(&mut self) {
        for mut child in self.server.take().into_iter().chain(self.hub.take()) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl World {
    fn new(program: PathBuf) -> Self {
        let (dir, port) = (runtime_dir(), free_port());
        std::fs::create_dir_all(dir.path().join("objects/jobs")).expect("a bucket");
        let config = format!(
            "[hub.jobs.s3]\nbucket = \"jobs\"\nprefix = \"hub1\"\nregion = \"test\"\n\
             endpoint = \"http://127.0.0.1:{port}\"\n"
        );
        std::fs::write(dir.path().join("skopos.toml"), config).expect("written");
        Self { dir, program, port, server: None, hub: None }
    }

    fn start_server(&mut self) {
        let mut command = Command::new(&self.program);
        let port = self.port.to_string();
        command.args(["--host", "127.0.0.1", "--port", &port]);
        command.args(["--access-key", KEYS[0].1, "--secret-key", KEYS[1].1]);
        command.arg(self.objects("")).stdout(Stdio::null()).stderr(Stdio::null());
        self.server = Some(command.spawn().expect("it starts"));
        eventually("the server listens", || {
            std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        });
    }

    fn stop_server(&mut self) {
        let mut server = self.server.take().expect("it runs");
        server.kill().expect("it runs");
        server.wait().expect("it ends");
    }

    fn start_hub(&mut self) {
        let mut args = vec!["up", "--json", "--node", "n01", "--policy", "fixed"];
        args.extend(["--interval", "100ms", "--budget", "100%"]);
        let config = self.dir.path().join("skopos.toml");
        args.extend(["--config", config.to_str().expect("UTF-8")]);
        args.extend(listeners(&[]));
        let mut command = skopos(self.dir.path(), &args);
        let mut child = command.envs(KEYS).stdout(Stdio::piped()).spawn().expect("it starts");
        let told = BufReader::new(child.stdout.take().expect("piped"));
        let is_start = told
            .lines()
            .map_while(Result::ok)
            .any(|line| serde_json::from_str::<Json>(&line).expect("JSON")["event"] == "started");
        assert!(is_start, "the hub exited");
        self.hub = Some(child);
    }

    fn kill_hub(&mut self) {
        let mut hub = self.hub.take().expect("it runs");
        hub.kill().expect("it runs");
        hub.wait().expect("it ends");
    }

    fn objects(&self, of: &str) -> PathBuf {
        self.dir.path().join("objects").join(of)
    }

    fn segments(&self) -> Vec<PathBuf> {
        let files =
            std::fs::read_dir(self.objects("jobs/hub1/lts")).into_iter().flatten().flatten();
        let paths = files.map(|file| file.path());
        paths.filter(|path| path.extension().is_some_and(|e| e == "parquet")).collect()
    }

    fn run(&self, args: &[&str]) -> Ran {
        let output = skopos(self.dir.path(), args).envs(KEYS).output().expect("it starts");
        let Output { status, stdout, stderr } = output;
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Ran { code: status.code().unwrap_or(-1), stdout: text(stdout), stderr: text(stderr) }
    }

    fn mds(&self, verb: &str) -> Ran {
        let config = self.dir.path().join("skopos.toml");
        self.run(&["mds", verb, "--config", config.to_str().expect("UTF-8")])
    }

    fn count(&self, table: &str) -> Json {
        let sql = format!("SELECT count(*) AS n FROM {table}");
        self.run(&["sql", "--json", &sql]).json()["rows"][0]["n"].clone()
    }
}

#[test]
fn jobs_are_sealed_into_a_bucket_and_found_there() {
    let Some(program) = server() else { return };
    let mut world = World::new(program);
    world.start_server();
    world.start_hub();
    for name in ["align", "solve"] {
        assert_eq!(world.run(&["run", "--quiet", "--name", name, "--", "true"]).code, 0);
    }
    eventually("the jobs are objects", || !world.segments().is_empty());
    world.kill_hub();
    let local = world.dir.path().join("state/jobs");
    assert!(!local.join("lts").exists(), "nothing is sealed on this machine");

    // The catalogue is made again from the bucket.
    for ending in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(local.join(format!("catalogue.sqlite{ending}")));
    }
    let rebuilt = world.mds("rebuild");
    assert!(rebuilt.stdout.starts_with("made the catalogue again: 2 jobs of "), "{rebuilt:?}");
    let verified = world.mds("verify");
    assert!(verified.stdout.ends_with("agree with the catalogue\n"), "{verified:?}");

    // Without the configuration the jobs would seem to be gone.
    let elsewhere = world.run(&["mds", "verify"]);
    assert_eq!(elsewhere.code, 2, "{elsewhere:?}");
    assert!(elsewhere.stderr.contains("the segments are in s3://jobs/hub1"), "{elsewhere:?}");

    // The server goes away while the hub runs: records are taken, and sealed once it is back.
    world.start_hub();
    assert_eq!(world.count("jobs"), json!(2));
    world.stop_server();
    assert_eq!(world.run(&["run", "--quiet", "--name", "late", "--", "true"]).code, 0);
    eventually("the job is found while the bucket is away", || world.count("jobs") == json!(3));
    let before = world.segments().len();
    world.start_server();
    eventually("the job is sealed", || world.segments().len() > before);
    world.kill_hub();
    world.start_hub();
    assert_eq!(world.count("jobs"), json!(3));
    assert_ne!(world.count("job_findings"), json!(0), "the records can be read");
}

#[test]
fn segments_of_the_folder_move_to_a_bucket() {
    let Some(program) = server() else { return };
    let mut world = World::new(program);
    let config = world.dir.path().join("skopos.toml");
    let kept = std::fs::read_to_string(&config).expect("written");
    std::fs::write(&config, "").expect("written");
    world.start_hub();
    assert_eq!(world.run(&["run", "--quiet", "--name", "align", "--", "true"]).code, 0);
    let local = world.dir.path().join("state/jobs/lts");
    let sealed = |folder: &Path| {
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
        files.filter(|file| file.file_name().to_string_lossy().ends_with(".parquet")).count()
    };
    eventually("the job is sealed", || sealed(&local) == 1);
    world.kill_hub();
    std::fs::write(&config, kept).expect("written");
    world.start_server();
    world.start_hub();
    assert_eq!(world.count("jobs"), json!(1));
    assert_eq!((sealed(&local), world.segments().len()), (0, 1));
    world.kill_hub();
    let verified = world.mds("verify");
    assert!(verified.stdout.ends_with("agree with the catalogue\n"), "{verified:?}");
}
