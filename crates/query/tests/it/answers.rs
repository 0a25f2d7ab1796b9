//! Answers of statements, and errors of mistakes.

use std::time::Duration;

use skopos_access::Caller;
use skopos_model::{Origin, Structured, Unit, Value};
use skopos_query::{Engine, Error, Limits, Position, Way};

use crate::world::{World, ask, block_on, rows};

fn world() -> Engine {
    World::default()
        .with("n01/mem/available_bytes", Unit::BYTES, &[4e9, 3e9])
        .with("n02/mem/available_bytes", Unit::BYTES, &[8e9])
        .with("n01/mem/total_bytes", Unit::BYTES, &[16e9])
        .with("n01/block/sda/read_bytes_total", Unit::BYTES, &[1.0, 2.0, 5.0])
        .with_text("n01/self/version", "0.1.0")
        .engine(&[("pfs_capacity", "n01/mem/total_bytes")])
}

fn check(sql: &str, way: Way, expected: &[&str]) {
    let answer = ask(&world(), sql);
    assert_eq!(
        (rows(&answer).1, answer.way),
        (expected.iter().map(|s| (*s).to_owned()).collect(), way),
        "{sql}"
    );
}

#[test]
fn the_papers_query_runs_as_it_is_printed() {
    let sql = "SELECT MAX(Timestamp), metric FROM pfs_capacity
               UNION SELECT MAX(Timestamp), metric FROM n01_mem_available_bytes
               UNION SELECT MAX(Timestamp), metric FROM \"n02/mem/available_bytes\"";
    let at = "1970-01-01T00:16:40Z";
    let expected = [
        &*format!("{at} | 16000000000.0"),
        &format!("{at} | 3000000000.0"),
        &format!("{at} | 8000000000.0"),
    ];
    check(sql, Way::Point, &expected);
    let names = rows(&ask(&world(), sql)).0;
    assert!(
        names[0].starts_with("MAX(Timestamp): Timestamp") && names[1] == "metric: Float64",
        "{names:?}"
    );
}

#[test]
fn the_wide_table_of_a_machine_with_many_cores_has_a_row_for_each() {
    let list = |text| {
        let value = Value::Structured(Structured::from_json(text).expect("a list"));
        vec![(value, Origin::Measured)]
    };
    let engine = World::default()
        .with_samples("n01/cpu/per_cpu/busy_ratio", Unit::RATIO, list("[0.5,null,0.25]"))
        .with_samples("n01/cpu/per_cpu/idle_seconds_total", Unit::SECONDS, list("[7,8,9]"))
        .with_samples("n01/cpu/per_cpu:256/busy_ratio", Unit::RATIO, list("[1]"))
        .with_samples("n01/interrupts/per_cpu/handled_total", Unit::NONE, list("[5]"))
        .with("n01/cpu/total/busy_ratio", Unit::RATIO, &[0.125])
        .with("n02/cpu/0/busy_ratio", Unit::RATIO, &[0.75])
        .engine(&[]);
    let all = |sql| rows(&ask(&engine, sql)).1;
    let expected = [
        "n01 | 0 | 0.5 | 7.0",
        "n01 | 1 | NULL | 8.0",
        "n01 | 2 | 0.25 | 9.0",
        "n01 | 256 | 1.0 | NULL",
        "n01 | total | 0.125 | NULL",
        "n02 | 0 | 0.75 | NULL",
    ];
    let sql = "SELECT node, instance, busy_ratio, idle_seconds_total FROM cpu ORDER BY 1, 2";
    assert_eq!(all(sql), expected);
    assert_eq!(all("SELECT instance, handled_total FROM interrupts"), ["cpu0 | 5.0"]);
}

#[test]
fn tables_answer() {
    for (sql, expected) in [
        (
            "SELECT node, available_bytes, total_bytes FROM mem ORDER BY node",
            &["n01 | 3000000000.0 | 16000000000.0", "n02 | 8000000000.0 | NULL"] as &[&str],
        ),
        ("SELECT instance, read_bytes_total FROM block", &["sda | 5.0"]),
        (
            "SELECT value, time FROM samples WHERE topic = 'n01/block/sda/read_bytes_total' AND time >= '1970-01-01T00:16:39Z'",
            &["2.0 | 1970-01-01T00:16:39Z", "5.0 | 1970-01-01T00:16:40Z"],
        ),
        ("SELECT text FROM self", &["\"0.1.0\""]),
        ("SELECT count(*) FROM topics", &["5"]),
        (
            "SELECT help FROM topics WHERE metric = 'available_bytes' AND node = 'n01'",
            &["Memory available to new programs without swapping"],
        ),
        (
            "SELECT a.value / b.value FROM latest a JOIN latest b ON a.node = b.node WHERE a.metric = 'available_bytes' AND b.metric = 'total_bytes'",
            &["0.1875"],
        ),
        (
            "SELECT topic FROM latest WHERE topic LIKE 'n01/mem_total%' OR topic LIKE 'n0_/mem/av%'",
            &["n01/mem/available_bytes", "n02/mem/available_bytes"],
        ),
        (
            "SELECT rate(value), delta(value), first(value), last(value) FROM samples WHERE topic = 'n01/block/sda/read_bytes_total'",
            &["2.0 | 4.0 | 1.0 | 5.0"],
        ),
        (
            "SELECT metric, rate(value) FROM samples WHERE node = 'n01' AND metric LIKE '%bytes%' GROUP BY metric ORDER BY metric",
            &["available_bytes | NULL", "read_bytes_total | 2.0", "total_bytes | NULL"],
        ),
        (
            "SELECT time_bucket('2s', time) AS at, max(value) FROM samples WHERE metric = 'read_bytes_total' GROUP BY 1",
            &["1970-01-01T00:16:38Z | 2.0", "1970-01-01T00:16:40Z | 5.0"],
        ),
        ("SELECT quantile(value, 0.5) FROM latest WHERE metric LIKE '%_bytes'", &["8000000000.0"]),
    ] {
        let answer = ask(&world(), sql);
        assert_eq!(rows(&answer).1, expected, "{sql}");
    }
}

#[test]
fn point_reads_never_reach_the_planner() {
    for (sql, expected) in [
        (
            "SELECT value FROM latest WHERE topic = 'n02/mem/available_bytes'",
            &["8000000000.0"] as &[&str],
        ),
        (
            "SELECT topic, value FROM latest WHERE topic IN ('n02/mem/available_bytes', 'nobody/s')",
            &["n02/mem/available_bytes | 8000000000.0"],
        ),
        (
            "SELECT topic AS t FROM latest WHERE topic LIKE 'n01/mem/%_bytes'",
            &["n01/mem/available_bytes", "n01/mem/total_bytes"],
        ),
        (
            "SELECT sum(value), count(value) FROM latest WHERE topic LIKE '%/available_bytes'",
            &["11000000000.0 | 2"],
        ),
        ("SELECT max(value) FROM latest WHERE topic LIKE 'nobody/%'", &["NULL"]),
        ("SELECT count(*) FROM latest WHERE topic LIKE 'nobody/%'", &["0"]),
    ] {
        check(sql, Way::Point, expected);
    }
}

fn fails(sql: &str, limits: &Limits) -> Error {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let answer = runtime.expect("a runtime").block_on(world().query(&Caller::Owner, sql, limits));
    answer.map(|answer| rows(&answer).1).expect_err(sql)
}

/// Checks the error of a statement, and its hint.
fn explained(sql: &str, text: &str, hint: &str) {
    let error = fails(sql, &Limits::default());
    assert_eq!(
        (error.to_string(), error.hint().unwrap_or_default()),
        (text.to_owned(), hint.to_owned())
    );
}

#[test]
fn an_error_does_not_deny_what_exists() {
    for (sql, text, hint) in [
        (
            "SELECT lag(value) FROM samples",
            "line 1, column 8: `lag` needs a window, such as `OVER (PARTITION BY topic ORDER BY time)`",
            "",
        ),
        (
            "SELECT s.value FROM samples",
            "line 1, column 8: there is no table `s`",
            "did you mean `samples`?",
        ),
        (
            "SELECT a.alive FROM latest a JOIN nodes n ON a.node = n.node",
            "line 1, column 8: there is no column `a.alive`",
            "did you mean `n.alive`?",
        ),
        (
            "SELECT samples.value FROM samples s",
            "line 1, column 8: `samples` has another name here: write `s.value`",
            "",
        ),
        (
            "SELECT q.value FROM (SELECT topic, 1 AS values FROM samples) q",
            "line 1, column 10: there is no column `q.value`",
            "did you mean `q.values`?",
        ),
        (
            "SELECT topic FROM samples UNION SELECT topic FROM latest ORDER BY samples.topic",
            "line 1, column 19: `samples.topic` is not known here: write `topic`",
            "",
        ),
        (
            "SELECT string_agg(topic, ',') OVER (ORDER BY time) FROM samples",
            "`string_agg` cannot be a window, which would repeat what it collects in each row",
            "",
        ),
    ] {
        explained(sql, text, hint);
    }
}

#[test]
fn mistakes_are_explained() {
    for (sql, text, hint) in [
        (
            "SELECT valu FROM latest",
            "line 1, column 8: there is no column `valu`",
            "did you mean `value`?",
        ),
        (
            "SELECT *\nFROM lates",
            "line 2, column 6: there is no table `lates`",
            "did you mean `latest`?",
        ),
        (
            "SELECT * FROM \"n01/mem/avail_bytes\"",
            "line 1, column 15: there is no table `n01/mem/avail_bytes`",
            "did you mean `n01/mem/available_bytes`?",
        ),
        (
            "SELECT summ(value) FROM latest",
            "line 1, column 8: there is no function `summ`",
            "did you mean `sum`?",
        ),
        (
            "SELECT rat(value) FROM samples",
            "line 1, column 8: there is no function `rat`",
            "did you mean `rate`?",
        ),
        (
            "SELECT node,\n  time_bucket('soon', time) FROM samples",
            "line 2, column 15: 'soon' is not a width of a bucket: write it like '10s' or '5m'",
            "",
        ),
        (
            "SELECT locf(value) FROM latest",
            "locf has to stand in a SELECT that is grouped by time_bucket_gapfill",
            "",
        ),
        (
            "SELECT a.value FROM samples a ASOF JOIN samples b MATCH_CONDITION (a.time = b.time)",
            "MATCH_CONDITION takes >=, >, <= or <, and not =",
            "",
        ),
        (
            "SELECT a.value FROM samples a ASOF JOIN samples b MATCH_CONDITION (a.time >= b.time) ON a.value > b.value",
            "ON of an ASOF JOIN takes equalities of columns: move `a.value > b.value` to WHERE",
            "",
        ),
        (
            "SELECT * FROM latest WHERE",
            "line 1, column 27: Expected: an expression, found: EOF",
            "",
        ),
    ] {
        explained(sql, text, hint);
    }
    let at = fails("SELECT valu FROM latest", &Limits::default()).position();
    assert_eq!(at, Some(Position { line: 1, column: 8 }));
}

#[test]
fn rows_and_time_are_limited() {
    let rows = Limits { rows: 2, ..Limits::default() };
    for sql in ["SELECT topic FROM latest", "SELECT topic FROM latest WHERE topic LIKE 'n01/%'"] {
        assert!(matches!(fails(sql, &rows), Error::TooManyRows(2)), "{sql}");
    }
    let endless =
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r";
    let soon = Limits { deadline: std::time::Duration::from_millis(200), ..Limits::default() };
    assert!(matches!(fails(endless, &soon), Error::Deadline(_)));
}

#[test]
fn a_query_of_hours_ends_at_its_deadline() {
    let deadline = Duration::from_millis(200);
    let limits = Limits { deadline, ..Limits::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime");
    let engine = world();
    for sql in [
        "SELECT count(*) FROM generate_series(1, 1000000000000000)",
        "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 100000000) b",
        "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 100000000) b \
         WHERE a.value * b.value = 7",
        "SELECT count(*) FROM generate_series(1, 100000) a JOIN generate_series(1, 100000000) b \
         ON a.value % 2 = b.value % 2",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r",
    ] {
        let answer = runtime.block_on(engine.query(&Caller::Owner, sql, &limits));
        assert!(matches!(answer, Err(Error::Deadline(_))), "{sql}: {answer:?}");
    }
}

/// These joins compute for hours from the first batch that they read, and return no row meanwhile.
#[test]
fn a_cancelled_join_yields_its_thread() {
    let limits = Limits { deadline: Duration::from_millis(200), ..Limits::default() };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    for sql in [
        "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 100000000) b",
        "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 100000000) b \
         WHERE a.value * b.value = 7",
        "SELECT count(*) FROM generate_series(1, 100000) a JOIN generate_series(1, 100000000) b \
         ON a.value % 2 = b.value % 2",
    ] {
        let engine = world();
        // More joins than threads.
        for _ in 0..2 * threads {
            let answer = block_on(engine.query(&Caller::Owner, sql, &limits));
            assert!(matches!(answer, Err(Error::Deadline(_))), "{sql}: {answer:?}");
        }
        let some = "SELECT count(*) AS n FROM generate_series(1, 3) a, generate_series(1, 5) b";
        // Without optimisation a batch of a join takes seconds, on a busy machine tens of them.
        let patient = Limits { deadline: Duration::from_secs(180), ..Limits::default() };
        let answer = block_on(engine.query(&Caller::Owner, some, &patient));
        assert_eq!(rows(&answer.expect("there is a thread for it")).1, ["15"], "{sql}");
    }
}

/// Size of the stack that a thread has by default.
const STACK_BYTES: usize = 2 << 20;

fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        let thread = thread.spawn_scoped(scope, work).expect("a thread");
        thread.join().expect("it ends")
    })
}

/// Returns statements of `depth` levels, one for each kind of nesting.
fn deep(depth: usize) -> [String; 8] {
    let chain = |item: &str, between: &str| vec![item; depth].join(between);
    [
        format!("SELECT {}", chain("1", " + ")),
        format!("SELECT topic FROM latest WHERE {}", chain("topic = 'n01/a'", " OR ")),
        chain("SELECT 1", " UNION ALL "),
        chain("SELECT value FROM latest", " UNION "),
        format!("SELECT count(*) FROM {}", chain("nodes", " CROSS JOIN ")),
        format!("SELECT {}1{}", "(".repeat(depth), ")".repeat(depth)),
        format!("SELECT {}", chain("CASE WHEN true THEN", " ") + " 1" + &" END".repeat(depth)),
        chain("EXPLAIN", " ") + " SELECT 1",
    ]
}

#[test]
fn deep_statements_do_not_overflow_the_stack() {
    let limits = Limits { deadline: std::time::Duration::from_secs(60), ..Limits::default() };
    for sql in deep(90) {
        on_a_thread(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            let answer =
                runtime.expect("a runtime").block_on(world().query(&Caller::Owner, &sql, &limits));
            let is_answered =
                matches!(&answer, Ok(_) | Err(Error::Syntax { .. } | Error::Query { .. }));
            assert!(is_answered, "{}: {answer:?}", &sql[..40]);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            let prepared =
                runtime.expect("a runtime").block_on(world().prepare(&Caller::Owner, &sql));
            assert_eq!(prepared.is_ok(), answer.is_ok(), "{}", &sql[..40]);
        });
    }
    for depth in [1_000, 10_000] {
        for sql in deep(depth) {
            let error = on_a_thread(|| fails(&sql, &limits));
            let is_refused = matches!(
                error,
                Error::TooDeep | Error::TooLong(_) | Error::Syntax { .. } | Error::NotAQuery(_)
            );
            assert!(is_refused, "{}: {error}", &sql[..40]);
        }
    }
}

#[test]
fn tables_that_double_each_other_are_refused() {
    let double =
        |at: usize| format!("t{at} AS (SELECT * FROM t{0} UNION ALL SELECT * FROM t{0})", at - 1);
    let doubled: Vec<String> = (1..40).map(double).collect();
    let with = format!("WITH t0 AS (SELECT 1), {} SELECT * FROM t39", doubled.join(", "));
    let inside = format!("SELECT count(*) FROM ({with}) a");
    let listed = format!("SELECT 1 FROM {}", vec!["nodes"; 500].join(", "));
    for sql in [with, inside, listed] {
        let error = fails(&sql, &Limits::default());
        assert!(matches!(error, Error::TooManyTables), "{error}");
    }
}

#[test]
fn the_papers_query_may_ask_for_thousands() {
    let select = "SELECT MAX(timestamp), metric FROM pfs_capacity";
    let sql = vec![select; 2_300].join(" UNION ");
    let answer = on_a_thread(|| ask(&world(), &sql));
    assert_eq!((answer.way, answer.rows()), (Way::Point, 1));
}

#[test]
fn each_limit_has_its_own_message() {
    let long =
        Limits { rows: usize::MAX, deadline: std::time::Duration::from_secs(3600), threads: 0 };
    let many = "SELECT a.v, b.v FROM generate_series(1, 100000) a(v) CROSS JOIN generate_series(1, 100000) b(v)";
    let wide = format!(
        "SELECT a.v, concat('{}', b.v) FROM generate_series(1, 10000) a(v) CROSS JOIN generate_series(1, 1000) b(v)",
        "x".repeat(1000),
    );
    let sorted = format!("{many} ORDER BY a.v + b.v");
    for (sql, limits, text, hint) in [
        (many, &Limits::default(), "the answer has more than 1000000 rows", "add `LIMIT n`"),
        (
            &wide,
            &long,
            "the query needs more memory than the 512 MiB that all queries share",
            "ask for less time",
        ),
        (
            &sorted,
            &long,
            "the query needs more memory than the 512 MiB that all queries share",
            "ask for less time",
        ),
    ] {
        let error = fails(sql, limits);
        let found = (error.to_string(), error.hint().unwrap_or_default());
        assert!(found.0 == text && found.1.starts_with(hint), "{sql}: {found:?}");
    }
    let gone = fails("SELECT repeat('x', 1000000000)", &Limits::default());
    assert!(gone.to_string().ends_with("there is no function `repeat`"), "{gone}");
}

#[test]
fn conditions_mean_what_standard_sql_says() {
    for (condition, expected) in [
        // A comparison with NULL is not true, whichever table decides it.
        ("topic NOT IN ('n01/mem/total_bytes', NULL)", "0"),
        ("metric NOT IN ('total_bytes', 'a', 'b', 'c', NULL)", "0"),
        ("metric IN ('total_bytes', NULL)", "1"),
        ("NULL", "0"),
        ("1 = 2", "0"),
        ("1 = 1", "8"),
        ("topic IN ('n01/mem/total_bytes', 'n01/mem/total_bytes')", "1"),
        // `AND` and `OR` are not operands of `IS DISTINCT FROM`.
        ("metric IS NOT DISTINCT FROM 'total_bytes' AND value < 0", "0"),
        ("metric IS NOT DISTINCT FROM 'total_bytes' AND value > 0", "1"),
        ("metric IS DISTINCT FROM 'total_bytes' AND node = 'n02'", "1"),
        ("NOT metric IS DISTINCT FROM 'total_bytes' OR node = 'n02'", "2"),
    ] {
        for table in ["samples", "latest_at('0s')", "latest"] {
            let expected = match (table, expected) {
                ("samples", expected) => expected,
                // The latest samples are five.
                (_, "8") => "5",
                (_, expected) => expected,
            };
            let sql = format!("SELECT count(*) FROM {table} WHERE {condition}");
            assert_eq!(rows(&ask(&world(), &sql)).1, [expected], "{sql}");
        }
    }
}

#[test]
fn metric_is_the_value_in_a_table_of_one_topic() {
    for (sql, expected) in [
        (
            "SELECT metric FROM n01_block_sda_read_bytes_total WHERE metric > 1 ORDER BY metric",
            &["2.0", "5.0"][..],
        ),
        ("SELECT count(*) FROM n01_block_sda_read_bytes_total WHERE metric IN (1, 5)", &["2"]),
        ("SELECT count(*) FROM n01_block_sda_read_bytes_total WHERE metric <> 5", &["2"]),
        ("SELECT count(*) FROM samples WHERE metric = 'read_bytes_total'", &["3"]),
    ] {
        assert_eq!(rows(&ask(&world(), sql)).1, expected, "{sql}");
    }
}

#[test]
fn each_round_of_a_recursive_query_reads_the_tables_anew() {
    for table in ["samples", "latest", "latest_at('0s')", "n01_block_sda_read_bytes_total"] {
        let sql = format!(
            "WITH RECURSIVE t AS (SELECT 0 AS n UNION ALL SELECT t.n + 1 FROM t \
             CROSS JOIN (SELECT count(*) AS c FROM {table}) WHERE t.n < 3 AND c > 0) \
             SELECT count(*) FROM t"
        );
        assert_eq!(rows(&ask(&world(), &sql)).1, ["4"], "{sql}");
    }
}

#[test]
fn there_is_one_zero_and_a_sliding_sum_keeps_small_numbers() {
    let zeros = "(VALUES (0.0), (-0.0), (1.0)) AS t(x)";
    for (sql, expected) in [
        (format!("SELECT count(DISTINCT x) AS n FROM {zeros}"), "2"),
        (format!("SELECT count(*) AS n FROM {zeros} GROUP BY x ORDER BY n"), "1,2"),
        (format!("SELECT count(*) AS n FROM {zeros} WHERE -x = 0.0"), "2"),
        (format!("SELECT count(DISTINCT x * -1.0) AS n FROM {zeros}"), "2"),
        (format!("SELECT count(*) AS n FROM {zeros} WHERE round(x - 0.4) < 0.0"), "0"),
        (
            "SELECT sum(x) OVER (ORDER BY at ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS n FROM \
             (VALUES (1, 1e17), (2, 1.0), (3, 1.0), (4, 1.0)) AS t(at, x) ORDER BY at"
                .to_owned(),
            "1e17,1e17,2.0,2.0",
        ),
        (
            "SELECT avg(x) OVER (ORDER BY at ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS n FROM \
             (VALUES (1, 1e17), (2, 3.0), (3, 5.0), (4, NULL), (5, NULL)) AS t(at, x) ORDER BY at"
                .to_owned(),
            // In alphabetical order.
            "1e17,4.0,5.0,5e16,NULL",
        ),
    ] {
        let (_, rows) = rows(&ask(&world(), &sql));
        assert_eq!(rows.join(","), expected, "{sql}");
    }
}

#[test]
fn lists_with_null_are_not_merged_as_if_it_were_not_there() {
    let numbers = "(VALUES (1.0), (7.0), (NULL)) AS t(x)";
    for (condition, expected) in [
        ("x IN (1.0, 2.0) AND x NOT IN (2.0, NULL)", "0"),
        ("NOT (x IN (7.0, NULL) OR x NOT IN (1.0, 7.0, NULL))", "0"),
        ("x NOT IN (1.0) OR x NOT IN (7.0)", "2"),
        ("(x NOT IN (1.0) OR x NOT IN (7.0)) IS NULL", "1"),
        ("(x IN (1.0) AND x IN (7.0)) IS NULL", "1"),
        ("x IN (1.0, NULL)", "1"),
        ("x NOT IN (1.0)", "1"),
    ] {
        let sql = format!("SELECT count(*) AS n FROM {numbers} WHERE {condition}");
        assert_eq!(rows(&ask(&world(), &sql)).1, [expected], "{condition}");
    }
}

#[test]
fn texts_and_lists_grow_to_a_limit() {
    let limits = Limits::default();
    let nested = |levels: usize| {
        let begin = "repeated".to_owned();
        (0..levels).fold(begin, |inner, _| format!("replace({inner}, 'a', 'aaaaaaaaaa')"))
    };
    let of = |expression: &str| {
        format!(
            "SELECT length({expression}) AS n FROM (SELECT topic || 'aaaaaaaa' AS repeated FROM latest)"
        )
    };
    let long = "x".repeat(50_000);
    let grown = |next: &str| {
        let steps = (1..40).map(|at| format!("t{at} AS (SELECT {next} AS x FROM t{})", at - 1));
        let steps: Vec<String> = steps.collect();
        format!(
            "WITH t0 AS (SELECT 'abcdefgh' AS x), {} SELECT length(x) FROM t39",
            steps.join(", ")
        )
    };
    for sql in [
        of(&nested(9)),
        of(&format!("replace(replace(repeated, 'a', '{long}'), 'x', '{long}')")),
        of(&format!("regexp_replace(repeated || repeat_me, '.', '{long}', 'g')"))
            .replace("repeat_me", &format!("'{}'", "y".repeat(2000))),
        grown("x || x"),
        grown("concat(x, x, x)"),
        // Some 110 MB in one batch of rows, whose texts are views between two calls.
        format!(
            "SELECT sum(length({})) FROM (SELECT 'abcdefghijklmnopqrstuvwxyz' || value AS x FROM generate_series(1, 8192))",
            (0..9).fold("x".to_owned(), |inner, _| format!("encode({inner}, 'hex')"))
        ),
        format!(
            "SELECT array_to_string(array_agg(topic), '{long}') FROM (SELECT value AS topic FROM generate_series(1, 5000))"
        ),
    ] {
        let error = fails(&sql, &limits);
        assert!(matches!(error, Error::Memory(_)), "{}: {error}", &sql[..sql.len().min(200)]);
    }
    for (sql, expected) in [
        ("SELECT 'a' || 'b' || 'c' AS x", "abc"),
        ("SELECT 'a' || NULL AS x", "NULL"),
        ("SELECT 'n' || 1 AS x", "n1"),
        ("SELECT concat('a', NULL, 'b') AS x", "ab"),
        ("SELECT replace('a/b/c', '/', '__') AS x", "a__b__c"),
        ("SELECT regexp_replace('a1b22', '[0-9]+', '-', 'g') AS x", "a-b-"),
        ("SELECT array_to_string([1] || [2, 3], '+') AS x", "1+2+3"),
    ] {
        assert_eq!(rows(&ask(&world(), sql)).1, [expected], "{sql}");
    }
}

#[test]
fn a_filter_after_a_join_reads_the_column_of_its_own_side() {
    let (left, right) =
        ("(VALUES (1, 1.0), (2, 9.0)) AS a(k, x)", "(VALUES (1, 5.0), (2, 5.0)) AS b(k, x)");
    for kind in ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"] {
        let sql = format!(
            "SELECT count(*) AS n FROM (SELECT * FROM {left}) a {kind} (SELECT * FROM {right}) b ON a.k = b.k \
             WHERE coalesce(a.x, 0.0) < b.x"
        );
        assert_eq!(rows(&ask(&world(), &sql)).1, ["1"], "{kind}");
    }
    let grouped =
        "SELECT count(*) AS n FROM latest GROUP BY ROLLUP (value > 0, date_trunc('minute', time))";
    ask(&world(), grouped);
}
