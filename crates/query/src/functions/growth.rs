//! Bounds on functions whose result can be larger than their arguments.
//!
//! DataFusion counts the memory of its operators, and not that of an expression: six nested `replace` would take
//! gigabytes. These functions estimate the bytes of their result before they build it.

use std::sync::Arc;

use datafusion::arrow::array::{Array as _, AsArray as _, StringArray, StringBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::cast::as_string_array;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Documentation, Expr, ExprSchemable as _, LogicalPlan, Operator,
    ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::prelude::SessionContext;

/// The most bytes that one call builds for one batch of rows: eight kilobytes for each of its rows.
const MAX_BYTES: usize = 64 << 20;

/// Bytes of a number as text, and of what a list keeps beside an element.
const ELEMENT_BYTES: usize = 32;

/// Functions whose result can be larger than their arguments, with how it grows.
const GROWING: [(&str, Growth); 15] = [
    ("concat", Growth::Sum),
    ("concat_ws", Growth::Separated),
    ("overlay", Growth::Sum),
    ("encode", Growth::Doubled),
    ("replace", Growth::Replaced),
    ("regexp_replace", Growth::Replaced),
    ("array_to_string", Growth::Separated),
    ("string_to_array", Growth::Listed),
    ("make_array", Growth::Sum),
    ("array_concat", Growth::Sum),
    ("array_append", Growth::Sum),
    ("array_prepend", Growth::Sum),
    ("array_union", Growth::Sum),
    ("array_replace_all", Growth::Replaced),
    ("struct", Growth::Sum),
];

/// Growth of a result with its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Growth {
    /// It has at most the bytes of all arguments.
    Sum,
    /// Each byte may become two hexadecimal digits.
    Doubled,
    /// Each part of the first argument may become the longest value of the others.
    Replaced,
    /// A short argument stands between the elements of the others.
    Separated,
    /// Each byte may become an element.
    Listed,
}

/// Registers the functions with their bounds.
pub(super) fn register(context: &SessionContext) {
    let state = context.state();
    for (name, growth) in GROWING {
        if let Some(inner) = state.scalar_functions().get(name) {
            context.register_udf(ScalarUDF::from(Bounded { inner: inner.clone(), growth }));
        }
    }
}

/// A function with a bound on its result.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Bounded {
    inner: Arc<ScalarUDF>,
    growth: Growth,
}

impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(arguments)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.inner().coerce_types(types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        check(self.name(), self.growth.bytes(&arguments.args, arguments.number_rows))?;
        self.inner.invoke_with_args(arguments)
    }
}

impl Growth {
    /// Returns an upper bound of the bytes of a result.
    fn bytes(self, arguments: &[ColumnarValue], rows: usize) -> usize {
        let bytes = |argument: &ColumnarValue| match argument {
            // The size of a slice has no texts of views.
            ColumnarValue::Array(array) => match array.data_type() {
                DataType::Utf8View | DataType::BinaryView => array.get_array_memory_size(),
                _ => array.to_data().get_slice_memory_size().unwrap_or(usize::MAX),
            },
            ColumnarValue::Scalar(scalar) => scalar.size().saturating_mul(rows),
        };
        let all = arguments.iter().map(bytes).fold(0, usize::saturating_add);
        let (Some(first), others) = (arguments.first(), arguments.get(1..).unwrap_or_default())
        else {
            return 0;
        };
        let longest = |arguments: &[ColumnarValue]| arguments.iter().map(longest).max();
        match self {
            Self::Sum => all,
            Self::Doubled => all.saturating_mul(2),
            // A part may be empty, between any two bytes and at the end of each row.
            Self::Replaced => {
                let parts = bytes(first).saturating_add(rows);
                all.saturating_add(parts.saturating_mul(longest(others).unwrap_or_default()))
            }
            Self::Separated => {
                let longest = arguments.iter().filter(|one| is_text(one)).map(self::longest);
                let each = longest.max().unwrap_or_default().saturating_add(ELEMENT_BYTES);
                let elements =
                    arguments.iter().map(|one| elements(one, rows)).fold(0, usize::saturating_add);
                all.saturating_add(elements.saturating_mul(each))
            }
            Self::Listed => all.saturating_mul(ELEMENT_BYTES),
        }
    }
}

fn check(name: &str, bytes: usize) -> Result<()> {
    match bytes <= MAX_BYTES {
        true => Ok(()),
        false => Err(DataFusionError::ResourcesExhausted(format!(
            "`{name}` could make {} MiB at once, and {} MiB are the most",
            bytes >> 20,
            MAX_BYTES >> 20
        ))),
    }
}

fn is_text(argument: &ColumnarValue) -> bool {
    argument.data_type().is_string()
}

/// Returns the number of elements of lists, or of values.
fn elements(argument: &ColumnarValue, rows: usize) -> usize {
    match argument {
        ColumnarValue::Array(array) => {
            array.as_list_opt::<i32>().map_or(array.len(), |lists| lists.values().len())
        }
        ColumnarValue::Scalar(ScalarValue::List(list)) => list.values().len().saturating_mul(rows),
        ColumnarValue::Scalar(_) => rows,
    }
}

/// Returns the length of the longest text; of other values, the bytes of all.
fn longest(argument: &ColumnarValue) -> usize {
    match argument {
        ColumnarValue::Scalar(scalar) => match scalar.try_as_str() {
            Some(text) => text.map_or(0, str::len),
            None => scalar.size(),
        },
        ColumnarValue::Array(array) => match texts(array.as_ref()) {
            Some(texts) => texts.iter().flatten().map(str::len).max().unwrap_or_default(),
            None => array.get_array_memory_size(),
        },
    }
}

fn texts(array: &dyn datafusion::arrow::array::Array) -> Option<StringArray> {
    if !array.data_type().is_string() {
        return None;
    }
    let array = cast(array, &DataType::Utf8).ok()?;
    as_string_array(&array).ok().cloned()
}

/// The rule that gives the operator `||` of texts its bound.
#[derive(Debug)]
pub(crate) struct BoundedJoin;

impl AnalyzerRule for BoundedJoin {
    fn name(&self) -> &str {
        "bounded_join"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let join = Arc::new(ScalarUDF::from(Join::new()));
        let in_plan = |plan: LogicalPlan| {
            let (schema, names) = (merge_schema(&plan.inputs()), NamePreserver::new(&plan));
            plan.map_expressions(|expression| {
                // The plan above knows the parts of a grouping set by their names, which they would lose.
                if matches!(expression, Expr::GroupingSet(_)) {
                    return Ok(Transformed::no(expression));
                }
                let name = names.save(&expression);
                let changed =
                    expression.transform_up(|part| Ok(in_expression(part, &schema, &join)))?;
                Ok(changed.update_data(|expression| name.restore(expression)))
            })
        };
        Ok(plan.transform_up_with_subqueries(in_plan)?.data)
    }
}

fn in_expression(expression: Expr, schema: &DFSchema, join: &Arc<ScalarUDF>) -> Transformed<Expr> {
    match expression {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right })
            if [&left, &right]
                .iter()
                .all(|side| side.get_type(schema).is_ok_and(|data_type| data_type.is_string())) =>
        {
            let function = ScalarFunction::new_udf(join.clone(), vec![*left, *right]);
            Transformed::yes(Expr::ScalarFunction(function))
        }
        other => Transformed::no(other),
    }
}

/// The operator `||` of texts: NULL if one of them is.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Join {
    signature: Signature,
}

impl Join {
    fn new() -> Self {
        Self { signature: Signature::string(2, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Join {
    fn name(&self) -> &str {
        "||"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        check(self.name(), Growth::Sum.bytes(&arguments.args, arguments.number_rows))?;
        let is_constant = arguments.args.iter().all(|one| matches!(one, ColumnarValue::Scalar(_)));
        let sides = ColumnarValue::values_to_arrays(&arguments.args)?;
        let sides: Vec<_> =
            sides.iter().map(|side| cast(side, &DataType::Utf8)).collect::<Result<_, _>>()?;
        let (left, right) = (as_string_array(&sides[0])?, as_string_array(&sides[1])?);
        let mut joined = StringBuilder::new();
        for (left, right) in left.iter().zip(right) {
            joined.append_option(left.zip(right).map(|(left, right)| [left, right].concat()));
        }
        let joined = joined.finish();
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&joined, 0)?),
            false => ColumnarValue::Array(Arc::new(joined)),
        })
    }
}
