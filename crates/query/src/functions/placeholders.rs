//! Functions that stand for an operator, until a rule has put it in their place (`whole`).

use datafusion::arrow::datatypes::DataType;
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// Around the condition of an `ASOF` join.
pub(crate) const AS_OF: &str = "match_condition";
/// Buckets with nothing left out.
pub(crate) const GAP_FILL: &str = "time_bucket_gapfill";
/// The last value carried forward.
pub(crate) const LOCF: &str = "locf";
/// The value on the line between those around.
pub(crate) const INTERPOLATE: &str = "interpolate";

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = ScalarUDF> {
    [AS_OF, GAP_FILL, LOCF, INTERPOLATE].into_iter().map(|name| {
        let takes = match name {
            GAP_FILL => vec![3, 5],
            _ => vec![1],
        };
        let takes = takes.into_iter().map(datafusion::logical_expr::TypeSignature::Any).collect();
        // Volatile, so that nothing is moved or computed before it is found.
        ScalarUDF::from(Mark { name, signature: Signature::one_of(takes, Volatility::Volatile) })
    })
}

/// The arguments of a mark.
pub(crate) fn arguments_of<'e>(expr: &'e Expr, name: &str) -> Option<&'e [Expr]> {
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, args }) if func.name() == name => Some(args),
        Expr::Alias(alias) => arguments_of(&alias.expr, name),
        _ => None,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Mark {
    name: &'static str,
    signature: Signature,
}

impl ScalarUDFImpl for Mark {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(match (self.name, types) {
            (AS_OF, _) => DataType::Boolean,
            (GAP_FILL, [_, time, ..]) => time.clone(),
            (LOCF, [value]) => value.clone(),
            _ => DataType::Float64,
        })
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match self.name {
            AS_OF => plan_err!("MATCH_CONDITION belongs to an ASOF JOIN"),
            GAP_FILL => {
                plan_err!("{GAP_FILL} is one of the columns of a SELECT, which is grouped by it")
            }
            name => plan_err!("{name} stands in a SELECT that is grouped by {GAP_FILL}"),
        }
    }
}
