//! Statements with parameters: read and planned once, asked many times with other values.
//!
//! A parameter is `?`, counted from the left, or `$1`, `$2`, …; it stands for a value, not for a name.
//! With its values a statement may be one that a point read answers, and then it is.

use std::ops::ControlFlow;

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::{Statement, Value, ValueWithSpan, VisitMut as _, VisitorMut};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use std::sync::Arc;
use tokio::time::Instant;

use crate::Error;
use crate::engine::{Answer, Engine, Limits, Way, within};
use crate::point::Point;
use crate::statement::{name_columns, parse_with_parameters};
use crate::stream::Stream;

/// The most parameters of one statement: what an `IN` of a thousand topics needs.
pub const MAX_PARAMETERS: usize = 1024;

/// A statement that was read and planned.
#[derive(Debug)]
pub struct Prepared {
    sql: String,
    /// With `$n` for every parameter.
    statement: Parsed,
    plan: LogicalPlan,
    schema: SchemaRef,
    parameters: SchemaRef,
    /// Whether a point read may answer it once it has values.
    may_be_point: bool,
}

impl Prepared {
    /// The statement as it was written.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// The columns of the answer, as far as they can be told without values.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// A field for each parameter, in their order; of type null if it may be of any type.
    pub fn parameters(&self) -> &SchemaRef {
        &self.parameters
    }
}

impl Engine {
    /// Reads and plans a statement.
    ///
    /// # Errors
    /// It is no question that can be answered.
    pub async fn prepare(&self, sql: &str) -> Result<Prepared, Error> {
        let (statement, count) = self.parsed(sql, parse_with_parameters).await?;
        let plan = self.plan(sql, statement.clone()).await?;
        let types = plan.get_parameter_fields().map_err(|e| self.explained(e, sql))?;
        let field = |at: usize| {
            let name = format!("${at}");
            let data_type = match types.get(&name) {
                Some(Some(field)) => field.data_type().clone(),
                _ => DataType::Null,
            };
            FieldRef::new(Field::new(name, data_type, true))
        };
        let parameters: SchemaRef =
            Arc::new(Schema::new((1..=count).map(field).collect::<Vec<_>>()));
        let schema = self.schema_of(sql, plan.clone()).await?;
        // Also `:name`, which no token tells.
        if let Some(other) = types.keys().find(|name| number(name).is_none()) {
            return Err(Error::Parameter(other.clone()));
        }
        let sample: Vec<Value> = parameters.fields().iter().map(|f| sample(f)).collect();
        let may_be_point = self.compile_bound(&statement, &sample).is_some();
        Ok(Prepared { sql: sql.to_owned(), statement, plan, schema, parameters, may_be_point })
    }

    /// The answer with these values, if it can be had at once; see [`point`](Self::point).
    pub fn point_prepared(&self, prepared: &Prepared, values: &RecordBatch) -> Option<Answer> {
        let scalars = scalars(prepared, values).ok()?;
        match scalars.is_empty() {
            true => self.point(&prepared.sql),
            false => self.point_bound(prepared, &scalars),
        }
    }

    /// The answer with these values: one row, a column for each parameter in their order.
    ///
    /// # Errors
    /// As [`stream`](Self::stream); there are more or fewer values than parameters.
    pub async fn stream_prepared(
        &self,
        prepared: &Prepared,
        values: &RecordBatch,
        limits: &Limits,
    ) -> Result<Stream, Error> {
        let begun = Instant::now();
        let scalars = scalars(prepared, values)?;
        if scalars.is_empty() {
            return self.stream(&prepared.sql, limits).await;
        }
        if let Some(answer) = self.point_bound(prepared, &scalars) {
            return Stream::of(answer, limits);
        }
        let plan = self.bound(prepared, scalars)?;
        self.start(&prepared.sql, plan, limits, begun).await
    }

    /// The columns of the answer with these values.
    ///
    /// # Errors
    /// As [`stream_prepared`](Self::stream_prepared).
    pub async fn describe_prepared(
        &self,
        prepared: &Prepared,
        values: &RecordBatch,
        limits: &Limits,
    ) -> Result<SchemaRef, Error> {
        let scalars = scalars(prepared, values)?;
        if scalars.is_empty() {
            return within(limits.deadline, self.describe(&prepared.sql)).await;
        }
        if let Some(answer) = self.point_bound(prepared, &scalars) {
            return Ok(answer.schema);
        }
        self.schema_of(&prepared.sql, self.bound(prepared, scalars)?).await
    }

    fn bound(&self, prepared: &Prepared, values: Vec<ScalarValue>) -> Result<LogicalPlan, Error> {
        let plan = prepared.plan.clone().with_param_values(ParamValues::from(values));
        plan.map_err(|e| self.explained(e, &prepared.sql))
    }

    fn point_bound(&self, prepared: &Prepared, values: &[ScalarValue]) -> Option<Answer> {
        if !prepared.may_be_point {
            return None;
        }
        let literals: Option<Vec<Value>> = values.iter().map(literal).collect();
        let point = self.compile_bound(&prepared.statement, &literals?)?;
        let batch = self.read(&point)?;
        let schema = batch.schema();
        let batches = if batch.num_rows() == 0 { Vec::new() } else { vec![batch] };
        Some(Answer { schema, batches, way: Way::Point, missing: Vec::new() })
    }

    fn compile_bound(&self, statement: &Parsed, values: &[Value]) -> Option<Point> {
        let Parsed::Statement(inner) = statement else { return None };
        let mut inner: Box<Statement> = inner.clone();
        // What has no name is called as it was written, without values.
        if let Statement::Query(query) = &mut *inner {
            name_columns(&mut query.body);
        }
        let _ = inner.visit(&mut Bind(values));
        let bound = Parsed::Statement(inner);
        Point::compile(&bound.to_string(), &bound, &self.tables)
    }
}

/// Puts values where the parameters are.
struct Bind<'v>(&'v [Value]);

impl VisitorMut for Bind<'_> {
    type Break = ();

    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<()> {
        if let Value::Placeholder(name) = &value.value
            && let Some(found) = number(name).and_then(|n| self.0.get(n - 1))
        {
            value.value = found.clone();
        }
        ControlFlow::Continue(())
    }
}

/// The values of a row; as many as there are parameters.
fn scalars(prepared: &Prepared, values: &RecordBatch) -> Result<Vec<ScalarValue>, Error> {
    let wanted = prepared.parameters.fields().len();
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

/// A value as the statement would have it; `None` if only a plan can have it.
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

/// Some value that a parameter may have.
fn sample(parameter: &Field) -> Value {
    match parameter.data_type().is_numeric() {
        true => Value::Number("1".to_owned(), false),
        false => Value::SingleQuotedString("x".to_owned()),
    }
}

/// The number of a parameter that is written `$n`.
fn number(name: &str) -> Option<usize> {
    name.strip_prefix('$')?.parse().ok().filter(|n| (1..=MAX_PARAMETERS).contains(n))
}

/// Gives every `?` its number, counted from the left, and says how many parameters there are.
///
/// # Errors
/// The first that is neither `?` nor `$n`; both kinds in one statement; a number that is left out.
pub(crate) fn number_parameters(tokens: &mut [TokenWithSpan]) -> Result<usize, Error> {
    let (mut questions, mut numbers) = (0, Vec::new());
    for token in tokens {
        let Token::Placeholder(name) = &mut token.token else { continue };
        if name == "?" {
            questions += 1;
            *name = format!("${questions}");
        } else if let Some(number) = number(name) {
            numbers.push(number);
        } else {
            return Err(Error::Parameter(name.clone()));
        }
        if questions > MAX_PARAMETERS || (questions > 0 && !numbers.is_empty()) {
            return Err(Error::Parameter(name.clone()));
        }
    }
    let count = numbers.iter().copied().max().unwrap_or(questions);
    match (1..=count).find(|n| questions == 0 && !numbers.contains(n)) {
        Some(missing) => Err(Error::Parameter(format!("${missing}"))),
        None => Ok(count),
    }
}
