//! Statements with parameters answer as if the values were written into them.

use std::sync::Arc;

use skopos_access::Caller;
use skopos_model::Unit;
use skopos_query::arrow::array::{ArrayRef, Float64Array, Int64Array, NullArray, RecordBatch};
use skopos_query::arrow::array::{RecordBatchOptions, StringArray};
use skopos_query::arrow::datatypes::{Field, Schema};
use skopos_query::{Engine, Error, Limits, Stream, Way};

use crate::world::{World, block_on, rows};

fn world() -> Engine {
    World::default()
        .with("n01/mem/available_bytes", Unit::BYTES, &[4e9, 3e9])
        .with("n02/mem/available_bytes", Unit::BYTES, &[8e9])
        .with("n01/mem/total_bytes", Unit::BYTES, &[16e9])
        .with("n01/load/load_1m", Unit::NONE, &[1.5, -2.0])
        .engine(&[])
}

fn values(columns: Vec<ArrayRef>) -> RecordBatch {
    let field = |column: &ArrayRef| Field::new("", column.data_type().clone(), true);
    let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    RecordBatch::try_new_with_options(Arc::new(schema), columns, &options).expect("a row")
}

fn text(text: &str) -> ArrayRef {
    Arc::new(StringArray::from(vec![text]))
}

fn whole(number: i64) -> ArrayRef {
    Arc::new(Int64Array::from(vec![number]))
}

fn real(number: f64) -> ArrayRef {
    Arc::new(Float64Array::from(vec![number]))
}

fn ask(engine: &Engine, sql: &str, with: Vec<ArrayRef>) -> Result<skopos_query::Answer, Error> {
    block_on(async {
        let prepared = engine.prepare(&Caller::Owner, sql).await?;
        let (values, limits) = (values(with), Limits::default());
        let described =
            engine.describe_prepared(&Caller::Owner, &prepared, &values, &limits).await?;
        let stream = engine.stream_prepared(&Caller::Owner, &prepared, &values, &limits).await?;
        let types = |schema: &Schema| -> Vec<_> {
            schema.fields().iter().map(|f| (f.name().clone(), f.data_type().clone())).collect()
        };
        assert_eq!(types(&described), types(&stream.schema), "{sql}");
        collect(stream).await
    })
}

async fn collect(stream: Stream) -> Result<skopos_query::Answer, Error> {
    use futures_util::TryStreamExt as _;
    let Stream { schema, way, batches, .. } = stream;
    let batches = batches.try_collect().await?;
    Ok(skopos_query::Answer::new(schema, batches, way, Vec::new()))
}

#[test]
fn values_have_the_meaning_of_literals() {
    let engine = world();
    for (sql, with, written, way) in [
        (
            "SELECT value FROM latest WHERE topic = ?",
            vec![text("n01/mem/available_bytes")],
            "SELECT value FROM latest WHERE topic = 'n01/mem/available_bytes'",
            Way::Point,
        ),
        (
            "SELECT value FROM latest WHERE topic = $1",
            vec![text("it's none")],
            "SELECT value FROM latest WHERE topic = 'it''s none'",
            Way::Point,
        ),
        (
            "SELECT topic FROM latest WHERE topic IN (?, ?) ",
            vec![text("n02/mem/available_bytes"), text("n01/load/load_1m")],
            "SELECT topic FROM latest WHERE topic IN ('n02/mem/available_bytes', 'n01/load/load_1m')",
            Way::Point,
        ),
        (
            "SELECT topic, value FROM latest WHERE topic LIKE ?",
            vec![text("n01/m__/%")],
            "SELECT topic, value FROM latest WHERE topic LIKE 'n01/m__/%'",
            Way::Point,
        ),
        (
            "SELECT sum(value) AS s FROM latest WHERE topic LIKE ? AND value > ?",
            vec![text("%_bytes"), real(5e9)],
            "SELECT sum(value) AS s FROM latest WHERE topic LIKE '%_bytes' AND value > 5e9",
            Way::Point,
        ),
        (
            "SELECT topic FROM latest WHERE topic LIKE ? ORDER BY topic LIMIT ?",
            vec![text("n_1/%_bytes"), whole(1)],
            "SELECT topic FROM latest WHERE topic LIKE 'n_1/%_bytes' ORDER BY topic LIMIT 1",
            Way::Planned,
        ),
        (
            "SELECT node, available_bytes / $1 AS g FROM mem WHERE node >= $2 OR node = $2 ORDER BY node",
            vec![real(1e9), text("n01")],
            "SELECT node, available_bytes / 1e9 AS g FROM mem WHERE node >= 'n01' OR node = 'n01' ORDER BY node",
            Way::Planned,
        ),
        (
            "SELECT count(*) AS n FROM samples WHERE time >= ?",
            vec![text("1970-01-01T00:16:40Z")],
            "SELECT count(*) AS n FROM samples WHERE time >= '1970-01-01T00:16:40Z'",
            Way::Planned,
        ),
        (
            "SELECT value FROM latest WHERE topic LIKE ?",
            vec![Arc::new(NullArray::new(1))],
            "SELECT value FROM latest WHERE topic LIKE NULL",
            Way::Planned,
        ),
        ("SELECT 1 AS one", vec![], "SELECT 1 AS one", Way::Planned),
    ] {
        let found = ask(&engine, sql, with).unwrap_or_else(|e| panic!("{sql}: {e}"));
        let expected = crate::world::ask(&engine, written);
        assert_eq!((rows(&found).1, found.way), (rows(&expected).1, way), "{sql}");
    }
}

#[test]
fn parameters_are_described_and_checked() {
    let engine = world();
    let prepare = |sql: &str| block_on(engine.prepare(&Caller::Owner, sql));
    let prepared = prepare("SELECT ? AS a, value FROM latest WHERE value > ?").expect("prepared");
    let types: Vec<String> = prepared
        .parameters()
        .fields()
        .iter()
        .map(|f| format!("{} {}", f.name(), f.data_type()))
        .collect();
    assert_eq!(types, ["$1 Null", "$2 Float64"]);
    let names: Vec<_> = prepared.schema().fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(names, ["a", "value"]);
    for (sql, error) in [
        ("SELECT ? + $1", "`$1` cannot be a parameter here"),
        ("SELECT :name", "`:name` cannot be a parameter here"),
        ("SELECT $name", "`$name` cannot be a parameter here"),
        ("SELECT $1 + $3", "`$2` cannot be a parameter here"),
        ("SELECT $0", "`$0` cannot be a parameter here"),
        ("SELECT $99999999999999999999", "`$99999999999999999999` cannot be a parameter here"),
        ("SELECT a FROM ?", "line 1, column 15: Expected: identifier, found: ?"),
        ("SELECT value FROM lates WHERE topic = ?", "line 1, column 19: there is no table `lates`"),
    ] {
        match prepare(sql) {
            Err(e) => {
                assert!(e.to_string().starts_with(error) || sql.contains("FROM ?"), "{sql}: {e}")
            }
            Ok(_) => panic!("{sql} was taken"),
        }
    }
    let many = format!("SELECT 1 IN ({})", vec!["?"; skopos_query::MAX_PARAMETERS + 1].join(", "));
    assert!(matches!(prepare(&many), Err(Error::Parameter(_))));
    let two = "SELECT topic FROM latest WHERE topic = ? OR topic = ?";
    let short = ask(&engine, two, vec![text("a")]).expect_err("one is missing");
    assert_eq!(short.to_string(), "the statement has 2 parameters, and 1 values were given");
    let unbound = block_on(engine.query(&Caller::Owner, two, &Limits::default()))
        .expect_err("both are missing");
    assert!(matches!(unbound, Error::Parameters { wanted: 2, given: 0 }), "{unbound}");
    let pair = StringArray::from(vec!["a", "b"]);
    let batch = RecordBatch::try_from_iter([("", Arc::new(pair) as ArrayRef)]).expect("two rows");
    let prepared = prepare("SELECT ? AS a").expect("prepared");
    let rows =
        block_on(engine.stream_prepared(&Caller::Owner, &prepared, &batch, &Limits::default()));
    assert!(matches!(rows, Err(Error::ParameterRows(2))), "{rows:?}");
}

#[test]
fn a_stream_ends_at_its_limits() {
    use futures_util::StreamExt as _;
    let engine = world();
    let long = "SELECT a.value FROM generate_series(1, 100000) a, generate_series(1, 100000) b";
    block_on(async {
        let limits = Limits { rows: 20_000, ..Limits::default() };
        let mut stream = engine.stream(&Caller::Owner, long, &limits).await.expect("begun");
        let (mut rows, mut end) = (0, None);
        while let Some(item) = stream.batches.next().await {
            assert!(end.is_none(), "an error is the last item");
            match item {
                Ok(batch) => rows += batch.num_rows(),
                Err(e) => end = Some(e),
            }
        }
        assert!((1..=20_000).contains(&rows), "{rows}");
        assert!(matches!(end, Some(Error::TooManyRows(20_000))), "{end:?}");

        let limits = Limits {
            deadline: std::time::Duration::from_millis(300),
            rows: usize::MAX,
            threads: 0,
        };
        let mut stream = engine.stream(&Caller::Owner, long, &limits).await.expect("begun");
        let mut end = None;
        while let Some(item) = stream.batches.next().await {
            end = item.err();
        }
        assert!(matches!(end, Some(Error::Deadline(_))), "{end:?}");
    });
}

#[test]
fn columns_are_described_before_the_answer() {
    let engine = world();
    for sql in [
        "SELECT value FROM latest WHERE topic = 'n01/load/load_1m'",
        "SELECT * FROM latest",
        "SELECT node, count(*) AS n, avg(value) FROM samples GROUP BY node",
        "SELECT 1 AS a UNION ALL SELECT 2.5",
        "SELECT value, 'x' AS x, NULL AS n FROM latest UNION SELECT 1, topic, true FROM topics",
        "SELECT a.node, b.alive FROM mem a LEFT JOIN nodes b ON a.node = b.node",
        "SELECT time_bucket('10s', time) AS at, last(value), rate(value) FROM samples GROUP BY at",
        "SELECT row_number() OVER (ORDER BY time) AS r, CASE WHEN value > 1 THEN 1 ELSE 2.0 END AS c FROM samples",
        "EXPLAIN SELECT 1",
        "SHOW TABLES",
        "SELECT table_name FROM information_schema.tables",
    ] {
        let described = block_on(engine.describe(&Caller::Owner, sql)).expect(sql);
        let answer = crate::world::ask(&engine, sql);
        let types = |schema: &Schema| -> Vec<_> {
            schema.fields().iter().map(|f| (f.name().clone(), f.data_type().clone())).collect()
        };
        assert_eq!(types(&described), types(&answer.schema), "{sql}");
    }
    assert!(block_on(engine.describe(&Caller::Owner, "SELECT valu FROM latest")).is_err());
    let columns = |name: &str| {
        block_on(engine.table_schema(&Caller::Owner, name)).expect("an owner may read")
    };
    assert_eq!(columns("nodes").expect("a table").field(0).name(), "node");
    assert!(columns("n01/load/load_1m").is_some());
    assert!(columns("no/body").is_none());
    let refused = block_on(engine.table_schema(&Caller::Stranger, "nodes"));
    assert!(matches!(refused, Err(Error::Denied(_))), "{refused:?}");
}
