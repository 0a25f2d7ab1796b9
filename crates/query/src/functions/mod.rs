//! Functions beside DataFusion's own, a file each, and names that stand for some of its own.

mod rate;
mod topic_like;

use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Value,
};
use skopos_model::duration;

use crate::statement::{is_named, parse_expression};

pub(crate) use topic_like::TOPIC_LIKE;

/// Makes them known.
pub(crate) fn register(context: &SessionContext) {
    context.register_udf(topic_like::topic_like());
    context.register_udaf(rate::of_counter());
    context.register_udaf(rate::difference());
}

/// What a call of a function of this project stands for; `None` if it is none of those.
///
/// | written | means |
/// |---|---|
/// | `time_bucket('1m', time)` | `date_bin(INTERVAL '60000000 microseconds', time)` |
/// | `last(x)`, `last(x, t)` | `last_value(x ORDER BY t)`, by `time` if it is not said |
/// | `first(x)`, `first(x, t)` | `first_value(x ORDER BY t)` |
/// | `rate(x)`, `delta(x)` | with the times of the values, by `time` if it is not said |
/// | `quantile(x, q)` | `percentile_cont(x, q)` |
pub(crate) fn standard(function: &Function) -> Option<Expr> {
    let arguments = plain_arguments(function)?;
    let is = |name| is_named(function, name);
    let time = || arguments.get(1).map_or_else(|| "time".to_owned(), ToString::to_string);
    let text = match *arguments.as_slice() {
        [width, time] if is("time_bucket") => {
            let Expr::Value(text) = width else { return None };
            let Value::SingleQuotedString(text) = &text.value else { return None };
            let micros = duration::parse(text).ok()?.as_micros();
            format!("date_bin(INTERVAL '{micros} microseconds', {time})")
        }
        [x] | [x, _] if is("last") => format!("last_value({x} ORDER BY {} NULLS FIRST)", time()),
        [x] | [x, _] if is("first") => format!("first_value({x} ORDER BY {} NULLS LAST)", time()),
        [x] | [x, _] if is("rate") || is("delta") => {
            let name = if is("rate") { rate::RATE } else { rate::DELTA };
            format!("{name}(CAST({x} AS DOUBLE), CAST({} AS BIGINT))", time())
        }
        [x, q] if is("quantile") => format!("percentile_cont({x}, {q})"),
        _ => return None,
    };
    let mut expression = parse_expression(&text)?;
    if let Expr::Function(standard) = &mut expression {
        standard.filter.clone_from(&function.filter);
        standard.over.clone_from(&function.over);
    }
    Some(expression)
}

/// The arguments of a call that has nothing but such.
fn plain_arguments(function: &Function) -> Option<Vec<&Expr>> {
    let FunctionArguments::List(list) = &function.args else { return None };
    if !list.clauses.is_empty() || list.duplicate_treatment.is_some() {
        return None;
    }
    let plain = |argument| match argument {
        &FunctionArg::Unnamed(FunctionArgExpr::Expr(ref expr)) => Some(expr),
        _ => None,
    };
    list.args.iter().map(plain).collect()
}
