//! `skopos trace`, and traces that the agent collects, as users see them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value as Json;
use skopos_rpc::{Options, Recorder, Status};
use tempfile::TempDir;

use crate::json::check;
use crate::support::{PATIENCE, Running, eventually, free_port, run, runtime_dir};

/// Requests of a run: enough for a test of significance.
const REQUESTS: usize = 400;

/// A folder with traces, and a runtime directory without an agent.
struct Traced {
    dir: TempDir,
}

impl Traced {
    fn new() -> Self {
        Self { dir: runtime_dir() }
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes the trace of a client that calls a store, which calls a disk. `spin` is the work of the disk.
    fn write(&self, name: &str, spin: u32) -> PathBuf {
        let folder = self.folder(name);
        std::fs::create_dir_all(&folder).expect("our own");
        let options = |service: &str| {
            Options::new(service).node("n01").dir(self.folder("run")).trace_folder(&folder)
        };
        let client = Recorder::start(options("client")).expect("a trace");
        let store = options("store").config("execution_streams", 2);
        let store = Recorder::start(store).expect("a trace");
        for _ in 0..REQUESTS {
            request(client, store, spin);
        }
        client.close().expect("written");
        store.close().expect("written");
        folder
    }

    fn run(&self, args: &[&str]) -> crate::support::Ran {
        run(self.dir.path(), args)
    }

    fn json(&self, folder: &Path, args: &[&str]) -> Json {
        let folder = folder.to_str().expect("UTF-8");
        let ran = self.run(&[&["trace"][..], args, &["--trace", folder, "--json"]].concat());
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        ran.json()
    }
}

/// One request: the client calls the store, whose handler calls a disk.
fn request(client: Recorder, store: Recorder, spin: u32) {
    let (get, read) = (client.rpc("store_get"), store.rpc("disk_read"));
    let call = client.origin(get, None);
    let mut served = store.target(store.rpc("store_get"), &call.context());
    served.begin();
    let inner = store.origin(read, Some(&served.context()));
    let mut disk = store.target(read, &inner.context());
    disk.begin();
    let begun = std::time::Instant::now();
    while begun.elapsed() < std::time::Duration::from_micros(spin.into()) {
        std::hint::spin_loop();
    }
    disk.end(Status::Ok);
    inner.end(Status::Ok);
    served.end(Status::Ok);
    call.end(Status::Ok);
}

#[test]
fn callpaths_requests_and_critical_paths_of_a_trace() {
    let traced = Traced::new();
    let folder = traced.write("a", 50);
    let profile = traced.json(&folder, &["profile"]);
    check("trace_profile", &profile);
    let names = |path: &Json| path["names"].as_array().expect("names").len();
    let paths = profile["paths"].as_array().expect("paths");
    assert_eq!(
        paths.iter().map(|path| path["calls"].as_u64()).collect::<Vec<_>>(),
        [Some(REQUESTS as u64), Some(REQUESTS as u64)]
    );
    assert_eq!((names(&paths[0]), names(&paths[1])), (1, 2), "{profile}");
    let requests = traced.json(&folder, &["requests", "--limit", "3"]);
    check("trace_requests", &requests);
    assert_eq!(requests["total"], REQUESTS);
    let id = requests["requests"][0]["id"].as_str().expect("an id").to_owned();
    let shown = traced.json(&folder, &["show", &id]);
    check("trace_show", &shown);
    let calls = shown["calls"].as_array().expect("calls");
    let calls: Vec<_> = calls.iter().map(|call| (&call["name"], &call["depth"])).collect();
    assert_eq!(calls, [(&"store_get".into(), &0.into()), (&"disk_read".into(), &1.into())]);
    check("trace_critical_one", &traced.json(&folder, &["critical-path", &id]));
    let critical = traced.json(&folder, &["critical-path", "--faster", "50%"]);
    check("trace_critical", &critical);
    assert_eq!(critical["paths"][0]["names"], serde_json::json!(["store_get", "disk_read"]));
    check("trace_system", &traced.json(&folder, &["system"]));
    check("trace_findings", &traced.json(&folder, &["findings"]));
    let text = traced.run(&["trace", "show", &id, "--trace", folder.to_str().expect("UTF-8")]);
    assert!(text.stdout.contains("\n  disk_read "), "{text:?}");
}

#[test]
fn two_runs_are_compared_and_gated() {
    let traced = Traced::new();
    let (fast, slow) = (traced.write("fast", 20), traced.write("slow", 2_000));
    let [fast, slow] = [&fast, &slow].map(|folder| folder.to_str().expect("UTF-8"));
    let compared = traced.run(&["trace", "compare", fast, slow, "--json"]);
    assert_eq!(compared.code, 0, "{compared:?}");
    check("trace_compare", &compared.json());
    let paths = compared.json()["paths"].clone();
    assert!(paths[0]["change"]["value"].as_f64().expect("a number") > 1.0, "{paths}");
    let slower = traced.run(&["trace", "gate", fast, slow, "--json"]);
    check("trace_gate", &slower.json());
    assert_eq!((slower.code, &slower.json()["passes"]), (1, &false.into()));
    let faster = traced.run(&["trace", "gate", slow, fast]);
    assert_eq!(faster.code, 0, "{faster:?}");
    // A run of which nothing can be judged does not pass.
    let unjudged = traced.run(&["trace", "gate", slow, fast, "--calls", "1000000"]);
    assert_eq!(unjudged.code, 1, "{unjudged:?}");
    assert!(unjudged.stdout.contains("no callpath can be judged"), "{unjudged:?}");
    // The slow run is long enough for samples of its processes.
    let system = traced.run(&["trace", "system", "--trace", slow]);
    let head = |line: &str| line.split_whitespace().eq("variable over time mean most".split(' '));
    assert!(system.stdout.lines().any(head), "{system:?}");
}

#[test]
fn exports_are_what_their_readers_take() {
    let traced = Traced::new();
    let folder = traced.write("a", 10);
    let folder = folder.to_str().expect("UTF-8");
    let export = |format: &str| {
        let ran = traced.run(&["trace", "export", "--format", format, "--trace", folder]);
        assert_eq!(ran.code, 0, "{format}: {ran:?}");
        ran.stdout
    };
    let zipkin: Json = serde_json::from_str(&export("zipkin")).expect("JSON");
    // Two calls of two sides each.
    assert_eq!(zipkin.as_array().expect("spans").len(), 4 * REQUESTS);
    let perfetto: Json = serde_json::from_str(&export("perfetto")).expect("JSON");
    assert!(perfetto["traceEvents"].as_array().is_some_and(|events| !events.is_empty()));
    let otlp = export("otlp");
    assert!(otlp.lines().all(|line| serde_json::from_str::<Json>(line).is_ok()), "{otlp}");
    let folded = export("folded");
    let stacks: Vec<_> = folded.lines().filter_map(|line| line.rsplit_once(' ')).collect();
    assert!(stacks.iter().any(|(stack, _)| *stack == "store_get;disk_read"), "{folded}");
}

#[test]
fn options_that_cannot_be_are_refused() {
    let traced = Traced::new();
    let folder = traced.write("a", 1);
    let folder = folder.to_str().expect("UTF-8");
    for (words, said) in [
        (&["requests", "--limit", "0"][..], "--limit"),
        (&["profile", "--top", "0"], "--top"),
        (&["system", "--points", "0"], "--points"),
        (&["export", "--json"], "no form for `--json`"),
        (&["export", "--otlp-to", "http://127.0.0.1:1"], "http://127.0.0.1:1/v1/traces"),
        (&["collect", "--out", "never", "--for", "8d"], "at most 7d"),
    ] {
        let ran = traced.run(&[&["trace", "--trace", folder], words].concat());
        assert!(ran.code == 2 && ran.stderr.contains(said), "{words:?}: {ran:?}");
    }
}

#[test]
fn a_folder_without_a_trace_is_refused_with_a_hint() {
    let traced = Traced::new();
    let here = traced.folder("nothing");
    let nothing = traced.run(&["trace", "profile"]);
    assert_eq!(nothing.code, 2);
    assert!(nothing.stderr.contains("hint: run `skopos up`"), "{nothing:?}");
    let absent = traced.run(&["trace", "profile", "--trace", here.to_str().expect("UTF-8")]);
    assert_eq!(absent.code, 2, "{absent:?}");
    std::fs::create_dir_all(&here).expect("our own");
    std::fs::write(here.join("a-1-1.sktrace"), [7; 4096]).expect("written");
    let foreign = traced.run(&["trace", "profile", "--trace", here.to_str().expect("UTF-8")]);
    assert_eq!(foreign.code, 2, "{foreign:?}");
    assert!(foreign.stderr.contains("does not describe a process"), "{foreign:?}");
    let folder = traced.write("a", 10);
    let folder = folder.to_str().expect("UTF-8");
    for id in ["0", "xyz", "1234567890abcdef"] {
        let ran = traced.run(&["trace", "show", id, "--trace", folder]);
        assert_eq!(ran.code, 2, "{ran:?}");
    }
    let share = traced.run(&["trace", "critical-path", "--faster", "200%", "--trace", folder]);
    assert!(share.stderr.contains("between 0 and 100 %"), "{share:?}");
}

#[test]
fn an_agent_collects_services_and_sql_has_their_calls() {
    let up = Running::start_as("up", &[]);
    let options = |name: &str| Options::new(name).node("n01").dir(up.path());
    let client = Recorder::start(options("client")).expect("a segment");
    let store = Recorder::start(options("store")).expect("a segment");
    for _ in 0..5 {
        request(client, store, 10);
    }
    let rows = |sql: &str| {
        let ran = up.run(&["sql", "--json", sql]);
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.json()["rows"].clone()
    };
    let count = "SELECT count(*) AS n FROM spans";
    eventually("all sides are collected", || rows(count)[0]["n"] == 20);
    let sql = "SELECT callpath, count(*) AS calls, min(duration_seconds) AS least FROM spans \
               WHERE side = 'target' GROUP BY callpath ORDER BY callpath";
    let found = rows(sql);
    assert_eq!(found[0]["callpath"], "store_get");
    assert_eq!(found[1]["callpath"], "store_get → disk_read");
    assert!(found[1]["least"].as_f64().expect("a number") >= 1e-5, "{found}");
    let paths = rows("SELECT name, calls, mean_seconds FROM callpaths ORDER BY depth");
    assert_eq!((&paths[0]["calls"], &paths[1]["name"]), (&5.into(), &"disk_read".into()));
    assert_eq!(rows("SELECT request FROM spans LIMIT 3").as_array().map(Vec::len), Some(3));
    // The table applies these conditions itself, so the limit reaches it.
    let targets = "FROM spans WHERE side IN ('target', 'x') AND callpath = 'store_get'";
    let found = rows(&format!("SELECT side, callpath {targets} LIMIT 3"));
    let row = serde_json::json!({"side": "target", "callpath": "store_get"});
    assert_eq!(found, Json::Array(vec![row; 3]));
    let plan = rows(&format!("EXPLAIN SELECT side {targets} LIMIT 3")).to_string();
    assert!(plan.contains("fetch=3") && !plan.contains("FilterExec"), "{plan}");
    assert_eq!(rows(&format!("SELECT count(*) AS n {targets}"))[0]["n"], 5);
    eventually("the agent counts them", || {
        let ran = up.run(&["get", "self/trace_records_total", "--plain"]);
        ran.code == 0 && ran.stdout.contains("20")
    });
    let profile = up.run(&["trace", "profile", "--json"]);
    assert_eq!(profile.json()["counts"]["targets"], 10, "{profile:?}");
    client.close().expect("its own segment");
    store.close().expect("its own segment");
}

#[test]
fn services_are_collected_without_an_agent() {
    let traced = Traced::new();
    let out = traced.folder("out");
    let out = out.to_str().expect("UTF-8");
    let collect = || traced.run(&["trace", "collect", "--out", out, "--for", "300ms"]);
    let none = collect();
    assert_eq!(none.code, 1, "{none:?}");
    let recorder = Recorder::start(Options::new("kv").dir(traced.dir.path())).expect("a segment");
    recorder.origin(recorder.rpc("put"), None).end(Status::Ok);
    let one = collect();
    assert_eq!(one.code, 0, "{one:?}");
    assert!(one.stderr.contains(" 1 services"), "{one:?}");
    let profile = traced.json(Path::new(out), &["profile"]);
    assert_eq!(profile["paths"][0]["calls"], 1);
    recorder.close().expect("its own segment");
}

#[test]
fn the_traces_of_a_task_are_kept_with_its_job() {
    let up = Running::start_as("up", &[]);
    let traced = Traced::new();
    let folder = traced.write("a", 10);
    let into = traced.folder("of-the-task");
    let script = format!("cp {}/* \"$SKOPOS_TRACE\"", folder.display());
    let into = into.to_str().expect("UTF-8");
    let ran = up.run(&["run", "--name", "copy", "--trace", into, "--", "sh", "-c", &script]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let again = up.run(&["run", "--trace", into, "--", "true"]);
    assert!(again.code == 2 && again.stderr.contains("has traces already"), "{again:?}");
    let without = traced.folder("without");
    let without = without.to_str().expect("UTF-8");
    let ran = up.run(&["run", "--trace", without, "--", "true"]);
    assert!(ran.code == 0 && ran.stderr.contains("no service of the task wrote"), "{ran:?}");
    let rows = |sql: &str| {
        let ran = up.run(&["sql", "--json", sql]);
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.json()["rows"].clone()
    };
    let mut job = String::new();
    eventually("the job is found", || {
        let found = rows("SELECT job FROM jobs WHERE application = 'copy'");
        found[0]["job"].as_str().unwrap_or_default().clone_into(&mut job);
        !job.is_empty()
    });
    let sql = format!(
        "SELECT job, callpath, max(missing_parts) AS missing, count(*) AS n FROM job_spans WHERE job = '{job}' AND side = 'target' \
         GROUP BY job, callpath ORDER BY callpath"
    );
    let found = rows(&sql);
    assert_eq!(found[1]["callpath"], "store_get → disk_read", "{found}");
    assert_eq!((&found[0]["n"], &found[0]["job"]), (&REQUESTS.into(), &job.into()));
    assert_eq!(found[0]["missing"], 0, "{found}");
    let all = up.run(&["sql", "SELECT count(*) FROM job_spans"]);
    assert!(all.code != 0 && all.stderr.contains("must name its jobs"), "{all:?}");
    assert_eq!(rows("SELECT count(*) AS n FROM spans")[0]["n"], 0, "they are not of the agent");
}

/// Returns a file that `scripts/setup test` fetches or builds.
pub(crate) fn fetched(name: &str) -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    let file = cache.join("skopos").join(name);
    file.exists().then_some(file)
}

/// A server that is killed at the end of its test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_real_zipkin_reads_an_export_back() {
    let Some(jar) = fetched("zipkin/zipkin-server.jar") else {
        eprintln!(
            "skipped: a_real_zipkin_reads_an_export_back: `scripts/setup test` fetches Zipkin"
        );
        return;
    };
    let port = free_port();
    let server = Command::new("java")
        .args(["-Xmx256m", "-jar"])
        .arg(jar)
        .env("QUERY_PORT", port.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(server) = server.map(Server) else {
        eprintln!("skipped: a_real_zipkin_reads_an_export_back: there is no java");
        return;
    };
    let traced = Traced::new();
    let folder = traced.write("a", 10);
    let folder = folder.to_str().expect("UTF-8");
    let exported = traced.run(&["trace", "export", "--format", "zipkin", "--trace", folder]);
    let at = |path: &str| format!("http://127.0.0.1:{port}{path}");
    let begun = std::time::Instant::now();
    while ureq::get(at("/health")).call().is_err() {
        // A virtual machine starts slowly where other programs run.
        assert!(begun.elapsed() < 3 * PATIENCE, "Zipkin does not start");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    let sent = ureq::post(at("/api/v2/spans")).content_type("application/json");
    assert_eq!(sent.send(&exported.stdout).expect("it takes them").status(), 202);
    let requests = traced.json(Path::new(folder), &["requests", "--limit", "1"]);
    let id = requests["requests"][0]["id"].as_str().expect("an id");
    let mut spans = Json::Null;
    eventually("the trace is there", || {
        let Ok(mut answer) = ureq::get(at(&format!("/api/v2/trace/{id}"))).call() else {
            return false;
        };
        spans =
            serde_json::from_str(&answer.body_mut().read_to_string().expect("text")).expect("JSON");
        spans.as_array().is_some_and(|spans| spans.len() == 4)
    });
    let spans = spans.as_array().expect("spans");
    let of = |kind: &str, name: &str| {
        let found = spans.iter().find(|span| span["kind"] == kind && span["name"] == name);
        found.unwrap_or_else(|| panic!("{kind} {name}: {spans:#?}"))
    };
    let (outer, inner) = (of("SERVER", "store_get"), of("CLIENT", "disk_read"));
    assert_eq!(inner["parentId"], outer["id"], "{spans:#?}");
    drop(server);
}

/// The configuration of a collector of OpenTelemetry that writes spans to a file.
fn collector(port: u16, spans: &Path) -> String {
    format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{port}\"}}}}}}}}\n\
         processors: {{batch: {{timeout: 100ms}}}}\n\
         exporters: {{file: {{path: \"{}\"}}}}\n\
         service:\n  telemetry: {{metrics: {{level: none}}}}\n  \
         pipelines: {{traces: {{receivers: [otlp], processors: [batch], exporters: [file]}}}}\n",
        spans.display()
    )
}

/// Returns the spans in the file of a collector, without a line that is not whole yet.
fn collected(file: &Path) -> Vec<Json> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Json>(line).ok());
    let list = |json: &Json, key: &str| json[key].as_array().cloned().unwrap_or_default();
    let resources = lines.flat_map(|line| list(&line, "resourceSpans"));
    let scopes = resources.flat_map(|resource| list(&resource, "scopeSpans"));
    scopes.flat_map(|scope| list(&scope, "spans")).collect()
}

#[test]
fn a_real_collector_reads_an_export_back() {
    let Some(program) = fetched("otelcol/otelcol") else {
        eprintln!(
            "skipped: a_real_collector_reads_an_export_back: `scripts/setup test` builds a collector"
        );
        return;
    };
    let traced = Traced::new();
    let folder = traced.write("a", 10);
    let folder = folder.to_str().expect("UTF-8");
    let (port, config, file) = (free_port(), traced.folder("otel.yaml"), traced.folder("spans"));
    std::fs::write(&config, collector(port, &file)).expect("written");
    let log = std::fs::File::create(traced.folder("otel.log")).expect("a file");
    let mut server = Command::new(program);
    server.arg("--config").arg(&config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let server = Server(server.spawn().expect("it starts"));
    eventually("the collector listens", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    let to = format!("http://127.0.0.1:{port}");
    let sent = traced.run(&["trace", "export", "--otlp-to", &to, "--trace", folder]);
    assert!(
        sent.code == 0 && sent.stderr.contains(&format!(" {} spans", 4 * REQUESTS)),
        "{sent:?}"
    );
    let mut spans = Vec::new();
    eventually("the spans are there", || {
        spans = collected(&file);
        spans.len() == 4 * REQUESTS
    });
    let requests = traced.json(Path::new(folder), &["requests", "--limit", "1"]);
    let id = &requests["requests"][0]["id"];
    let own: Vec<&Json> = spans.iter().filter(|span| span["traceId"] == *id).collect();
    // OTLP counts from 1: 2 is a server, 3 a client.
    let of = |kind: u64, name: &str| {
        let found = own.iter().find(|span| span["kind"] == kind && span["name"] == name);
        *found.unwrap_or_else(|| panic!("{kind} {name}: {own:#?}"))
    };
    let (call, serve) = (of(3, "store_get"), of(2, "store_get"));
    let (inner, disk) = (of(3, "disk_read"), of(2, "disk_read"));
    assert_eq!(own.len(), 4, "{own:#?}");
    assert_eq!(call["parentSpanId"].as_str().unwrap_or_default(), "", "it is the first call");
    for (below, above) in [(serve, call), (inner, serve), (disk, inner)] {
        assert_eq!(below["parentSpanId"], above["spanId"], "{own:#?}");
    }
    drop(server);
}

#[test]
fn statistics_of_margo_are_corrected() {
    let traced = Traced::new();
    let file = traced.folder("margo.n01.77.stats.json");
    let text = r#"{"address": "na+sm://77-0", "hostname": "n01", "pid": 77, "rpcs": {"65535:65535:5:1": {
        "rpc_id": 5, "provider_id": 1, "parent_rpc_id": 65535, "name": "put",
        "target": {"received from na+sm://12-0": {"ult": {"duration":
            {"num": 4, "min": 1.0, "max": 3.0, "avg": 2.0, "var": 2.0, "sum": 8.0}}}}}}}"#;
    std::fs::write(&file, text).expect("written");
    let file = file.to_str().expect("UTF-8");
    let json = traced.run(&["trace", "import", file, "--json"]).json();
    check("trace_import", &json);
    let variance = json["operations"][0]["statistic"]["variance"].as_f64().expect("a number");
    assert!((variance - 2.0 / 3.0).abs() < 1e-12, "{json}");
    let people = traced.run(&["trace", "import", file]);
    assert!(people.stdout.contains("put") && people.stdout.contains("2.0 s"), "{people:?}");
    let wrong = traced.run(&["trace", "import", "/dev/null"]);
    assert!(wrong.code == 2 && wrong.stderr.contains("stats.json"), "{wrong:?}");
}
