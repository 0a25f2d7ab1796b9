//! Remote write: third-party stores receive values and return them.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value as Json;
use tempfile::TempDir;

use crate::support::{Running, eventually, free_port};

/// A store that can be stopped and started again with its data.
struct Store {
    program: &'static str,
    args: Vec<String>,
    url: String,
    child: Option<Child>,
    _dir: TempDir,
}

impl Store {
    /// Starts the store; `None` where it is not installed.
    fn start(program: &'static str) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a directory");
        let (at, data) = (format!("127.0.0.1:{}", free_port()), dir.path().join("data"));
        let config = dir.path().join("config.yml");
        std::fs::write(&config, "").expect("written");
        let (data, config) = (data.display(), config.display());
        let args = match program {
            "prometheus" => vec![
                "--web.enable-remote-write-receiver".to_owned(),
                format!("--web.listen-address={at}"),
                format!("--storage.tsdb.path={data}"),
                format!("--config.file={config}"),
            ],
            _ => vec![
                format!("-httpListenAddr={at}"),
                format!("-storageDataPath={data}"),
                "-search.latencyOffset=0s".to_owned(),
                "-search.disableCache".to_owned(),
            ],
        };
        let url = format!("http://{at}");
        let mut store = Self { program, args, url, child: None, _dir: dir };
        store.go().then_some(store)
    }

    /// Starts the store's program, and returns whether it is installed.
    fn go(&mut self) -> bool {
        let mut command = Command::new(self.program);
        command.args(&self.args).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = command.spawn().ok();
        if self.child.is_some() {
            eventually("the store answers", || {
                self.get("/health").is_some() || self.get("/-/ready").is_some()
            });
        }
        self.child.is_some()
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            crate::support::signal(&child, "TERM");
            let _ = child.wait();
        }
    }

    fn get(&self, path: &str) -> Option<String> {
        let mut response = ureq::get(format!("{}{path}", self.url)).call().ok()?;
        response.body_mut().read_to_string().ok()
    }

    /// Returns the result of `query`: for each series its labels, and its samples or its value.
    fn ask(&self, query: &str) -> Vec<Json> {
        let query: String = query.bytes().map(|b| format!("%{b:02x}")).collect();
        let Some(text) = self.get(&format!("/api/v1/query?query={query}")) else {
            return Vec::new();
        };
        let answer: Json = serde_json::from_str(&text).expect("JSON");
        answer["data"]["result"].as_array().cloned().unwrap_or_default()
    }

    /// Returns the past values of `query`, without repetitions.
    fn past(&self, query: &str) -> Vec<String> {
        let series = self.ask(&format!("{query}[10m]"));
        let samples = series.first().and_then(|s| s["values"].as_array().cloned());
        let samples = samples.unwrap_or_default();
        let mut values: Vec<String> =
            samples.iter().filter_map(|s| Some(s[1].as_str()?.to_owned())).collect();
        values.dedup();
        values
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn check(program: &'static str) {
    let Some(mut store) = Store::start(program) else {
        println!("skipped: no {program}; `scripts/setup test` installs it");
        return;
    };
    let config = tempfile::NamedTempFile::new().expect("a file");
    let text = format!(
        "[hub]\nflight = \"none\"\n[hub.remote_write]\nurl = \"{}/api/v1/write\"\nevery = \"1s\"\n",
        store.url
    );
    std::fs::write(config.path(), text).expect("written");
    let config = config.path().display().to_string();
    let mut up = Running::start_as("up", &["--config", &config]);
    let publish = |up: &Running, value: &str| {
        assert_eq!(up.run(&["publish", "app/queue-depth", value]).code, 0);
    };
    publish(&up, "17");
    let name = "skopos_app_queue_depth";
    eventually("a value is there", || !store.ask(name).is_empty());
    let labels = &store.ask(name)[0]["metric"];
    assert_eq!(
        *labels,
        serde_json::json!({"__name__": name, "node": "n01", "topic": "n01/app/queue-depth"})
    );
    eventually("the facts of sensors are there", || {
        store.ask("skopos_mem_total_bytes{node=\"n01\"}").len() == 1
            && store.ask("skopos_self_sensor_poll_seconds{instance=\"mem\"}").len() == 1
    });
    // Each value is sampled once a second, and kept while the store is away.
    store.stop();
    for value in ["18", "19"] {
        publish(&up, value);
        std::thread::sleep(Duration::from_millis(2500));
    }
    assert!(store.go());
    publish(&up, "20");
    eventually("nothing is lost", || store.past(name) == ["17", "18", "19", "20"]);
    eventually("the counts agree with the store", || {
        let count = |what: &str| {
            let series = store.ask(&format!("skopos_self_remote_write_{what}"));
            series.first().and_then(|s| s["value"][1].as_str()?.parse::<f64>().ok())
        };
        count("retries_total").is_some_and(|n| n > 0.0)
            && count("samples_sent_total").is_some_and(|n| n > 0.0)
            && count("samples_overflowed_total") == Some(0.0)
            && count("samples_refused_total") == Some(0.0)
    });
    up.kill();
}

#[test]
fn prometheus_receives_what_is_written() {
    check("prometheus");
}

#[test]
fn victoria_metrics_receives_what_is_written() {
    check("victoria-metrics");
}
