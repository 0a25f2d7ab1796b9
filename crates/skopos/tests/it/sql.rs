//! SQL statements on one machine, and on a hub with several nodes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::json::check;
use crate::support::{Ran, Running, eventually, free_port, listeners, run, runtime_dir, skopos};

fn rows(ran: &Ran) -> Json {
    assert_eq!(ran.code, 0, "{ran:?}");
    let document = ran.json();
    check("sql", &document);
    document["rows"].clone()
}

#[test]
fn one_machine_answers_without_a_hub() {
    let agent = Running::start(&[]);
    assert_eq!(agent.run(&["publish", "app/depth", "17"]).code, 0);
    let ask = |sql: &str| agent.run(&["sql", "--json", sql]);
    let point = ask("SELECT topic, value FROM latest WHERE topic = 'n01/app/depth'");
    assert_eq!(rows(&point), json!([{"topic": "n01/app/depth", "value": 17.0}]));
    assert_eq!(point.json()["way"], "point");
    let papers = ask(
        "SELECT MAX(timestamp), metric FROM n01_app_depth UNION SELECT MAX(timestamp), metric FROM n01_mem_total_bytes",
    );
    assert_eq!(
        (rows(&papers).as_array().map(Vec::len), &papers.json()["way"]),
        (Some(2), &json!("point"))
    );
    let joined = ask(
        "SELECT a.available_bytes <= a.total_bytes AS ok FROM mem a JOIN nodes n ON a.node = n.node WHERE n.alive",
    );
    assert_eq!(rows(&joined), json!([{"ok": true}]));
    assert_eq!(joined.json()["way"], "planned");
    assert_eq!(rows(&ask("SELECT topic FROM latest WHERE topic = 'no/body'")), json!([]));
}

#[test]
fn every_format_has_the_same_cells() {
    let agent = Running::start(&[]);
    assert_eq!(agent.run(&["publish", "app/a", "1.5"]).code, 0);
    let sql = "SELECT node, value, text FROM latest WHERE topic = 'n01/app/a'";
    for (format, expected) in [
        ("csv", "node,value,text\nn01,1.5,\n"),
        ("plain", "n01\t1.5\t\n"),
        ("md", "| node | value | text |\n| --- | ---: | --- |\n| n01 | 1.5 |  |\n"),
    ] {
        let ran = agent.run(&["sql", "--format", format, sql]);
        assert_eq!((ran.code, &*ran.stdout), (0, expected), "{format}");
    }
    let table = agent.run(&["sql", sql]).stdout;
    assert!(table.starts_with("node  value  text\nn01     1.5  NULL\n1 row in "), "{table}");
    let mut child = skopos(agent.path(), &["sql", "--plain"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("piped").write_all(sql.as_bytes()).expect("written");
    assert_eq!(child.wait_with_output().expect("it ends").stdout, b"n01\t1.5\t\n");
}

#[test]
fn mistakes_say_where_and_what_instead() {
    let agent = Running::start(&[]);
    for (sql, error) in [
        (
            "SELECT valu FROM latest",
            "error: line 1, column 8: there is no column `valu`\nhint: did you mean `value`?\n",
        ),
        (
            "DELETE FROM latest",
            "error: `DELETE` is not a query, and only queries are answered\nhint: begin with SELECT, WITH, EXPLAIN or SHOW TABLES\n",
        ),
        (
            "SELECT *\nFROM mem WHERE",
            "error: line 2, column 15: Expected: an expression, found: EOF\n",
        ),
    ] {
        let ran = agent.run(&["sql", sql]);
        assert_eq!((ran.code, &*ran.stderr, &*ran.stdout), (2, error, ""), "{sql}");
    }
    let many = agent.run(&["sql", "--max-rows", "3", "SELECT topic FROM latest"]);
    assert_eq!(
        (many.code, many.stderr.lines().next()),
        (2, Some("error: the answer has more than 3 rows"))
    );
    let nobody = run(runtime_dir().path(), &["sql", "SELECT 1"]);
    assert!(nobody.code == 2 && nobody.stderr.contains("nothing is running"), "{nobody:?}");
}

/// A hub on a port of its own that does not search for nodes.
pub(crate) struct Hub {
    pub(crate) dir: TempDir,
    pub(crate) child: Child,
    pub(crate) at: String,
}

impl Hub {
    pub(crate) fn start() -> Self {
        Self::with("")
    }

    /// Starts a hub with this configuration.
    pub(crate) fn with(config: &str) -> Self {
        Self::asked_at(config, &[])
    }

    /// Starts a hub with this configuration and these options.
    pub(crate) fn asked_at(config: &str, more: &[&str]) -> Self {
        let port = free_port();
        let (dir, at) = (runtime_dir(), format!("tcp/127.0.0.1:{port}"));
        std::fs::write(dir.path().join("skopos.toml"), config).expect("written");
        let child = Self::child_asked_at(dir.path(), &at, more);
        Self { dir, child, at }
    }

    pub(crate) fn child(dir: &Path, at: &str) -> Child {
        Self::child_asked_at(dir, at, &[])
    }

    /// Starts the process of a hub with these options.
    pub(crate) fn child_asked_at(dir: &Path, at: &str, more: &[&str]) -> Child {
        let config = dir.join("skopos.toml");
        if !config.exists() {
            std::fs::write(&config, "").expect("written");
        }
        let config = config.display().to_string();
        let args = ["hub", "--insecure", "--listen", at, "--config", &config];
        let mut child = skopos(dir, &[&args[..], &listeners(more)[..], more].concat())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        assert!(line.starts_with("skopos hub: site `default`"), "{line}");
        child
    }

    pub(crate) fn agent(&self, node: &str) -> Running {
        Running::start(&["--node", node, "--live", "--insecure", "--connect", &self.at])
    }

    pub(crate) fn ask(&self, sql: &str) -> Json {
        rows(&run(self.dir.path(), &["sql", "--json", sql]))
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_hub_knows_its_nodes_their_values_and_their_deaths() {
    let mut hub = Hub::start();
    let mut first = hub.agent("a1");
    let second = hub.agent("a2");
    let alive = |hub: &Hub| hub.ask("SELECT node, alive FROM nodes ORDER BY node");
    let both = json!([{"node": "a1", "alive": true}, {"node": "a2", "alive": true}]);
    eventually("both nodes are there", || alive(&hub) == both);
    eventually("both nodes have all facts", || {
        hub.ask("SELECT count(*) AS n FROM mem WHERE total_bytes > 0") == json!([{"n": 2}])
    });
    assert_eq!(first.run(&["publish", "app/depth", "5"]).code, 0);
    let depth = "SELECT topic, value FROM latest WHERE topic LIKE 'a1/app/%'";
    eventually("the hub has a new topic", || {
        hub.ask(depth) == json!([{"topic": "a1/app/depth", "value": 5.0}])
    });
    assert_eq!(first.run(&["publish", "app/depth", "6"]).code, 0);
    eventually("the hub has the change of the topic", || {
        hub.ask(depth) == json!([{"topic": "a1/app/depth", "value": 6.0}])
    });

    first.kill();
    let one = json!([{"node": "a1", "alive": false}, {"node": "a2", "alive": true}]);
    eventually("the node is reported as dead", || alive(&hub) == one);
    assert_eq!(
        hub.ask(depth),
        json!([{"topic": "a1/app/depth", "value": 6.0}]),
        "its last value stays"
    );

    hub.child.kill().expect("it runs");
    hub.child.wait().expect("it ends");
    hub.child = Hub::child(hub.dir.path(), &hub.at);
    let second_alone = json!([{"node": "a2", "alive": true}]);
    eventually("the live node comes back to a new hub", || alive(&hub) == second_alone);
    eventually("the node has all facts", || {
        hub.ask("SELECT count(*) AS n FROM mem WHERE total_bytes > 0") == json!([{"n": 1}])
    });
    drop(second);
}

#[test]
fn the_second_of_one_name_is_refused() {
    let hub = Hub::start();
    let _first = hub.agent("a1");
    let dir = runtime_dir();
    let mut args = vec!["agent", "--node", "a1", "--live", "--insecure", "--connect", &hub.at];
    // The agent is refused at its start or once it sees the first: it may start before either is
    // connected.
    args.extend(["--for", "10s"]);
    let second = run(dir.path(), &args);
    assert!(second.stderr.contains("there is a node `a1` in"), "{second:?}");
    assert!(second.stderr.contains("--node"), "{second:?}");
}

#[test]
fn up_is_a_hub_as_well_and_answers_about_tables_of_ones_own_names() {
    let dir = TempDir::new().expect("a folder");
    let config = dir.path().join("skopos.toml");
    let text = "[hub.aliases]\npfs_capacity = \"n01/app/capacity\"\n";
    std::fs::write(&config, text).expect("written");
    let up = Running::start_as("up", &["--config", config.to_str().expect("UTF-8")]);
    assert!(up.path().join("hub.sock").exists());
    assert_eq!(up.run(&["publish", "app/capacity", "17"]).code, 0);
    let papers = "SELECT MAX(timestamp), metric FROM pfs_capacity";
    eventually("the alias has its topic's value", || {
        rows(&up.run(&["sql", "--json", papers]))[0]["metric"] == 17.0
    });
}

/// Insights of a hub: two that it computes, one that an agent could compute, and two that fail.
pub(crate) const INSIGHTS: &str = r#"
    [[insight]]
    name = "depth/all"
    sql = "SELECT sum(value) FROM latest WHERE metric = 'depth'"
    every = "100ms"
    unit = "bytes"
    [[insight]]
    name = "deepest"
    sql = "SELECT max(d) FROM (SELECT node, sum(value) AS d FROM latest WHERE metric = 'depth' GROUP BY node)"
    [[insight]]
    name = "here"
    sql = "SELECT max(value) FROM latest WHERE topic LIKE '%/app/depth'"
    [[insight]]
    name = "wrong"
    sql = "SELECT valeu FROM latest"
    where = "hub"
    [[insight]]
    name = "many"
    sql = "SELECT value FROM latest WHERE metric = 'depth'"
    every = "100ms"
"#;

#[test]
fn a_hub_computes_insights_over_many_nodes() {
    let hub = Hub::with(INSIGHTS);
    let (first, second) = (hub.agent("a1"), hub.agent("a2"));
    assert_eq!(first.run(&["publish", "app/depth", "5"]).code, 0);
    assert_eq!(second.run(&["publish", "app/depth", "7"]).code, 0);
    let values = "SELECT topic, value, unit FROM latest WHERE topic IN \
                  ('default/insight/depth/all', 'default/insight/deepest') ORDER BY topic";
    let both = |all: f64, deepest: f64| {
        json!([
            {"topic": "default/insight/deepest", "value": deepest, "unit": ""},
            {"topic": "default/insight/depth/all", "value": all, "unit": "bytes"},
        ])
    };
    eventually("both nodes count", || hub.ask(values) == both(12.0, 7.0));
    assert_eq!(first.run(&["publish", "app/depth", "9"]).code, 0);
    eventually("the insights follow a change", || hub.ask(values) == both(16.0, 9.0));

    let local = run(hub.dir.path(), &["get", "default/insight/depth/all", "--plain"]);
    assert!(local.code == 0 && local.stdout.contains("16"), "programs read it: {local:?}");
    let table = hub.ask(
        "SELECT topic, origin, formula, reason FROM insights WHERE node = 'default' ORDER BY topic",
    );
    let table = table.as_array().expect("rows");
    let topics: Vec<_> = table.iter().filter_map(|row| row["topic"].as_str()).collect();
    // An insight that an agent can keep up to date by itself belongs to the agent.
    let names = ["deepest", "depth/all", "many", "wrong"];
    assert_eq!(topics, names.map(|name| format!("default/insight/{name}")));
    assert_eq!(table[2]["origin"], "unknown");
    assert_eq!(
        table[2]["reason"],
        "an insight is one number, and the answer has more than one row of 1 columns"
    );
    assert_eq!(table[3]["reason"], "line 1, column 8: there is no column `valeu`");
    assert_eq!(table[3]["formula"], "SELECT valeu FROM latest");
    let costs = hub.ask(
        "SELECT count(*) AS n FROM latest WHERE topic LIKE 'default/self/insight/%/answers_total' AND value > 0",
    );
    assert_eq!(costs, json!([{"n": 4}]));
}

/// Insights that a hub computes when their inputs change: one of a fact, one of that insight, and two
/// of each other. The last one is computed periodically and never rests.
const ON_CHANGE: &str = r#"
    [[insight]]
    name = "depth"
    sql = "SELECT sum(value) FROM latest WHERE topic LIKE '%/app/depth'"
    where = "hub"
    [[insight]]
    name = "double"
    sql = "SELECT 2 * value AS d FROM latest WHERE topic = 'default/insight/depth'"
    where = "hub"
    [[insight]]
    name = "this"
    sql = "SELECT coalesce(max(value), 0) % 2 + 1 AS n FROM latest WHERE topic = 'default/insight/that'"
    where = "hub"
    [[insight]]
    name = "that"
    sql = "SELECT min(value) AS n FROM latest WHERE topic = 'default/insight/this'"
    where = "hub"
    [[insight]]
    name = "clock"
    sql = "SELECT count(*) FROM latest"
    every = "50ms"
"#;

#[test]
fn a_hub_computes_insights_when_what_they_read_changes() {
    let hub = Hub::with(ON_CHANGE);
    let agent = hub.agent("a1");
    let value = |name: &str| {
        let topic = format!("default/insight/{name}");
        hub.ask(&format!("SELECT value FROM latest WHERE topic = '{topic}'"))[0]["value"].clone()
    };
    for depth in [5, 6, 7] {
        assert_eq!(agent.run(&["publish", "app/depth", &depth.to_string()]).code, 0);
        eventually("both insights follow", || {
            value("depth") == f64::from(depth) && value("double") == f64::from(2 * depth)
        });
    }
    let answers = |name: &str| {
        let topic = format!("default/self/insight/{name}/answers_total");
        let rows = hub.ask(&format!("SELECT value FROM latest WHERE topic = '{topic}'"));
        rows[0]["value"].as_f64().unwrap_or_default()
    };
    // Two insights that change each other do so for ever, but within the limits of every other insight.
    let before = answers("this");
    eventually("the two insights keep changing", || answers("this") > before + 2.0);
    // An insight whose inputs do not change is not computed again, though other facts change and the
    // agent measures.
    let names = ["depth", "double"];
    eventually("insights of unchanged facts rest", || {
        let (before, clock) = (names.map(answers), answers("clock"));
        eventually("time goes by", || answers("clock") > clock + 20.0);
        before == names.map(answers)
    });
    let local = run(hub.dir.path(), &["get", "default/insight/double", "--json"]);
    let age = local.json()["readings"][0]["age_seconds"].as_f64();
    assert!(age.is_some(), "{local:?}");
}

#[test]
fn an_insight_about_all_that_a_hub_publishes_does_not_keep_itself_at_work() {
    let hub = Hub::with(
        r#"
        [[insight]]
        name = "all"
        sql = "SELECT count(*) FROM latest WHERE topic LIKE 'default/%'"
        where = "hub"
        [[insight]]
        name = "more"
        sql = "SELECT max(value) AS n FROM latest WHERE node = 'default'"
        where = "hub"
        [[insight]]
        name = "clock"
        sql = "SELECT count(*) FROM nodes"
        every = "50ms"
    "#,
    );
    let answers = |name: &str| {
        let topic = format!("default/self/insight/{name}/answers_total");
        let rows = hub.ask(&format!("SELECT value FROM latest WHERE topic = '{topic}'"));
        rows[0]["value"].as_f64().unwrap_or_default()
    };
    eventually("both insights are computed", || answers("all") > 0.0 && answers("more") > 0.0);
    eventually("both insights rest", || {
        let (before, clock) = ([answers("all"), answers("more")], answers("clock"));
        eventually("time goes by", || answers("clock") > clock + 20.0);
        before == [answers("all"), answers("more")]
    });
}

#[test]
fn tasks_that_were_kept_are_tables() {
    let dir = runtime_dir();
    let file = dir.path().join("mine.sqlite").display().to_string();
    let keep = |name: &str| {
        let args = ["run", "--archive", &file, "--name", name, "--quiet", "--", "true"];
        assert_eq!(run(dir.path(), &args).code, 0);
    };
    let nobody = run(dir.path(), &["sql", "--archive", &file, "SELECT class FROM tasks"]);
    assert!(nobody.code == 2 && nobody.stderr.contains("there is no archive"), "{nobody:?}");
    keep("first");
    keep("second");
    let ask = |sql: &str| run(dir.path(), &["sql", "--json", "--archive", &file, sql]);
    let classes = ask("SELECT class, status FROM tasks ORDER BY started_at");
    let both = json!([{"class": "first", "status": 0}, {"class": "second", "status": 0}]);
    assert_eq!(rows(&classes), both);
    assert_eq!(rows(&ask("SELECT count(*) AS n FROM jobs")), json!([{"n": 0}]));

    // A hub answers from the usual archive as soon as there is one.
    let hub = Hub::start();
    let count = || run(hub.dir.path(), &["sql", "--json", "SELECT count(*) AS n FROM tasks"]);
    let before = count();
    assert_eq!(rows(&before), json!([{"n": 0}]));
    assert!(
        before.stderr.contains("does not exist yet: `skopos run --archive` keeps tasks there"),
        "{before:?}"
    );
    let kept = run(hub.dir.path(), &["run", "--archive", "--quiet", "--", "true"]);
    assert_eq!(kept.code, 0, "{kept:?}");
    let after = count();
    assert_eq!((rows(&after), &*after.stderr), (json!([{"n": 1}]), ""));
}

#[test]
fn an_agent_says_which_insights_it_leaves_to_a_hub() {
    let dir = runtime_dir();
    let config = dir.path().join("skopos.toml");
    std::fs::write(&config, INSIGHTS).expect("written");
    let config = config.display().to_string();
    let ran = run(dir.path(), &["agent", "--for", "1s", "--config", &config]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let told = "warning: a hub computes these insights, not this agent: `depth/all`, `deepest`, `wrong`, `many`\n";
    assert!(ran.stderr.contains(told), "{ran:?}");
}

#[test]
fn a_hub_asks_nodes_for_what_they_kept_and_says_who_did_not_answer() {
    let hub = Hub::start();
    let (first_kept, second_kept) = (TempDir::new().expect("it"), TempDir::new().expect("it"));
    let start = |node: &str, kept: &TempDir, dir: &Path| {
        let history = kept.path().to_str().expect("UTF-8");
        let mut args = vec!["agent", "--json", "--node", node, "--history", history];
        args.extend(["--live", "--insecure", "--connect", &hub.at]);
        let mut child = skopos(dir, &args).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        assert!(line.contains("\"started\""), "{line}");
        child
    };
    let stop = |mut child: Child| {
        child.kill().expect("it runs");
        child.wait().expect("it ends");
    };
    let (first_dir, second_dir) = (runtime_dir(), runtime_dir());
    // The samples from before the agent was killed are on its disk alone.
    let first = start("a1", &first_kept, first_dir.path());
    for value in ["1", "2", "3"] {
        assert_eq!(run(first_dir.path(), &["publish", "app/depth", value]).code, 0);
    }
    let kept = first_kept.path().to_str().expect("UTF-8");
    let depth = "SELECT value FROM samples WHERE topic = 'a1/app/depth' ORDER BY time";
    eventually("the history is written", || {
        let ran = run(&hub.dir.path().join("none"), &["sql", "--json", "--history", kept, depth]);
        rows(&ran) == json!([{"value": 1.0}, {"value": 2.0}, {"value": 3.0}])
    });
    stop(first);
    let first = start("a1", &first_kept, first_dir.path());
    assert_eq!(run(first_dir.path(), &["publish", "app/depth", "4"]).code, 0);
    let second = start("a2", &second_kept, second_dir.path());
    let all = json!([{"value": 1.0}, {"value": 2.0}, {"value": 3.0}, {"value": 4.0}]);
    eventually("the hub has the samples around the gap", || hub.ask(depth) == all);
    let ask = |sql: &str| run(hub.dir.path(), &["sql", "--json", sql]);
    eventually("the hub has the samples of both nodes", || {
        let ran = ask("SELECT DISTINCT node FROM samples WHERE node LIKE 'a_' ORDER BY node");
        rows(&ran) == json!([{"node": "a1"}, {"node": "a2"}]) && ran.json()["missing"] == json!([])
    });
    let mirrored = "SELECT value FROM latest WHERE topic = 'a1/app/depth'";
    eventually("the hub mirrors the topic", || hub.ask(mirrored) == json!([{"value": 4.0}]));
    stop(first);
    eventually("the dead node is reported as missing", || {
        let ran = ask("SELECT count(*) > 0 AS some FROM samples WHERE metric = 'total_bytes'");
        rows(&ran) == json!([{"some": true}]) && ran.json()["missing"] == json!(["a1"])
    });
    let table = run(hub.dir.path(), &["sql", "SELECT count(*) FROM samples"]);
    assert!(table.stderr.contains("partial answer, without the history of a1"), "{table:?}");
    let of_second = ask("SELECT count(*) FROM samples WHERE node = 'a2'");
    assert_eq!(of_second.json()["missing"], json!([]), "no other node is queried");
    let recent = "SELECT count(*) FROM samples WHERE topic = 'a1/app/depth' AND time > now()";
    // For a second after its end, a node may have samples that did not arrive.
    eventually("a statement that memory can answer queries no node", || {
        ask(recent).json()["missing"] == json!([])
    });
    stop(second);
}
