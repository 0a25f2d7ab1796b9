//! Columns of tables: name, type, unit and help.

use std::borrow::Cow;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use skopos_model::Unit;

/// Time zone of all times.
pub(crate) const UTC: &str = "UTC";

/// A column of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    name: Cow<'static, str>,
    data_type: DataType,
    unit: Option<Unit>,
    help: Cow<'static, str>,
}

impl Column {
    /// Returns a column of any type. `help` says in one sentence what a value is.
    pub fn new(
        name: impl Into<Cow<'static, str>>,
        data_type: DataType,
        help: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { name: name.into(), data_type, unit: None, help: help.into() }
    }

    /// Returns a column of texts.
    pub fn text(name: impl Into<Cow<'static, str>>, help: impl Into<Cow<'static, str>>) -> Self {
        Self::new(name, DataType::Utf8, help)
    }

    /// Returns a column of whole numbers.
    pub fn integer(name: impl Into<Cow<'static, str>>, help: impl Into<Cow<'static, str>>) -> Self {
        Self::new(name, DataType::Int64, help)
    }

    /// Returns a column of doubles in `unit`.
    pub fn number(
        name: impl Into<Cow<'static, str>>,
        unit: Unit,
        help: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { unit: Some(unit), ..Self::new(name, DataType::Float64, help) }
    }

    /// Returns a column of times: nanoseconds in UTC.
    pub fn time(name: impl Into<Cow<'static, str>>, help: impl Into<Cow<'static, str>>) -> Self {
        Self::new(name, time_type(), help)
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the type of the values.
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// Returns the unit of the values, of numbers that have one.
    pub fn unit(&self) -> Option<Unit> {
        self.unit.filter(|unit| *unit != Unit::NONE)
    }

    /// Returns the sentence that says what a value is.
    pub fn help(&self) -> &str {
        &self.help
    }

    pub(crate) fn field(&self) -> Field {
        Field::new(self.name.clone(), self.data_type.clone(), true)
    }
}

/// The type of times.
pub(crate) fn time_type() -> DataType {
    DataType::Timestamp(TimeUnit::Nanosecond, Some(UTC.into()))
}

/// Returns columns as Arrow has them; every column may be `NULL`.
pub(crate) fn schema_of<'c>(columns: impl IntoIterator<Item = &'c Column>) -> SchemaRef {
    let fields: Vec<Field> = columns.into_iter().map(Column::field).collect();
    SchemaRef::new(Schema::new(fields))
}
