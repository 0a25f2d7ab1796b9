//! Statements with parameters: parsed and planned once, run many times with different values.
//!
//! A parameter stands for a value and not for a name. With its values a statement may be a point read,
//! and is then run as one.

use std::ops::ControlFlow;

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::{Field, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::{Statement, Value, ValueWithSpan, VisitMut as _, VisitorMut};

use crate::ast::name_columns;
use crate::catalog::Catalog;
use crate::error::Error;
use crate::opaque::Opaque;
use crate::parameters::number;
use crate::point::Point;

/// A statement that was parsed and planned.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub(crate) sql: String,
    /// The syntax tree, with `$n` for every parameter.
    pub(crate) statement: Opaque<Parsed>,
    pub(crate) plan: Opaque<LogicalPlan>,
    pub(crate) schema: SchemaRef,
    pub(crate) parameters: SchemaRef,
    /// True if the statement may be a point read once it has values.
    pub(crate) may_be_point: bool,
}

impl Prepared {
    /// Returns the text of the statement.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// Returns the columns of the answer. The type of a column may depend on values.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns a field for each parameter in order; its type is null if the parameter may be of any type.
    pub fn parameters(&self) -> &SchemaRef {
        &self.parameters
    }

    /// Returns the one row of `values`, with a column for each parameter.
    pub(crate) fn scalars(&self, values: &RecordBatch) -> Result<Vec<ScalarValue>, Error> {
        let wanted = self.parameters.fields().len();
        if values.num_columns() != wanted {
            return Err(Error::Parameters { wanted, given: values.num_columns() });
        }
        if wanted > 0 && values.num_rows() != 1 {
            return Err(Error::ParameterRows(values.num_rows()));
        }
        let scalar = |column: &ArrayRef| {
            ScalarValue::try_from_array(column, 0)
                .map_err(|e| Error::Query { message: e.strip_backtrace() })
        };
        values.columns().iter().map(scalar).collect()
    }

    /// Returns the point read that the statement is with these values.
    pub(crate) fn point(&self, values: &[ScalarValue], catalog: &Catalog) -> Option<Point> {
        if !self.may_be_point {
            return None;
        }
        let literals: Option<Vec<Value>> = values.iter().map(literal).collect();
        compile_bound(&self.statement, &literals?, catalog)
    }
}

/// Returns true if a statement is a point read with some values of the types of its parameters.
pub(crate) fn may_be_point(statement: &Parsed, parameters: &SchemaRef, catalog: &Catalog) -> bool {
    let examples: Vec<Value> = parameters.fields().iter().map(|field| example(field)).collect();
    compile_bound(statement, &examples, catalog).is_some()
}

fn compile_bound(statement: &Parsed, values: &[Value], catalog: &Catalog) -> Option<Point> {
    let Parsed::Statement(inner) = statement else { return None };
    let mut inner: Box<Statement> = inner.clone();
    // Before values are bound: an unnamed column has the text of the statement as its name.
    if let Statement::Query(query) = &mut *inner {
        name_columns(&mut query.body);
    }
    let _ = inner.visit(&mut Bind(values));
    let bound = Parsed::Statement(inner);
    Point::compile(&bound.to_string(), &bound, catalog)
}

/// Replaces parameters by values.
struct Bind<'v>(&'v [Value]);

impl VisitorMut for Bind<'_> {
    type Break = ();

    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<()> {
        if let Value::Placeholder(name) = &value.value
            && let Some(bound) = number(name).and_then(|n| self.0.get(n - 1))
        {
            value.value = bound.clone();
        }
        ControlFlow::Continue(())
    }
}

/// Returns a value as a literal of SQL; `None` if a literal cannot express it exactly.
fn literal(value: &ScalarValue) -> Option<Value> {
    if let Some(text) = value.try_as_str() {
        return Some(Value::SingleQuotedString(text?.to_owned()));
    }
    match value {
        ScalarValue::Int8(_)
        | ScalarValue::Int16(_)
        | ScalarValue::Int32(_)
        | ScalarValue::Int64(_)
        | ScalarValue::UInt8(_)
        | ScalarValue::UInt16(_)
        | ScalarValue::UInt32(_)
            if !value.is_null() =>
        {
            Some(Value::Number(value.to_string(), false))
        }
        ScalarValue::Float64(Some(number)) if number.is_finite() => {
            Some(Value::Number(format!("{number:?}"), false))
        }
        _ => None,
    }
}

/// Returns some value that a parameter may have.
fn example(parameter: &Field) -> Value {
    match parameter.data_type().is_numeric() {
        true => Value::Number("1".to_owned(), false),
        false => Value::SingleQuotedString("x".to_owned()),
    }
}
