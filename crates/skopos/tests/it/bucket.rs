//! Segments of jobs on a real server that speaks S3.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::s3_server::{KEYS, S3Server};
use crate::support::{Ran, eventually, listeners, runtime_dir, skopos};

/// A server with a bucket, and a hub that keeps its segments there. Both end when this is dropped.
struct World {
    dir: TempDir,
    server: S3Server,
    hub: Option<Child>,
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(mut hub) = self.hub.take() {
            let _ = hub.kill();
            let _ = hub.wait();
        }
    }
}

impl World {
    fn new(server: S3Server) -> Self {
        let dir = runtime_dir();
        let config = format!("[hub.jobs.s3]\n{}", server.entries("hub1"));
        std::fs::write(dir.path().join("skopos.toml"), config).expect("written");
        Self { dir, server, hub: None }
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

    fn segments(&self) -> Vec<PathBuf> {
        self.server.segments("hub1")
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
    let Some(server) = S3Server::new() else { return };
    let mut world = World::new(server);
    world.server.start();
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
    world.server.stop();
    assert_eq!(world.run(&["run", "--quiet", "--name", "late", "--", "true"]).code, 0);
    eventually("the job is found while the bucket is away", || world.count("jobs") == json!(3));
    let before = world.segments().len();
    world.server.start();
    eventually("the job is sealed", || world.segments().len() > before);
    world.kill_hub();
    world.start_hub();
    assert_eq!(world.count("jobs"), json!(3));
    assert_ne!(world.count("job_findings"), json!(0), "the records can be read");
}

#[test]
fn segments_of_the_folder_move_to_a_bucket() {
    let Some(server) = S3Server::new() else { return };
    let mut world = World::new(server);
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
    world.server.start();
    world.start_hub();
    assert_eq!(world.count("jobs"), json!(1));
    assert_eq!((sealed(&local), world.segments().len()), (0, 1));
    world.kill_hub();
    let verified = world.mds("verify");
    assert!(verified.stdout.ends_with("agree with the catalogue\n"), "{verified:?}");
}
