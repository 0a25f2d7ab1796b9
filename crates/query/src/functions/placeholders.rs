//! Placeholders: functions that stand for an operator until a rule replaces them (`operators`).

use datafusion::arrow::datatypes::DataType;
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// The placeholder around the condition of an `ASOF` join.
pub(crate) const AS_OF: &str = "match_condition";
/// The placeholder for buckets without gaps.
pub(crate) const GAP_FILL: &str = "time_bucket_gapfill";
/// The placeholder for the last value, carried forward.
pub(crate) const LOCF: &str = "locf";
/// The placeholder for the value on the line between those around.
pub(crate) const INTERPOLATE: &str = "interpolate";

/// Returns all placeholders.
pub(crate) fn all() -> impl Iterator<Item = ScalarUDF> {
    [AS_OF, GAP_FILL, LOCF, INTERPOLATE].into_iter().map(|name| {
        let takes = match name {
            GAP_FILL => vec![3, 5],
            _ => vec![1],
        };
        let takes = takes.into_iter().map(datafusion::logical_expr::TypeSignature::Any).collect();
        // Volatile, so that the optimiser neither moves nor computes a placeholder.
        ScalarUDF::from(Placeholder {
            name,
            signature: Signature::one_of(takes, Volatility::Volatile),
        })
    })
}

/// Returns the arguments of a placeholder of this name.
pub(crate) fn arguments_of<'e>(expr: &'e Expr, name: &str) -> Option<&'e [Expr]> {
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, args }) if func.name() == name => Some(args),
        Expr::Alias(alias) => arguments_of(&alias.expr, name),
        _ => None,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Placeholder {
    name: &'static str,
    signature: Signature,
}

impl ScalarUDFImpl for Placeholder {
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
            AS_OF => plan_err!("MATCH_CONDITION has to stand in an ASOF JOIN"),
            GAP_FILL => {
                plan_err!("{GAP_FILL} has to be a column of a SELECT that is grouped by it")
            }
            name => plan_err!("{name} has to stand in a SELECT that is grouped by {GAP_FILL}"),
        }
    }
}
