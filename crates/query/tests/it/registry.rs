//! Tables that another crate registers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use skopos_access::Caller;
use skopos_model::{Timestamp, Topic, Unit};
use skopos_query::arrow::array::{
    ArrayRef, Int64Array, RecordBatch, StringArray, TimestampNanosecondArray,
};
use skopos_query::{
    BoxError, Column, Engine, Error, Fingerprint, Limits, Literal, Registry, Rows, Scan, Source,
    Table, Way,
};

use crate::world::{World, ask, block_on, rows};

/// Rows of the queue: partition, node, jobs that wait, second at which the oldest job came.
const QUEUE: [(&str, &str, i64, i64); 3] =
    [("cpu", "n01", 3, 10), ("cpu", "n02", 0, 20), ("gpu", "n01", 7, 30)];

/// A table that records its scans. It returns all rows under all conditions, except those on its exact columns.
#[derive(Debug)]
struct Queue {
    columns: Vec<Column>,
    seen: Seen,
    exact: &'static [&'static str],
}

#[derive(Clone, Debug, Default)]
struct Seen {
    scans: Arc<Mutex<Vec<Scan>>>,
    version: Arc<AtomicU64>,
}

impl Queue {
    fn new(seen: Seen) -> Self {
        let columns = vec![
            Column::text("partition", "Name of the partition"),
            Column::text("node", "Node of the partition"),
            Column::integer("waiting", "Number of jobs that wait"),
            Column::time("since", "Time at which the oldest job came"),
            Column::number("estimate", Unit::SECONDS, "Time that the jobs will need"),
        ];
        Self { columns, seen, exact: &[] }
    }

    fn fits(&self, scan: &Scan, row: &(&str, &str, i64, i64)) -> bool {
        let has = |column: &str, cell: &str| match self.exact.contains(&column) {
            true => scan.texts(column).is_none_or(|texts| texts.contains(&cell)),
            false => true,
        };
        let since = Timestamp::from_nanos(row.3 * 1_000_000_000);
        let is_then = match self.exact.contains(&"since") {
            true => scan.times("since").is_none_or(|times| times.contains(&since)),
            false => true,
        };
        has("partition", row.0) && has("node", row.1) && is_then
    }
}

impl Table for Queue {
    fn name(&self) -> &str {
        "queue"
    }

    fn help(&self) -> &str {
        "Jobs that wait, by partition and node"
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn scan(&self, scan: &Scan) -> Result<Rows, BoxError> {
        self.seen.scans.lock().expect("a lock").push(scan.clone());
        let fitting = QUEUE.iter().filter(|row| self.fits(scan, row));
        let queue: Vec<_> = fitting.take(scan.limit().unwrap_or(usize::MAX)).collect();
        let texts = |of: fn(&&(&'static str, &'static str, i64, i64)) -> &'static str| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(queue.iter().map(of)))
        };
        let times = queue.iter().map(|row| Some(row.3 * 1_000_000_000));
        let estimates = queue.iter().map(|row| Some(row.2 as f64 * 2.5));
        let all: [ArrayRef; 5] = [
            texts(|row| row.0),
            texts(|row| row.1),
            Arc::new(Int64Array::from_iter_values(queue.iter().map(|row| row.2))),
            Arc::new(times.collect::<TimestampNanosecondArray>().with_timezone("UTC")),
            Arc::new(estimates.collect::<skopos_query::arrow::array::Float64Array>()),
        ];
        Ok(Rows::of(scan.select(&all)?))
    }

    fn exact(&self) -> &[&str] {
        self.exact
    }

    fn fingerprint(&self, _scan: &Scan) -> Fingerprint {
        Fingerprint::Version(self.seen.version.load(Ordering::Relaxed))
    }
}

/// A table with a name, columns, a result and a fingerprint of a test's choice.
#[derive(Debug)]
struct Any {
    name: &'static str,
    columns: Vec<Column>,
    result: fn() -> Result<Rows, BoxError>,
    fingerprint: fn(&Scan) -> Fingerprint,
}

impl Any {
    fn new(name: &'static str, columns: &[&'static str]) -> Self {
        let columns = columns.iter().map(|name| Column::text(*name, "A text")).collect();
        Self { name, columns, result: || Ok(Rows::each([])), fingerprint: |_| Fingerprint::Unknown }
    }
}

impl Table for Any {
    fn name(&self) -> &str {
        self.name
    }

    fn help(&self) -> &str {
        "Rows of a test"
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn scan(&self, _scan: &Scan) -> Result<Rows, BoxError> {
        (self.result)()
    }

    fn fingerprint(&self, scan: &Scan) -> Fingerprint {
        (self.fingerprint)(scan)
    }
}

fn registry() -> Registry {
    let world = World::default()
        .with("n01/mem/total_bytes", Unit::BYTES, &[8e9])
        .with("n02/mem/total_bytes", Unit::BYTES, &[4e9])
        .with("n01/insight/load", Unit::NONE, &[0.5]);
    Registry::new(Arc::new(world) as Arc<dyn Source>)
}

fn engine(table: impl Table) -> Engine {
    let mut registry = registry();
    registry.register(table).expect("registered");
    Engine::new(registry).expect("an engine")
}

fn queue() -> (Engine, Seen) {
    let seen = Seen::default();
    (engine(Queue::new(seen.clone())), seen)
}

fn answer(engine: &Engine, sql: &str) -> Vec<String> {
    let answer = ask(engine, sql);
    assert_eq!(answer.way, Way::Planned, "{sql}");
    rows(&answer).1
}

fn fails(engine: &Engine, sql: &str) -> Error {
    let answer = block_on(engine.query(&Caller::Owner, sql, &Limits::default()));
    answer.map(|answer| rows(&answer).1).expect_err(sql)
}

#[test]
fn a_scan_sees_columns_conditions_and_the_limit() {
    let (engine, seen) = queue();
    let scan = |sql: &str| {
        seen.scans.lock().expect("a lock").clear();
        let answer = answer(&engine, sql);
        let mut scans = seen.scans.lock().expect("a lock");
        assert_eq!(scans.len(), 1, "{sql}");
        (answer, scans.remove(0))
    };
    let (rows, of) = scan("SELECT waiting, partition FROM queue ORDER BY 1");
    assert_eq!(rows, ["0 | cpu", "3 | cpu", "7 | gpu"]);
    let mut columns = of.columns().to_vec();
    columns.sort_unstable();
    assert_eq!(columns, [0, 2], "only these columns are made");
    assert!(
        of.equals("partition").is_none() && of.nodes().is_none() && of.times("since").is_none()
    );

    let (rows, of) = scan(
        "SELECT waiting FROM queue WHERE partition IN ('cpu', 'gpu') AND node = 'n01'
         AND waiting = 7 AND since >= '1970-01-01T00:00:15Z' AND since < '1970-01-01T00:01:00Z'",
    );
    assert_eq!(rows, ["7"], "what the table returns beyond the conditions is left out");
    let mut partitions = of.texts("partition").expect("texts");
    partitions.sort_unstable();
    assert_eq!((partitions, of.nodes()), (vec!["cpu", "gpu"], Some(vec!["n01"])));
    assert_eq!(of.equals("waiting"), Some(&[Literal::Integer(7)][..]));
    let second = |n: i64| Timestamp::from_nanos(n * 1_000_000_000);
    assert_eq!(of.times("since"), Some(&(second(15)..=second(60))));
    assert!(of.topics().selects(&Topic::new("n01/a").expect("a topic")));
    assert!(!of.topics().selects(&Topic::new("n02/a").expect("a topic")));

    let (rows, of) = scan("SELECT partition FROM queue LIMIT 2");
    assert_eq!((rows.len(), of.limit()), (2, Some(2)));
    let (rows, of) = scan("SELECT partition FROM queue WHERE waiting > 5 LIMIT 2");
    assert_eq!((rows, of.limit()), (vec!["gpu".to_owned()], None), "a limit after a condition");
    assert_eq!(answer(&engine, "SELECT count(*) FROM queue"), ["3"], "a scan without columns");
}

#[test]
fn a_limit_reaches_a_scan_that_applies_all_conditions_exactly() {
    let queue = |exact| {
        let seen = Seen::default();
        let table = Queue { exact, ..Queue::new(seen.clone()) };
        (engine(table), seen)
    };
    let (exact, seen) = queue(&["partition", "node", "since"]);
    let (inexact, _) = queue(&[]);
    for (condition, limit) in [
        ("partition = 'cpu'", Some(2)),
        ("partition IN ('gpu', 'tpu') AND node = 'n01'", Some(2)),
        ("partition = 'cpu' OR partition = 'gpu'", Some(2)),
        ("partition = 'cpu' AND partition = 'gpu'", Some(2)),
        ("(partition = 'cpu' OR partition = 'gpu') AND partition IN ('gpu', 'x')", Some(2)),
        ("since >= '1970-01-01T00:00:20Z' AND partition = 'cpu'", Some(2)),
        ("since BETWEEN '1970-01-01T00:00:10Z' AND '1970-01-01T00:00:20Z'", Some(2)),
        ("since > '1970-01-01T00:00:10Z'", None),
        ("partition = 'cpu' AND waiting > 1", None),
        ("partition = 'cpu' OR waiting = 7", None),
        ("partition <> 'cpu'", None),
        ("partition LIKE 'g%'", None),
        ("partition = node", None),
    ] {
        let sql = format!("SELECT node, waiting FROM queue WHERE {condition} LIMIT 2");
        seen.scans.lock().expect("a lock").clear();
        assert_eq!(answer(&exact, &sql), answer(&inexact, &sql), "{sql}");
        // A condition that is never true needs no scan.
        let scans = seen.scans.lock().expect("a lock").clone();
        assert!(scans.iter().all(|scan| scan.limit() == limit), "{sql}: {scans:?}");
        let plan_of = |engine| answer(engine, &format!("EXPLAIN {sql}")).join("\n");
        let is_limited = |plan: &str| {
            let scan = plan.lines().find(|line| line.contains("TableScan: queue"));
            scan.is_some_and(|scan| scan.contains("full_filters=") && scan.contains("fetch=2"))
        };
        let plan = plan_of(&exact);
        assert_eq!(is_limited(&plan), limit.is_some() && !scans.is_empty(), "{sql}: {plan}");
        assert_eq!(plan.contains("FilterExec"), limit.is_none(), "{sql}: {plan}");
        let plan = plan_of(&inexact);
        assert!(!is_limited(&plan), "{sql}: {plan}");
    }
}

#[test]
fn registered_tables_join_with_live_ones() {
    let (engine, _) = queue();
    let sql = "SELECT q.partition, q.waiting, l.value FROM queue q JOIN latest l ON l.node = q.node
               WHERE l.metric = 'total_bytes' ORDER BY q.waiting";
    let expected = ["cpu | 0 | 4000000000.0", "cpu | 3 | 8000000000.0", "gpu | 7 | 8000000000.0"];
    assert_eq!(answer(&engine, sql), expected);
}

#[test]
fn inputs_follow_the_fingerprint_of_a_table() {
    let (engine, seen) = queue();
    let sql = "SELECT partition FROM queue WHERE waiting > 0";
    let inputs = block_on(engine.inputs(&Caller::Owner, sql)).expect("inputs");
    assert!(inputs.is_polled() && !inputs.is_timed());
    let before = engine.fingerprint(&inputs, &|_| true);
    assert_eq!(engine.fingerprint(&inputs, &|_| true), before, "nothing changed");
    seen.version.fetch_add(1, Ordering::Relaxed);
    assert_ne!(engine.fingerprint(&inputs, &|_| true), before);

    let both = format!("{sql} UNION SELECT topic FROM latest");
    let inputs = block_on(engine.inputs(&Caller::Owner, &both)).expect("inputs");
    let before = engine.fingerprint(&inputs, &|_| true);
    assert_ne!(engine.fingerprint(&inputs, &|t| t.node() != "n02"), before, "samples count, too");
    seen.version.fetch_add(1, Ordering::Relaxed);
    assert_ne!(engine.fingerprint(&inputs, &|_| true), before);

    let timed = engine_of_fingerprint(|_| Fingerprint::Unknown);
    assert!(
        block_on(timed.inputs(&Caller::Owner, "SELECT a FROM any_rows"))
            .expect("inputs")
            .is_timed()
    );
    let samples =
        engine_of_fingerprint(|scan| Fingerprint::Samples(scan.topics().clone().below("insight")));
    let inputs =
        block_on(samples.inputs(&Caller::Owner, "SELECT a FROM any_rows")).expect("inputs");
    assert!(!inputs.is_timed() && !inputs.is_polled());
    let all = samples.fingerprint(&inputs, &|_| true);
    assert_eq!(samples.fingerprint(&inputs, &|t| t.as_str().contains("/insight/")), all);
    assert_ne!(samples.fingerprint(&inputs, &|t| !t.as_str().contains("/insight/")), all);
}

fn engine_of_fingerprint(fingerprint: fn(&Scan) -> Fingerprint) -> Engine {
    engine(Any { fingerprint, ..Any::new("any_rows", &["a"]) })
}

#[test]
fn each_name_belongs_to_one_table() {
    let topic = || Topic::new("n01/mem/total_bytes").expect("a topic");
    for taken in ["latest", "samples", "topics", "nodes", "self", "tables", "columns", "mem", "q"] {
        let mut registry = registry();
        registry.register(Any::new("q", &["a"])).expect("registered");
        let error = registry.register(Any::new(taken, &["a"])).expect_err(taken);
        assert!(matches!(&error, Error::TableExists(name) if name == taken), "{error}");
        assert_eq!(
            error.to_string(),
            format!("there is a table `{taken}` already; a table needs a name of its own")
        );
        assert!(matches!(registry.alias(taken, topic()), Err(Error::TableExists(_))), "{taken}");
        registry.alias("total", topic()).expect("an alias");
        assert!(registry.register(Any::new("total", &["a"])).is_err());
    }
}

#[test]
fn a_table_that_cannot_be_selected_from_is_refused() {
    for (name, columns, problem) in [
        ("Queue", &["a"][..], "it cannot be selected without quotes"),
        ("a/b", &["a"], "it cannot be selected without quotes"),
        ("", &["a"], "it cannot be selected without quotes"),
        ("q", &[], "it has no columns"),
        ("q", &["a", "B"], "its column `B` needs quotes"),
        ("q", &["a", "b", "a"], "two of its columns are `a`"),
    ] {
        let error = registry().register(Any::new(name, columns)).expect_err(problem).to_string();
        let start = format!("the table `{name}` cannot be registered: {problem}");
        assert!(error.starts_with(&start), "{error}");
    }
}

#[test]
fn mistakes_name_the_nearest_registered_table_and_column() {
    let (engine, _) = queue();
    for (sql, text, hint) in [
        ("SELECT * FROM queu", "line 1, column 15: there is no table `queu`", "queue"),
        ("SELECT waitin FROM queue", "line 1, column 8: there is no column `waitin`", "waiting"),
    ] {
        let error = fails(&engine, sql);
        let found = (error.to_string(), error.hint());
        assert_eq!(found, (text.to_owned(), Some(format!("did you mean `{hint}`?"))));
    }
}

#[test]
fn registered_tables_are_listed_with_their_help() {
    let (engine, _) = queue();
    assert!(engine.table_names().contains(&"queue".to_owned()));
    let schema =
        block_on(engine.table_schema(&Caller::Owner, "queue")).expect("allowed").expect("a table");
    assert_eq!(schema.field(2).name(), "waiting");
    for (sql, expected) in [
        (
            "SELECT table_name FROM information_schema.tables WHERE table_name = 'queue'",
            &["queue"][..],
        ),
        (
            "SELECT column_name, data_type FROM information_schema.columns
             WHERE table_name = 'queue' AND column_name IN ('node', 'waiting')",
            &["node | Utf8", "waiting | Int64"],
        ),
        (
            "SELECT help, columns FROM tables WHERE name = 'queue'",
            &["Jobs that wait, by partition and node | partition, node, waiting, since, estimate"],
        ),
        (
            "SELECT name, unit, help FROM columns WHERE table_name = 'queue' AND name > 'o'",
            &[
                "partition | NULL | Name of the partition",
                "since | NULL | Time at which the oldest job came",
                "waiting | NULL | Number of jobs that wait",
            ],
        ),
        ("SELECT unit FROM columns WHERE table_name = 'queue' AND name = 'estimate'", &["seconds"]),
        ("SELECT unit FROM columns WHERE table_name = 'mem' AND name = 'total_bytes'", &["bytes"]),
        ("SELECT count(*) FROM tables t WHERE t.help = '' OR t.help IS NULL", &["0"]),
        ("SELECT count(*) FROM columns c WHERE c.help = '' OR c.help IS NULL", &["0"]),
    ] {
        assert_eq!(answer(&engine, sql), expected, "{sql}");
    }
    let shown = rows(&ask(&engine, "SHOW TABLES")).1;
    assert!(shown.iter().any(|row| row.contains(" | queue | ")), "{shown:?}");
}

#[test]
fn a_mistake_of_a_table_is_an_error() {
    let of = |result| engine(Any { result, ..Any::new("any_rows", &["a"]) });
    let sql = "SELECT a FROM any_rows";
    let broken = of(|| Err("the file is gone".into()));
    assert_eq!(fails(&broken, sql).to_string(), "the file is gone");
    let late = of(|| Ok(Rows::each([Err("the file ends early".into())])));
    assert_eq!(fails(&late, sql).to_string(), "the file ends early");
    let wrong = of(|| {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        Ok(Rows::of(RecordBatch::try_from_iter([("a", numbers)])?))
    });
    assert_eq!(
        fails(&wrong, sql).to_string(),
        "the table `any_rows` made columns of Int64 and had to make Utf8"
    );
}

/// A table of many pages is read only as far as the answer needs.
#[test]
fn pages_are_read_when_they_are_needed() {
    static READ: AtomicU64 = AtomicU64::new(0);
    let result = || {
        Ok(Rows::each((0..1_000_000).map(|_| {
            READ.fetch_add(1, Ordering::Relaxed);
            let texts: ArrayRef = Arc::new(StringArray::from(vec!["x"; 1000]));
            Ok(RecordBatch::try_from_iter([("a", texts)])?)
        })))
    };
    let engine = engine(Any { result, ..Any::new("any_rows", &["a"]) });
    assert_eq!(answer(&engine, "SELECT a FROM any_rows LIMIT 1500").len(), 1500);
    assert!(READ.load(Ordering::Relaxed) < 1000, "{READ:?}");
}
