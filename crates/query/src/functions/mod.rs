//! Functions of this project, a file each, and other names for some of DataFusion's own.

pub(crate) mod placeholders;
pub(crate) mod growth;
pub(crate) mod has;
mod rate;
pub(crate) mod sliding;
mod topic_like;

use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::{Expr, Function};
use skopos_model::duration;

use self::placeholders::GAP_FILL;
use crate::ast::{self, is_named, parse_expression, plain_arguments, position_of};
use crate::error::Error;

pub(crate) use topic_like::{ESCAPE, TOPIC_LIKE};

/// Registers the functions, gives growing ones a bound, and removes those whose memory cannot be bounded.
pub(crate) fn register(context: &SessionContext) {
    context.register_udf(topic_like::topic_like());
    has::all().for_each(|condition| context.register_udf(condition));
    context.register_udaf(rate::of_counter());
    context.register_udaf(rate::difference());
    placeholders::all().for_each(|placeholder| context.register_udf(placeholder));
    for name in WITHOUT_BOUND {
        context.deregister_udf(name);
    }
    growth::register(context);
}

/// Names that DataFusion does not know, for suggestions.
pub(crate) const NAMES: [&str; 11] = [
    "time_bucket",
    "time_bucket_gapfill",
    "locf",
    "interpolate",
    "rate",
    "delta",
    "first",
    "last",
    "quantile",
    has::HAS,
    has::HAS_WORDS,
];

/// Returns true if a function exists only over a window.
pub(crate) fn is_window(name: &str) -> bool {
    WINDOWS.iter().any(|window| name.eq_ignore_ascii_case(window))
}

/// Functions that exist only over a window.
const WINDOWS: [&str; 8] =
    ["row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead"];

/// Functions that make a value of any size out of a number, in memory that DataFusion does not count.
const WITHOUT_BOUND: [&str; 9] = [
    "range",
    "generate_series",
    "array_repeat",
    "array_resize",
    "repeat",
    "lpad",
    "rpad",
    "list_repeat",
    "list_resize",
];

/// Returns the expression that a call of a function of this project means; `None` for other functions.
///
/// | written | means |
/// |---|---|
/// | `time_bucket('1m', time)` | `date_bin(INTERVAL '60000000 microseconds', time)` |
/// | `time_bucket_gapfill('1m', time)` | the placeholder with `now()`, for `operators::gapfill` |
/// | `last(x)`, `last(x, t)` | `last_value(x ORDER BY t)`; `t` is `time` unless given |
/// | `first(x)`, `first(x, t)` | `first_value(x ORDER BY t)` |
/// | `rate(x)`, `delta(x)` | the aggregate of values and times; `t` is `time` unless given |
/// | `quantile(x, q)` | `percentile_cont(x, q)` |
///
/// # Errors
/// A width is not a duration; the arguments are not those of the function.
pub(crate) fn standard(function: &Function) -> Result<Option<Expr>, Error> {
    let Some(arguments) = plain_arguments(function) else { return Ok(None) };
    let is = |name| is_named(function, name);
    let time = || arguments.get(1).map_or_else(|| "time".to_owned(), ToString::to_string);
    let text = match *arguments.as_slice() {
        [width, time] if is("time_bucket") => format!("date_bin({}, {time})", interval(width)?),
        [width, time] if is(GAP_FILL) => {
            format!("{GAP_FILL}({}, {time}, now())", interval(width)?)
        }
        [width, time, from, to] if is(GAP_FILL) => {
            format!("{GAP_FILL}({}, {time}, now(), {from}, {to})", interval(width)?)
        }
        [x] | [x, _] if is("last") => format!("last_value({x} ORDER BY {} NULLS FIRST)", time()),
        [x] | [x, _] if is("first") => format!("first_value({x} ORDER BY {} NULLS LAST)", time()),
        [x] | [x, _] if is("rate") || is("delta") => {
            let name = if is("rate") { rate::RATE } else { rate::DELTA };
            format!("{name}(CAST({x} AS DOUBLE), CAST({} AS BIGINT))", time())
        }
        [x, q] if is("quantile") => format!("percentile_cont({x}, {q})"),
        _ => return usage(function).map_or(Ok(None), |usage| Err(misused(function, usage))),
    };
    let Some(mut expression) = parse_expression(&text) else { return Ok(None) };
    if let Expr::Function(standard) = &mut expression {
        standard.filter.clone_from(&function.filter);
        standard.over.clone_from(&function.over);
    }
    Ok(Some(expression))
}

/// Returns how to call a function of this project.
fn usage(function: &Function) -> Option<&'static str> {
    let all = [
        ("time_bucket", "`time_bucket('1m', time)`"),
        (
            GAP_FILL,
            "`time_bucket_gapfill('1m', time)` or `time_bucket_gapfill('1m', time, from, to)`",
        ),
        ("last", "`last(x)` or `last(x, time)`"),
        ("first", "`first(x)` or `first(x, time)`"),
        ("rate", "`rate(x)` or `rate(x, time)`"),
        ("delta", "`delta(x)` or `delta(x, time)`"),
        ("quantile", "`quantile(x, 0.95)`"),
    ];
    all.into_iter().find_map(|(name, usage)| is_named(function, name).then_some(usage))
}

fn misused(function: &Function, usage: &str) -> Error {
    let at = position_of(function);
    Error::Syntax { at, message: format!("this function is called {usage}") }
}

/// Returns the width of a bucket as an interval of SQL.
fn interval(width: &Expr) -> Result<String, Error> {
    let parsed =
        ast::text(width).and_then(|text| duration::parse(text).ok()).map(|d| d.as_micros());
    match parsed.filter(|micros| *micros > 0) {
        Some(micros) => Ok(format!("INTERVAL '{micros} microseconds'")),
        None => {
            let at = position_of(width);
            let message =
                format!("{width} is not a width of a bucket: write it like '10s' or '5m'");
            Err(Error::Syntax { at, message })
        }
    }
}
