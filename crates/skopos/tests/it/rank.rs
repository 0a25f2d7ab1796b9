//! Rankings: from facts of nodes to the order that clients read, by every way.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Value as Json, json};

use crate::client::Up;
use crate::docs_examples::blocks;
use crate::http::Description;
use crate::json::check;
use crate::sql::Hub;
use crate::support::{Running, eventually, run, runtime_dir};

/// Candidates whose queues are user facts, which grow old slowly here.
pub(crate) const CONFIG: &str = r#"
[[rank]]
candidates = ["n02", "n03", "10.0.0.4:9042"]
every = "200ms"
[rank.profile]
name = "reads"
method = "given"
[[rank.profile.metrics]]
name = "queue"
topic = "{self}/app/{candidate}/queue"
floor = 1.0
max_age_seconds = 3600
[[rank.profile.metrics]]
name = "rtt"
topic = "{self}/app/{candidate}/rtt_seconds"
floor = 1e-4
max_age_seconds = 3600
"#;

const CANDIDATES: [&str; 3] = ["n02", "n03", "10.0.0.4:9042"];

pub(crate) fn configured(dir: &Path, text: &str) -> String {
    let path = dir.join("skopos.toml");
    std::fs::write(&path, text).expect("writable");
    path.to_str().expect("UTF-8").to_owned()
}

fn publish(agent: &Running, values: [(f64, f64); 3]) {
    for (candidate, (queue, rtt)) in CANDIDATES.into_iter().zip(values) {
        for (metric, value) in [("queue", queue), ("rtt_seconds", rtt)] {
            let topic = format!("app/{candidate}/{metric}");
            assert_eq!(agent.run(&["publish", &topic, &value.to_string()]).code, 0);
        }
    }
}

pub(crate) fn ranking(agent: &Running) -> Json {
    let ran = agent.run(&["rank", "--profile", "reads", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.json()
}

fn order(of: &Json) -> Vec<&str> {
    let candidates = of["candidates"].as_array().expect("candidates");
    candidates.iter().map(|c| c["candidate"].as_str().expect("a name")).collect()
}

/// Returns true if every value of every candidate is known.
fn are_known(ranking: &Json) -> bool {
    let mut candidates = ranking["candidates"].as_array().expect("candidates").iter();
    candidates.all(|c| c["trust"].as_f64().is_some_and(|trust| trust > 0.999))
}

/// Waits until the agent ranks by the published values.
fn ranked_as(agent: &Running, expected: [&str; 3]) -> Json {
    eventually("the ranking has this order", || {
        let ranking = ranking(agent);
        order(&ranking) == expected && are_known(&ranking)
    });
    ranking(agent)
}

#[test]
fn a_ranking_is_the_same_in_the_segment_in_sql_by_http_and_by_the_verb() {
    let dir = runtime_dir();
    let config = configured(dir.path(), CONFIG);
    let up = Up::start_with(dir, &["--config", &config]);
    publish(&up.agent, [(9.0, 0.001), (1.0, 0.001), (1.0, 0.004)]);
    let shown = ranked_as(&up.agent, ["n03", "10.0.0.4:9042", "n02"]);
    check("rank", &shown);
    for candidate in shown["candidates"].as_array().expect("candidates") {
        let parts = candidate["parts"].as_array().expect("parts").iter();
        let sum: f64 = parts.map(|part| part["part"].as_f64().expect("a number")).sum();
        assert!((sum - candidate["score"].as_f64().expect("a score")).abs() < 1e-9, "{candidate}");
    }
    let first = &shown["candidates"][0];
    let read = up.agent.run(&["get", "--json", "rank/reads@n03/weight"]).json();
    assert_eq!(read["readings"][0]["value"], first["weight"]);
    let sql =
        "SELECT place, candidate, weight, state FROM ranks WHERE profile = 'reads' ORDER BY place";
    eventually("the table has the ranks", || {
        let rows = up.agent.run(&["sql", "--json", sql]).json()["rows"].clone();
        rows.as_array().is_some_and(|rows| {
            let names: Vec<&Json> = rows.iter().map(|row| &row["candidate"]).collect();
            names == ["n03", "10.0.0.4:9042", "n02"]
                && rows[0]["weight"] == first["weight"]
                && rows.iter().all(|row| row["state"] == "known")
        })
    });
    let mut got = Json::Null;
    eventually("the hub has the reasons", || {
        got = up.get("/api/v1/ranks/reads").json();
        got["candidates"][2]["reasons"][0]
            .as_str()
            .is_some_and(|reason| reason.starts_with("queue +"))
    });
    Description::of(&up).named("Ranking", &got);
    assert_eq!(order(&got), ["n03", "10.0.0.4:9042", "n02"]);
    assert_eq!((&got["node"], &got["valid_seconds"]), (&json!("n01"), &json!(1.0)));
    assert_eq!(got["candidates"][0]["weight"], first["weight"]);
    let explained = up.agent.run(&["rank", "n02", "--explain"]);
    assert!(explained.stdout.contains("3. n02"), "{explained:?}");
    assert!(explained.stdout.contains("queue") && explained.stdout.contains("value 9"));
    let plain = up.agent.run(&["rank", "--plain"]).stdout;
    assert!(plain.starts_with("1\tn03\t"), "{plain}");
}

#[test]
fn a_machine_without_an_agent_asks_a_hub_for_a_ranking() {
    let dir = runtime_dir();
    let config = configured(dir.path(), CONFIG);
    let up = Up::start_with(dir, &["--config", &config]);
    publish(&up.agent, [(9.0, 0.001), (1.0, 0.001), (1.0, 0.004)]);
    ranked_as(&up.agent, ["n03", "10.0.0.4:9042", "n02"]);
    let (elsewhere, url) = (runtime_dir(), format!("http://{}", up.at));
    let ask = |args: &[&str]| {
        let words = ["rank", "--profile", "reads", "--hub", &url];
        run(elsewhere.path(), &[&words[..], args].concat())
    };
    let mut got = Json::Null;
    eventually("the hub has the ranking with its reasons", || {
        let ran = ask(&["--json"]);
        if ran.code != 0 {
            return false;
        }
        got = ran.json();
        order(&got) == ["n03", "10.0.0.4:9042", "n02"]
            && are_known(&got)
            && got["candidates"][2]["reasons"][0].is_string()
    });
    check("rank_hub", &got);
    assert_eq!(got["node"], "n01");
    assert_eq!(order(&ask(&["--node", "n01", "--json", "n02"]).json()), ["n02"]);
    assert!(ask(&["--plain"]).stdout.starts_with("1\tn03\t"));
    let human = ask(&[]).stdout;
    assert!(human.contains("ranked by n01") && human.contains("queue +"), "{human}");
    let token = elsewhere.path().join("token");
    std::fs::write(&token, "secret").expect("written");
    let token = token.to_str().expect("UTF-8");
    for (args, expected) in [
        (&["n99"][..], "`n99` is not a candidate of `reads`"),
        (&["--node", "n09"][..], "the node `n09` does not rank the profile `reads`"),
        (&["--token-file", token][..], "a token is not sent in clear text"),
    ] {
        let ran = ask(args);
        assert!(ran.code == 2 && ran.stderr.contains(expected), "{ran:?}");
        assert!(ran.stderr.contains("hint:"), "{ran:?}");
    }
    let asked = |hub: &str| run(elsewhere.path(), &["rank", "--profile", "reads", "--hub", hub]);
    assert!(asked("hub1:7470").stderr.contains("is not the URL of a hub"));
    assert!(asked("http://127.0.0.1:1").stderr.contains("the hub does not answer"));
    // The parts of a score are with the agent alone.
    assert_eq!(ask(&["--explain"]).code, 2);
}

#[test]
fn requests_for_what_is_not_ranked_have_hints() {
    let dir = runtime_dir();
    let config = configured(dir.path(), CONFIG);
    let up = Up::start_with(dir, &["--config", &config]);
    let hints = |args: &[&str]| {
        let ran = up.agent.run(args);
        assert_ne!(ran.code, 0, "{ran:?}");
        assert!(ran.stderr.contains("hint:"), "{ran:?}");
        ran.stderr
    };
    assert!(hints(&["rank", "--profile", "raeds"]).contains("did you mean `reads`?"));
    assert!(hints(&["rank", "n99"]).contains("`n99` is not a candidate"));
    assert!(hints(&["rank", "report", "n99", "0.1"]).contains("not a candidate"));
    assert!(hints(&["rank", "report", "n02", "nan"]).contains("`NaN` is not a latency"));
    assert!(hints(&["rank", "report", "n02", "1e7"]).contains("is not a latency"));
    let unlikely = hints(&["rank", "report", "n02", "0.1", "--probability", "nan"]);
    assert!(unlikely.contains("is not the probability"), "{unlikely}");
    let recorded = up.agent.path().join("recorded.jsonl");
    let header = "{\"version\":1,\"metrics\":[\"queue\",\"rtt\"]}\n";
    std::fs::write(&recorded, header).expect("written");
    let recorded = recorded.to_str().expect("UTF-8");
    let replay = |profile: &str| {
        let args = ["rank", "replay", "--recorded", recorded, "--config", &config];
        hints(&[&args[..], &["--profile", profile]].concat())
    };
    assert!(replay("reads").contains("has no whole request"));
    let weightless = up.agent.path().join("weightless.toml");
    let text = "name = 'w'\nmethod = 'given'\n[[metrics]]\nname = 'rtt'\nfloor = 1\nweight = 0\n";
    std::fs::write(&weightless, text).expect("written");
    let refused = replay(weightless.to_str().expect("UTF-8"));
    assert!(refused.starts_with("error: ") && refused.contains("weightless.toml"), "{refused}");
    assert!(!refused.contains("recorded.jsonl"), "the recording has no fault: {refused}");
    assert!(hints(&["rank", "replay", "--recorded", "/none", "--profile", "x"]).contains("`x`"));
    assert!(hints(&["publish", "rank/reads@n02/weight", "1"]).contains("only the agent publishes"));
    for (path, status) in [("nothing", 404), ("reads?node=n09", 404), ("reads?nod=n01", 400)] {
        assert_eq!(up.get(&format!("/api/v1/ranks/{path}")).status, status, "{path}");
    }
    let alone = runtime_dir();
    let ran = run(alone.path(), &["rank"]);
    assert!(ran.code == 2 && ran.stderr.contains("hint:"), "{ran:?}");
    let unranked = Running::start(&[]);
    let ran = unranked.run(&["rank"]);
    assert!(ran.stderr.contains("this agent ranks nothing"), "{ran:?}");
}

#[test]
fn a_configuration_that_is_not_valid_is_refused() {
    for (from, to, expected) in [
        ("floor = 1.0", "floor = 0.0", "it must be above zero"),
        ("\"n02\", ", "\"n03\", ", "the candidate `n03` occurs twice"),
        ("name = \"rtt\"", "name = \"rtt\"\nweight = nan", "weight` is NaN"),
    ] {
        let dir = runtime_dir();
        let config = configured(dir.path(), &CONFIG.replacen(from, to, 1));
        let ran = run(dir.path(), &["agent", "--for", "100ms", "--config", &config]);
        assert!(ran.code == 2 && ran.stderr.contains(expected), "{ran:?}");
        assert!(ran.stderr.contains("hint:") && ran.stderr.contains("skopos.toml"), "{ran:?}");
    }
}

#[test]
fn outcomes_in_batches_are_learned_recorded_and_replayed() {
    let dir = runtime_dir();
    let record = dir.path().join("reads.jsonl");
    let text = CONFIG.replacen("method = \"given\"", "method = \"learned\"", 1).replacen(
        "[rank.profile]",
        &format!("record = {record:?}\n[rank.profile]"),
        1,
    );
    let config = configured(dir.path(), &text);
    let agent = Running::start_in(dir, "agent", &["--config", &config]);
    // The queue says nothing about the latency, and the round-trip time everything.
    publish(&agent, [(0.0, 0.004), (8.0, 0.001), (0.0, 0.004)]);
    eventually("all are known", || are_known(&ranking(&agent)));
    let outcome = |candidate, seconds| json!({ "candidate": candidate, "seconds": seconds });
    let both = [outcome("n02", 0.004), outcome("n03", 0.001)];
    let batch: Vec<&Json> = both.iter().cycle().take(256).collect();
    for _ in 0..4 {
        let answer =
            ask(&agent, &json!({ "verb": "outcomes", "profile": "reads", "outcomes": batch }));
        assert_eq!(answer["outcomes"]["taken"], 256, "{answer}");
    }
    let report = ["rank", "report", "--profile", "reads", "n03", "0.001", "--json"];
    check("rank_report", &agent.run(&report).json());
    eventually("the learned weights put another candidate first", || {
        order(&ranking(&agent))[0] == "n03"
    });
    let shown = ranking(&agent);
    let weight = |name: &str| {
        let metrics = shown["metrics"].as_array().expect("metrics");
        let metric = metrics.iter().find(|metric| metric["name"] == name).expect("it");
        metric["weight"].as_f64().expect("a number")
    };
    assert!(weight("rtt") > 0.8, "{shown}");
    assert_eq!((&shown["outcomes_total"], &shown["record_error"]), (&json!(1025), &Json::Null));
    let recorded = shown["recorded_total"].as_u64().expect("a number");
    assert!(recorded >= 64, "{shown}");
    let record = record.to_str().expect("UTF-8");
    let replay = |profile: &str| {
        let args = ["rank", "replay", "--recorded", record, "--profile", profile];
        let ran = agent.run(&[&args[..], &["--config", &config, "--json"]].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        check("rank_replay", &ran.json());
        ran.json()
    };
    let by_name = replay("reads");
    assert_eq!(by_name["requests"], recorded);
    let other = agent.path().join("rtt.toml");
    let profile = "name = \"rtt\"\nmethod = \"given\"\n[[metrics]]\nname = \"rtt\"\nfloor = 1e-4\n";
    std::fs::write(&other, profile).expect("writable");
    let by_file = replay(other.to_str().expect("UTF-8"));
    let cost = |replayed: &Json| replayed["estimated_seconds"].as_f64().expect("an estimate");
    assert!(cost(&by_file) < cost(&by_name), "{by_file} {by_name}");
}

/// Sends a request to the control socket as another program would.
fn ask(agent: &Running, request: &Json) -> Json {
    let mut stream = UnixStream::connect(agent.path().join("agent.sock")).expect("it listens");
    writeln!(stream, "{request}").expect("sent");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("an answer");
    serde_json::from_str(&line).expect("JSON")
}

#[test]
fn facts_of_other_nodes_are_mirrored_for_a_ranking_and_the_hub_of_the_site_has_the_ranks() {
    let hub = Hub::start();
    let live = ["--live", "--insecure", "--connect", &hub.at];
    let there = Running::start(&[&["--node", "a1"], &live[..]].concat());
    let dir = runtime_dir();
    let text = r#"
        [[rank]]
        candidates = ["a1", "a2"]
        [rank.profile]
        name = "reads"
        [[rank.profile.metrics]]
        name = "queue"
        topic = "{node}/app/queue"
        floor = 1.0
        max_age_seconds = 3600
    "#;
    let config = configured(dir.path(), text);
    let args = [&["--node", "a2", "--config", &config], &live[..]].concat();
    let mut here = Running::start_in(dir, "agent", &args);
    assert_eq!(there.run(&["publish", "app/queue", "1"]).code, 0);
    assert_eq!(here.run(&["publish", "app/queue", "9"]).code, 0);
    let sql = "SELECT node, candidate FROM ranks WHERE place = 1 AND trust = 1";
    eventually("the fact of the other node is ranked", || {
        hub.ask(sql) == json!([{ "node": "a2", "candidate": "a1" }])
    });
    // The other node dies: its value stays until it is too old, and the agent's own end leaves the last ranks to grow old.
    here.kill();
    let late =
        "SELECT count(*) > 0 AS late FROM ranks WHERE checked_at < now() - INTERVAL '3 seconds'";
    eventually("the ranks are late", || hub.ask(late) == json!([{ "late": true }]));
}

/// The program of the page.
#[rustfmt::skip]
fn program_of_the_page() -> Result<(), Box<dyn std::error::Error>> {
    // The page begins.
    use std::time::Duration;
    use skopos_shm::{Host, Reader};

    let host = Host::open()?;
    let weight: Reader<f64> = host.reader("rank/reads@n02/weight")?;
    // An error if the agent has not ranked for five seconds.
    println!("{}", weight.fresh(Duration::from_secs(5))?);
    // The page ends.
    Ok(())
}

#[test]
fn the_page_on_ranks_is_a_configuration_and_its_programs_read_ranks() {
    let _compiled = program_of_the_page;
    let page = blocks("howto/rank-replicas.md");
    let text = |language: &str| {
        let block = page.iter().find(|block| block.language == language).expect(language);
        block.lines.join("\n")
    };
    let own = include_str!("rank.rs");
    let (_, own) = own.split_once("// The page begins.\n").expect("a mark");
    let (own, _) = own.split_once("// The page ends.\n").expect("a mark");
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(own), words(&text("rust")));

    let dir = runtime_dir();
    let config = configured(dir.path(), &text("toml"));
    let agent = Running::start_in(dir, "agent", &["--config", &config]);
    eventually("the agent ranks", || agent.run(&["rank", "--profile", "reads"]).code == 0);
    let segment = agent.path().join("agent.seg");
    let python =
        text("python").replace("/dev/shm/skopos-1000/agent.seg", segment.to_str().expect("UTF-8"));
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/python");
    let mut program = std::process::Command::new("python3");
    program.args(["-c", &python]).env("PYTHONPATH", clients);
    match program.env("PYTHONDONTWRITEBYTECODE", "1").output() {
        Err(e) => println!("skipped: python3: {e}"),
        Ok(ran) => {
            let weight: f64 =
                String::from_utf8_lossy(&ran.stdout).trim().parse().expect("a weight");
            assert!(ran.status.success() && (0.0..=1.0).contains(&weight), "{ran:?}");
        }
    }
}
