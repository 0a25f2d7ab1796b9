//! The hub's HTTP listener, with our own client and with Prometheus.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use jsonschema::Validator;
use serde_json::{Value as Json, json};

use crate::client::{ENDLESS, Got, Up, post, until_engine_rests};
use crate::json::check;
use crate::support::{Ran, Running, eventually, free_port, run, runtime_dir, skopos};

/// The description of its interface that a running server returns.
pub(crate) struct Description {
    document: Json,
}

impl Description {
    pub(crate) fn of(up: &Up) -> Self {
        Self { document: up.get("/api/v1/openapi.json").json() }
    }

    /// Panics unless the description covers this response.
    fn check(&self, method: &str, path: &str, got: &Got) {
        let answers = &self.document["paths"][path][method]["responses"];
        let mut answer = &answers[got.status.to_string()];
        assert!(answer.is_object(), "{method} {path} does not say that there is {}", got.status);
        if let Some(reference) = answer["$ref"].as_str() {
            answer = self.document.pointer(&reference[1..]).expect("a part");
        }
        self.check_as(&answer["content"]["application/json"]["schema"], &got.json());
    }

    fn check_as(&self, schema: &Json, document: &Json) {
        assert!(schema.is_object(), "no schema");
        let whole = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "components": self.document["components"],
            "allOf": [schema],
        });
        let validator: Validator = jsonschema::options().build(&whole).expect("a schema");
        let errors: Vec<String> = validator
            .iter_errors(document)
            .map(|e| format!("{}: {e}", e.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{errors:#?}\n{document:#}");
    }

    pub(crate) fn named(&self, name: &str, document: &Json) {
        self.check_as(&self.document["components"]["schemas"][name], document);
    }
}

#[test]
fn every_answer_is_as_the_description_says() {
    let up = Up::start();
    let says = Description::of(&up);
    assert_eq!(says.document["openapi"], "3.1.0");
    assert_eq!(up.agent.run(&["publish", "app/depth", "17"]).code, 0);
    assert_eq!(up.agent.run(&["publish", "app/list", "[1, {\"a\": null}]"]).code, 0);
    eventually("both topics are known", || {
        up.get("/api/v1/get?topic=app/*").json()["readings"]
            .as_array()
            .is_some_and(|r| r.len() == 2)
    });
    for (path, query, status) in [
        ("/healthz", "", 200),
        ("/api/v1/nodes", "", 200),
        ("/api/v1/openapi.json", "", 200),
        ("/api/v1/get", "?topic=**", 200),
        ("/api/v1/get", "?topic=app/depth&topic=n01/mem/*&max_age=1h", 200),
        ("/api/v1/get", "?topic=app/depth&topic=no/body&max_age=0s", 200),
        ("/api/v1/get", "?topic=app/deqth", 404),
        ("/api/v1/get", "?topic=Upper", 400),
        ("/api/v1/get", "", 400),
        ("/api/v1/estimate", "?class=nothing", 404),
        ("/api/v1/estimate", "", 400),
        ("/api/v1/estimate", "?class=a&resource=mem", 400),
        ("/api/v1/estimate", "?class=a&max_risk=2", 400),
        ("/api/v1/get", "?topic=app/depth&max_age=soon", 400),
        ("/api/v1/get", "?tpoic=app/depth", 400),
        ("/api/v1/watch", "", 400),
        ("/api/v1/watch", "?topic=app/deqth", 404),
        ("/api/v1/watch", "?sql=SELECT%20valu%20FROM%20latest", 400),
        ("/metrics", "?what=all", 400),
    ] {
        let got = up.get(&format!("{path}{query}"));
        assert_eq!(got.status, status, "{path}{query}: {}", got.text());
        says.check("get", path, &got);
    }
    answers_to_statements(&up, &says);
    let long = up.sql(&"x".repeat(1 << 20));
    assert_eq!(long.status, 413, "{}", long.text());
    says.check("post", "/api/v1/sql", &long);
    let wrong = up.sql("SELECT\n valu FROM latest").json();
    assert_eq!(
        wrong,
        json!({
            "error": "line 2, column 2: there is no column `valu`",
            "hint": "did you mean `value`?",
            "line": 2,
            "column": 2
        })
    );
    for (request, status) in
        [("GET /nowhere", 404), ("PUT /metrics", 405), ("OPTIONS /api/v1/sql", 405)]
    {
        let got = up.send(&format!("{request} HTTP/1.1\r\nconnection: close\r\n\r\n"));
        assert_eq!(got.status, status, "{request}");
        says.named("Refusal", &got.json());
    }
    assert!(up.count("http", "requests_refused_total") >= 17);
    eventually("the refusals are a fact", || {
        let facts = up.sql(
            "SELECT value FROM self WHERE topic = 'n01/self/listener/http/requests_refused_total'",
        );
        facts.json()["rows"][0]["value"].as_f64().is_some_and(|refused| refused >= 17.0)
    });
}

fn answers_to_statements(up: &Up, says: &Description) {
    let json = "application/json";
    for (kind, more, body, status) in [
        (
            json,
            "",
            r#"{"sql":"SELECT topic, value, time FROM latest WHERE topic LIKE 'n01/app/%'"}"#,
            200,
        ),
        (
            json,
            "",
            r#"{"sql":"SELECT node, count(*) AS n FROM latest GROUP BY node","rows":5}"#,
            200,
        ),
        ("application/sql; charset=utf-8", "accept: */*\r\n", "SELECT 1", 200),
        ("application/sql", "accept: text/html, application/json;q=0.1\r\n", "SELECT 1", 200),
        ("application/sql", "accept: text/html\r\n", "SELECT 1", 406),
        ("text/plain", "", "SELECT 1", 415),
        ("multipart/form-data", "", "SELECT 1", 415),
        ("application/x-www-form-urlencoded", "", "SELECT 1", 415),
        (json, "", "SELECT 1", 400),
        (json, "", r#"{"sql":"SELECT 1","row":1}"#, 400),
        ("application/sql", "", "SELECT\n valu FROM latest", 400),
        ("application/sql", "", "DELETE FROM latest", 400),
        (json, "", r#"{"sql":"SELECT topic FROM latest","rows":3}"#, 400),
        (
            json,
            "",
            r#"{"sql":"SELECT count(*) FROM generate_series(1, 1000000000000)","deadline_ms":50}"#,
            504,
        ),
        ("application/sql", "origin: http://evil.example\r\n", "SELECT 1", 403),
        ("application/sql", "sec-fetch-site: cross-site\r\n", "SELECT 1", 403),
    ] {
        let got = up.post(kind, more, body);
        assert_eq!(got.status, status, "{body}: {}", got.text());
        says.check("post", "/api/v1/sql", &got);
        if status == 200 {
            check("sql", &got.json());
        }
    }
}

#[test]
fn an_arrow_stream_has_the_same_rows() {
    let up = Up::start();
    let sql = "SELECT topic, unit, kind FROM latest WHERE topic LIKE 'n01/mem/%' ORDER BY topic";
    let got = up.post("application/sql", "accept: application/vnd.apache.arrow.stream\r\n", sql);
    assert_eq!(got.status, 200);
    assert!(got.head.contains("application/vnd.apache.arrow.stream"), "{}", got.head);
    let reader = arrow_ipc::reader::StreamReader::try_new(got.body.as_slice(), None);
    let rows: usize =
        reader.expect("a stream").map(|batch| batch.expect("a batch").num_rows()).sum();
    let told = up.sql(sql).json();
    assert_eq!(Some(rows), told["rows"].as_array().map(Vec::len));
    assert!(rows > 2, "{told}");
}

#[test]
fn changes_come_as_events() {
    let up = Up::start();
    let says = Description::of(&up);
    assert_eq!(up.agent.run(&["publish", "app/depth", "1"]).code, 0);
    eventually("the topic is known", || up.get("/api/v1/get?topic=app/depth").status == 200);
    let mut sent = 1;
    let events = up.watch("/api/v1/watch?topic=app/*", |_, data| {
        if sent < 4 && data["value"] == json!(f64::from(sent)) {
            sent += 1;
            assert_eq!(up.agent.run(&["publish", "app/depth", &sent.to_string()]).code, 0);
        } else if data["value"] == json!(4.0) {
            assert_eq!(up.agent.run(&["publish", "app/depth", "--remove"]).code, 0);
        }
        data.get("value").is_none()
    });
    let seen: Vec<_> = events.iter().map(|(name, data)| (name.as_str(), &data["value"])).collect();
    assert_eq!(
        seen,
        [
            ("change", &json!(1.0)),
            ("change", &json!(2.0)),
            ("change", &json!(3.0)),
            ("change", &json!(4.0)),
            ("gone", &Json::Null)
        ]
    );
    for (name, data) in &events {
        says.named(if name == "gone" { "Gone" } else { "Reading" }, data);
    }
    let sql = "SELECT%20topic,%20value%20FROM%20latest%20WHERE%20topic%20LIKE%20'n01/app/%25'";
    let mut step = 0;
    let events = up.watch(&format!("/api/v1/watch?sql={sql}"), |_, _| {
        step += 1;
        let args: &[&str] = match step {
            1 => &["publish", "app/a", "1"],
            2 => &["publish", "app/b", "2"],
            3 => &["publish", "app/a", "3"],
            4 => &["publish", "app/b", "--remove"],
            _ => return true,
        };
        assert_eq!(up.agent.run(args).code, 0);
        false
    });
    let row = |name: &str, value: f64| json!({"topic": format!("n01/app/{name}"), "value": value});
    let seen: Vec<_> = events.iter().map(|(_, d)| (&d["new"], &d["gone"], &d["rows"])).collect();
    assert_eq!(
        seen,
        [
            (&json!([]), &json!([]), &json!(0)),
            (&json!([row("a", 1.0)]), &json!([]), &json!(1)),
            (&json!([row("b", 2.0)]), &json!([]), &json!(2)),
            (&json!([row("a", 3.0)]), &json!([row("a", 1.0)]), &json!(2)),
            (&json!([]), &json!([row("b", 2.0)]), &json!(1)),
        ]
    );
    events.iter().for_each(|(_, data)| says.named("Rows", data));
}

#[test]
fn a_client_that_goes_away_ends_its_question() {
    let up = Up::start();
    for (at, sql) in ENDLESS.iter().enumerate() {
        let mut client = up.connect();
        client.write_all(post(&up.at, "application/sql", "", sql).as_bytes()).expect("sent");
        eventually("the statement runs", || up.count("http", "requests_running") == 1);
        client.shutdown(Shutdown::Both).expect("connected");
        drop(client);
        eventually("the statement ends", || up.count("http", "requests_running") == 0);
        assert_eq!(up.count("http", "requests_cancelled_total"), at as u64 + 1, "{sql}");
        until_engine_rests(&up.agent.child);

        let mut child = skopos(up.agent.path(), &["sql", sql]).spawn().expect("it starts");
        eventually("the statement runs", || up.count("unix", "requests_running") == 1);
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        eventually("the statement ends", || up.count("unix", "requests_running") == 0);
        assert_eq!(up.count("unix", "requests_cancelled_total"), at as u64 + 1, "{sql}");
        until_engine_rests(&up.agent.child);

        let late = up.agent.run(&["sql", "--timeout", "300ms", sql]);
        assert!(late.code == 2 && late.stderr.contains("no answer within 300ms"), "{late:?}");
    }
}

#[test]
fn a_question_that_stands_tells_what_is_new() {
    let agent = Running::start(&[]);
    watch_sql_of(&agent, |args| run(agent.path(), args));
    let up = Up::start();
    watch_sql_of(&up.agent, |args| run(up.agent.path(), args));
    let wrong = agent.run(&["watch", "--sql", "SELECT valu FROM latest"]);
    assert_eq!(
        (wrong.code, &*wrong.stderr),
        (2, "error: line 1, column 8: there is no column `valu`\nhint: did you mean `value`?\n")
    );
    assert_eq!(agent.run(&["watch", "--sql", "SELECT 1", "load/*"]).code, 2);
}

fn watch_sql_of(agent: &Running, run: impl Fn(&[&str]) -> Ran) {
    let sql = "SELECT value FROM latest WHERE topic = 'n01/app/depth'";
    assert_eq!(run(&["publish", "app/depth", "1"]).code, 0);
    let args = ["watch", "--json", "--sql", sql, "--count", "3", "--for", "60s"];
    let mut child = skopos(agent.path(), &args).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut next = || -> Json {
        let line = lines.next().expect("a line").expect("text");
        let document = serde_json::from_str(&line).expect("JSON");
        check("watch-sql", &document);
        document
    };
    let mut first = next();
    if first["rows"] == 0 {
        // The hub looks for new publishers once a second.
        first = next();
    }
    assert_eq!(first["new"], json!([{"value": 1.0}]));
    assert_eq!(run(&["publish", "app/depth", "2"]).code, 0);
    let second = next();
    assert_eq!(
        (&second["new"], &second["gone"]),
        (&json!([{"value": 2.0}]), &json!([{"value": 1.0}]))
    );
    let _ = child.kill();
    let _ = child.wait();
    let ran = run(&["watch", "--plain", "--sql", sql, "--count", "1"]);
    let fields: Vec<&str> = ran.stdout.trim().split('\t').collect();
    assert!(ran.code == 0 && fields.len() == 2 && fields[1] == "2.0", "{ran:?}");
    // `watch` repeats a statement that depends on the clock, and does not repeat the others.
    let timed =
        run(&["watch", "--json", "--sql", "SELECT now() AS t", "--every", "20ms", "--count", "4"]);
    assert_eq!((timed.code, timed.stdout.lines().count()), (0, 4), "{timed:?}");
    let still = run(&["watch", "--json", "--sql", "SELECT 1 AS one", "--for", "1s"]);
    assert_eq!((still.code, still.stdout.lines().count()), (0, 1), "{still:?}");
}

#[test]
fn a_taken_default_port_is_skipped_and_a_taken_address_is_an_error() {
    let dir = runtime_dir();
    let taken = std::net::TcpListener::bind("127.0.0.1:7470");
    let hub = |http: &[&str]| {
        let mut args = vec!["hub", "--look-on", "none"];
        args.extend(http);
        let mut child = skopos(dir.path(), &args);
        let mut child =
            child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        out.read_line(&mut line).expect("a line");
        (child, line)
    };
    let (mut child, line) = hub(&[]);
    assert!(!line.contains("http"), "the usual port is taken: {line}");
    let mut told = String::new();
    let mut errors = BufReader::new(child.stderr.take().expect("piped"));
    errors.read_line(&mut told).expect("a line");
    child.kill().and_then(|()| child.wait()).expect("it ran");
    assert_eq!(told, "error: cannot listen at http://127.0.0.1:7470\n");
    drop(taken);
    let (mut child, line) = hub(&["--http", "none"]);
    child.kill().and_then(|()| child.wait()).expect("it ran");
    assert!(line.starts_with("skopos hub") && !line.contains("http"), "{line}");
    for (http, said) in [
        ("127.0.0.1", "has no port: try `127.0.0.1:7470`"),
        ("localhost:1", "`localhost:1` is not an address"),
        ("192.0.2.1:1", "192.0.2.1:1 would answer everybody, in clear text"),
    ] {
        let ran = run(dir.path(), &["hub", "--look-on", "none", "--http", http]);
        assert!(ran.code == 2 && ran.stderr.contains(said), "{ran:?}");
    }
}

/// A pseudo-random generator that is the same in every run.
struct Dice(u64);

impl Dice {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below as u64) as usize
    }
}

/// Returns a request with a defect.
fn broken(dice: &mut Dice, at: &str) -> Vec<u8> {
    let sql = "SELECT topic, value FROM latest WHERE topic LIKE 'n01/load/%'";
    let whole = [
        post(at, "application/sql", "", sql),
        post(at, "application/json", "", &json!({"sql": sql, "rows": 5}).to_string()),
        format!(
            "GET /api/v1/get?topic=load/*&max_age=1s HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n\r\n"
        ),
        format!(
            "GET /metrics?topic=mem/** HTTP/1.1\r\nhost: {at}\r\naccept: application/openmetrics-text;q=0.5\r\nconnection: close\r\n\r\n"
        ),
        format!(
            "POST /api/v1/sql HTTP/1.1\r\nhost: {at}\r\ncontent-type: application/sql\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n8\r\nSELECT 1\r\n0\r\n\r\n"
        ),
    ];
    let mut bytes = whole[dice.next(whole.len())].clone().into_bytes();
    for _ in 0..=dice.next(4) {
        let place = dice.next(bytes.len().max(1));
        match dice.next(6) {
            0 if !bytes.is_empty() => bytes[place] = dice.next(256) as u8,
            1 if !bytes.is_empty() => drop(bytes.remove(place)),
            2 => bytes.truncate(place),
            3 => bytes.splice(place..place, (0..dice.next(40)).map(|n| n as u8 * 6)).for_each(drop),
            4 => bytes.splice(place..place, *b"\r\n").for_each(drop),
            _ => {
                let end = (place + dice.next(60)).min(bytes.len());
                let copy = bytes[place.min(end)..end].repeat(1 + dice.next(30));
                bytes.splice(place..place, copy).for_each(drop);
            }
        }
    }
    bytes
}

#[test]
fn thousands_of_malformed_requests_are_refused_counted_and_never_fatal() {
    let mut up = Up::start();
    let seed = 0x5eed_0001;
    let mut dice = Dice(seed);
    let before = up.count("http", "requests_refused_total");
    let mut refused = 0;
    for round in 0..3000 {
        let bytes = broken(&mut dice, &up.at);
        let mut stream = up.connect();
        // The hub may refuse a request early, and close the connection before it has read the rest.
        let _ = stream.write_all(&bytes).and_then(|()| stream.shutdown(Shutdown::Write));
        let mut got = Vec::new();
        let _ = stream.read_to_end(&mut got);
        let got = String::from_utf8_lossy(&got);
        let status: Option<u16> =
            got.strip_prefix("HTTP/1.1 ").and_then(|s| s.get(..3)?.parse().ok());
        match status {
            Some(200) | None => {}
            Some(400..=499 | 501..=505) => refused += 1,
            other => panic!(
                "round {round} of seed {seed:#x}: {other:?} to {}",
                String::from_utf8_lossy(&bytes)
            ),
        }
        assert!(
            up.agent.child.try_wait().expect("a child").is_none(),
            "round {round} of {seed:#x}"
        );
    }
    let counted = up.count("http", "requests_refused_total") - before;
    assert!(refused > 500 && counted >= refused, "{refused} were refused, {counted} counted");
    assert_eq!(up.sql("SELECT 1 AS one").json()["rows"], json!([{"one": 1}]));
}

#[test]
fn malformed_lines_at_the_unix_socket_are_refused_and_counted() {
    let up = Up::start();
    let mut dice = Dice(0x5eed_0002);
    let whole = json!({"sql": "SELECT 1", "rows": 5, "deadline_ms": 1000}).to_string();
    let socket = up.agent.path().join("hub.sock");
    let mut refused = 0;
    for _ in 0..500 {
        let mut bytes = whole.clone().into_bytes();
        for _ in 0..=dice.next(3) {
            let place = dice.next(bytes.len());
            bytes[place] = dice.next(256) as u8;
        }
        bytes.retain(|byte| *byte != b'\n');
        bytes.push(b'\n');
        let mut stream = UnixStream::connect(&socket).expect("it listens");
        stream.write_all(&bytes).expect("sent");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("a line");
        let head: Json = serde_json::from_str(&line).expect("JSON");
        refused += u64::from(head.get("error").is_some());
    }
    assert!(refused > 300, "{refused}");
    assert!(up.count("unix", "requests_refused_total") >= refused);
}

#[test]
fn one_connection_too_many_at_the_unix_socket_is_closed_and_counted() {
    /// The limit of the listener.
    const MAX_CONNECTIONS: u64 = 256;
    let up = Up::start();
    let connect = || UnixStream::connect(up.agent.path().join("hub.sock")).expect("it listens");
    let ask = json!({ "sql": "SELECT 1", "rows": 1, "deadline_ms": 60_000, "standing": true });
    let begin = || {
        let mut stream = connect();
        stream.write_all(format!("{ask}\n").as_bytes()).expect("sent");
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).expect("an answer");
        assert!(line.contains("\"rows\":1"), "{line}");
        stream
    };
    let open: Vec<UnixStream> = (0..MAX_CONNECTIONS).map(|_| begin()).collect();
    let refused = up.count("unix", "requests_refused_total");
    let mut line = String::new();
    BufReader::new(connect()).read_line(&mut line).expect("an end");
    assert!(line.contains("too many connections are open"), "{line}");
    assert_eq!(up.count("unix", "requests_refused_total"), refused + 1);
    drop(open);
    let is_served = || up.agent.run(&["sql", "--plain", "SELECT 1"]).stdout.trim() == "1";
    eventually("a connection is accepted again", is_served);
    let silent: Vec<UnixStream> = (0..MAX_CONNECTIONS).map(|_| connect()).collect();
    eventually("a silent connection makes room", is_served);
    drop(silent);
}

/// Another program of the system, killed on drop.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn has(program: &str) -> bool {
    let mut asked = Command::new(program);
    asked.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    let found = asked.status().is_ok_and(|status| status.success());
    if !found {
        println!("skipped: there is no {program}");
    }
    found
}

#[test]
fn promtool_understands_both_formats() {
    if !has("promtool") {
        return;
    }
    let up = Up::start();
    assert_eq!(up.agent.run(&["publish", "my-app/queue-depth", "17"]).code, 0);
    eventually("the fact is exported", || {
        up.get("/metrics").text().contains("skopos_my_app_queue_depth{")
    });
    let text = up.get("/metrics");
    assert!(text.head.contains("text/plain; version=0.0.4"), "{}", text.head);
    let mut tool = Command::new("promtool");
    let tool = tool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut tool = tool.stderr(Stdio::piped()).spawn().expect("it starts");
    tool.stdin.take().expect("piped").write_all(&text.body).expect("taken");
    let ran = tool.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
    // promtool exits with 3 where it would have chosen other names.
    assert!(matches!(ran.status.code(), Some(0 | 3)) && !said.contains("error"), "{said}");
    let known = ["skopos_fsinfo_device_count ", "skopos_self_counter_resets_total "];
    let others: Vec<_> = said.lines().filter(|l| !known.iter().any(|k| l.starts_with(k))).collect();
    assert!(others.is_empty(), "{others:#?}");
    let open = up.send(&format!(
        "GET /metrics?topic=mem/* HTTP/1.1\r\nhost: {}\r\naccept: application/openmetrics-text;version=1.0.0\r\nconnection: close\r\n\r\n",
        up.at
    ));
    assert!(open.head.contains("application/openmetrics-text; version=1.0.0"), "{}", open.head);
    assert!(
        open.text().ends_with("# EOF\n")
            && open.text().contains("# UNIT skopos_mem_total_bytes bytes\n")
    );
    assert!(!open.text().contains("skopos_load"), "only the requested fact is exported");
}

#[test]
fn prometheus_scrapes_the_hub() {
    if !has("prometheus") {
        return;
    }
    let up = Up::start();
    assert_eq!(up.agent.run(&["publish", "app/depth", "17"]).code, 0);
    let dir = runtime_dir();
    let config = dir.path().join("prometheus.yml");
    let at = &up.at;
    let text = format!(
        "scrape_configs:\n- job_name: skopos\n  scrape_interval: 1s\n  static_configs:\n  - targets: ['{at}']\n"
    );
    std::fs::write(&config, text).expect("written");
    let listen = format!("127.0.0.1:{}", free_port());
    let flag = |name: &str, value: &Path| format!("--{name}={}", value.display());
    let prometheus = Command::new("prometheus")
        .arg(flag("config.file", &config))
        .arg(flag("storage.tsdb.path", &dir.path().join("data")))
        .arg(format!("--web.listen-address={listen}"))
        .stderr(Stdio::null())
        .spawn();
    let _prometheus = Other(prometheus.expect("it starts"));
    let ask = |query: &str| -> Option<Json> {
        let mut stream = TcpStream::connect(&listen).ok()?;
        let path = format!("/api/v1/query?query={query}");
        write!(stream, "GET {path} HTTP/1.0\r\nhost: {listen}\r\n\r\n").ok()?;
        let mut got = String::new();
        stream.read_to_string(&mut got).ok()?;
        serde_json::from_str(got.split_once("\r\n\r\n")?.1).ok()
    };
    let value = |query: &str| ask(query).map(|got| got["data"]["result"][0]["value"][1].clone());
    eventually("Prometheus has the published value", || {
        value("skopos_app_depth") == Some(json!("17"))
    });
    let total = up.get("/api/v1/get?topic=mem/total_bytes").json();
    let total = total["readings"][0]["value"].as_u64().map(|bytes| json!(bytes.to_string()));
    assert_eq!(value("skopos_mem_total_bytes{node=\"n01\"}"), total);
    assert_eq!(value("up{job=\"skopos\"}"), Some(json!("1")), "every scrape was understood");
    eventually("rates of counters can be queried", || {
        let got = ask("rate(skopos_self_cpu_seconds_total[1m])").unwrap_or_default();
        got["data"]["result"][0]["value"][1].as_str().is_some_and(|rate| rate != "0")
    });
}

/// The requests that Chromium sends for a page of another site, as it sends them.
#[test]
fn a_page_in_a_browser_gets_nothing() {
    let up = Up::start();
    let agent = "user-agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
                 Chrome/142.0.0.0 Safari/537.36\r\naccept: */*\r\naccept-encoding: gzip, deflate\r\n";
    let statement = "SELECT 1";
    let post = |host: &str, kind: &str, more: &str| {
        let length = statement.len();
        format!(
            "POST /api/v1/sql HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{agent}content-type: {kind}\r\n\
             content-length: {length}\r\n{more}\r\n{statement}"
        )
    };
    let get = |host: &str, path: &str, more: &str| {
        format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{agent}{more}\r\n")
    };
    let at = up.at.as_str();
    let cross = "origin: http://evil.example\r\nsec-fetch-site: cross-site\r\nsec-fetch-mode: no-cors\r\n\
                 sec-fetch-dest: empty\r\nreferer: http://evil.example/\r\n";
    let form = "origin: http://evil.example\r\nsec-fetch-site: cross-site\r\nsec-fetch-mode: navigate\r\n\
                sec-fetch-user: ?1\r\nsec-fetch-dest: document\r\n";
    let image =
        "sec-fetch-site: cross-site\r\nsec-fetch-mode: no-cors\r\nsec-fetch-dest: image\r\n";
    // After DNS rebinding the browser takes hub and page for one site.
    let rebound =
        "sec-fetch-site: same-origin\r\nsec-fetch-mode: cors\r\nsec-fetch-dest: empty\r\n";
    let preflight = "origin: http://evil.example\r\nsec-fetch-mode: cors\r\nsec-fetch-site: cross-site\r\n\
                     access-control-request-method: POST\r\naccess-control-request-headers: content-type\r\n";
    let evil = "evil.example:7470";
    let before = up.count("http", "requests_refused_total");
    let requests = [
        post(at, "text/plain;charset=UTF-8", cross),
        post(at, "application/x-www-form-urlencoded", form),
        post(at, "text/plain", form),
        // An old browser without these headers: the content type alone.
        post(at, "text/plain", ""),
        post(at, "application/json", cross),
        post(at, "application/sql", "origin: null\r\nsec-fetch-site: cross-site\r\n"),
        get(at, "/api/v1/get?topic=**", image),
        get(at, "/api/v1/watch?topic=**", cross),
        get(at, "/metrics", image),
        get(evil, "/api/v1/get?topic=**", rebound),
        post(evil, "application/json", &format!("origin: http://{evil}\r\n{rebound}")),
        get(&format!("localhost.{evil}"), "/metrics", rebound),
        get("0.0.0.0:7470", "/metrics", rebound),
        get(at, "/api/v1/sql", "").replace("GET", "OPTIONS").replace("accept: */*\r\n", preflight),
    ];
    for request in &requests {
        let got = up.send(request);
        assert!([403, 415].contains(&got.status), "{} to {request}", got.status);
        let head = got.head.to_ascii_lowercase();
        assert!(!head.contains("access-control-allow"), "{head}");
        assert!(got.json()["error"].is_string(), "{}", got.text());
    }
    assert_eq!(up.count("http", "requests_refused_total"), before + requests.len() as u64);
    // Its own address, typed into the browser, and a page of the hub itself.
    let typed = "sec-fetch-site: none\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\n";
    assert_eq!(up.send(&get(at, "/healthz", typed)).status, 200);
    let port = at.rsplit(':').next().expect("a port");
    assert_eq!(up.send(&get(&format!("localhost:{port}"), "/healthz", rebound)).status, 200);
}

#[test]
fn a_hub_answers_to_its_configured_names() {
    let dir = runtime_dir();
    let file = dir.path().join("skopos.toml");
    let check = |hosts: &str, works: bool| {
        std::fs::write(&file, format!("[hub]\nhosts = {hosts}\n")).expect("written");
        let config = file.to_str().expect("UTF-8");
        let ran = run(dir.path(), &["hub", "--config", config, "--http", "192.0.2.1:1"]);
        let is_refused = ran.stderr.contains("is not the name of a host");
        assert_eq!(!is_refused, works, "{ran:?}");
    };
    check(r#"["hub1.example", "10.0.0.9", "fd00::1"]"#, true);
    for wrong in [r#"["http://hub1"]"#, r#"["hub1:7470"]"#, r#"[""]"#, r#"["a b"]"#] {
        check(wrong, false);
    }
}
