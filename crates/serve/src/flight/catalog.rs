//! What clients ask to show a user what there is: catalogs, schemas, tables and their columns.

use std::sync::Arc;

use arrow_flight::error::Result;
use arrow_flight::sql::{
    CommandGetCatalogs, CommandGetDbSchemas, CommandGetTableTypes, CommandGetTables,
};
use skopos_query::arrow::array::RecordBatch;
use skopos_query::arrow::datatypes::{DataType, Field, Schema};
use skopos_query::{CATALOG, Engine, SCHEMA};

use super::flow::plain;

/// What every table is called by its kind.
const TABLE_TYPE: &str = "TABLE";

/// The longest pattern of a name that is looked for: the longest name, and some more.
const MAX_PATTERN_BYTES: usize = 1024;

pub(super) fn catalogs(query: CommandGetCatalogs) -> Result<RecordBatch> {
    let mut rows = query.into_builder();
    rows.append(CATALOG);
    rows.build()
}

pub(super) fn schemas(query: CommandGetDbSchemas) -> Result<RecordBatch> {
    let mut rows = query.into_builder();
    rows.append(CATALOG, SCHEMA);
    rows.build()
}

pub(super) fn table_types(query: CommandGetTableTypes) -> Result<RecordBatch> {
    let mut rows = query.into_builder();
    rows.append(TABLE_TYPE);
    rows.build()
}

/// The tables. A topic is a table too, but there are many: it is listed for whoever asks for it by name.
pub(super) async fn tables(engine: &Engine, query: CommandGetTables) -> Result<RecordBatch> {
    let asked = query.table_name_filter_pattern.clone();
    let asked = asked.filter(|name| name.len() <= MAX_PATTERN_BYTES && name.contains('/'));
    let with_schema = query.include_schema;
    let mut rows = query.into_builder();
    for name in engine.table_names().into_iter().chain(asked) {
        let schema = match with_schema || name.contains('/') {
            true => match engine.table_schema(&name).await {
                Some(schema) => plain(&schema),
                None => continue,
            },
            false => Arc::new(Schema::empty()),
        };
        rows.append(CATALOG, SCHEMA, name, TABLE_TYPE, &schema)?;
    }
    rows.build()
}

/// What clients ask of keys. There are none, which is an answer.
#[derive(Clone, Copy)]
pub(super) enum Keys {
    Primary,
    Foreign,
}

pub(super) fn keys(which: Keys) -> RecordBatch {
    let text = |name: &str, nullable| Field::new(name, DataType::Utf8, nullable);
    let place = |of: &str| {
        [
            text(&format!("{of}catalog_name"), true),
            text(&format!("{of}db_schema_name"), true),
            text(&format!("{of}table_name"), false),
            text(&format!("{of}column_name"), false),
        ]
    };
    let mut fields = Vec::new();
    match which {
        Keys::Primary => {
            fields.extend(place(""));
            fields.push(text("key_name", true));
            fields.push(Field::new("key_sequence", DataType::Int32, false));
        }
        Keys::Foreign => {
            fields.extend(place("pk_"));
            fields.extend(place("fk_"));
            fields.push(Field::new("key_sequence", DataType::Int32, false));
            fields.extend(["fk_key_name", "pk_key_name"].map(|name| text(name, true)));
            let rule = |name| Field::new(name, DataType::UInt8, false);
            fields.extend(["update_rule", "delete_rule"].map(rule));
        }
    }
    RecordBatch::new_empty(Arc::new(Schema::new(fields)))
}
