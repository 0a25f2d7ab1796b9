//! Listings for clients that show a user the catalog, its schemas, tables and columns.

use std::sync::Arc;

use arrow_flight::error::{FlightError, Result};
use arrow_flight::sql::{
    CommandGetCatalogs, CommandGetDbSchemas, CommandGetTableTypes, CommandGetTables,
};
use skopos_access::Caller;
use skopos_query::arrow::array::RecordBatch;
use skopos_query::arrow::datatypes::{DataType, Field, Schema};
use skopos_query::{CATALOG, Engine, SCHEMA};

use super::flow::plain;
use super::status;

/// The type of every table.
const TABLE_TYPE: &str = "TABLE";

/// The longest pattern for names: longer than every name.
const MAX_PATTERN_BYTES: usize = 1024;

/// Lists catalogs.
pub(super) fn catalogs(query: CommandGetCatalogs) -> Result<RecordBatch> {
    let mut rows = query.into_builder();
    rows.append(CATALOG);
    rows.build()
}

/// Lists schemas.
pub(super) fn schemas(query: CommandGetDbSchemas) -> Result<RecordBatch> {
    let mut rows = query.into_builder();
    rows.append(CATALOG, SCHEMA);
    rows.build()
}

/// Lists types of tables.
pub(super) fn table_types(query: CommandGetTableTypes) -> Result<RecordBatch> {
    let mut rows = query.into_builder();
    rows.append(TABLE_TYPE);
    rows.build()
}

/// Lists tables. A topic is a table too, but there are many of them, so a topic is listed only if the client names it.
pub(super) async fn tables(
    engine: &Engine,
    caller: &Caller,
    query: CommandGetTables,
) -> Result<RecordBatch> {
    let topic = query.table_name_filter_pattern.clone();
    let topic = topic.filter(|name| name.len() <= MAX_PATTERN_BYTES && name.contains('/'));
    let with_schema = query.include_schema;
    let mut rows = query.into_builder();
    for name in engine.table_names().into_iter().chain(topic) {
        let schema = match with_schema || name.contains('/') {
            true => match engine.table_schema(caller, &name).await {
                Ok(Some(schema)) => plain(&schema),
                Ok(None) => continue,
                Err(e) => return Err(FlightError::Tonic(Box::new(status::of(&e)))),
            },
            false => Arc::new(Schema::empty()),
        };
        rows.append(CATALOG, SCHEMA, name, TABLE_TYPE, &schema)?;
    }
    rows.build()
}

/// Kinds of keys that clients ask for. No table has keys, so the listings are empty.
#[derive(Clone, Copy)]
pub(super) enum Keys {
    /// Primary keys.
    Primary,
    /// Foreign keys.
    Foreign,
}

/// Returns an empty listing of keys with its columns.
pub(super) fn keys(which: Keys) -> RecordBatch {
    let text = |name: &str, nullable| Field::new(name, DataType::Utf8, nullable);
    let column = |prefix: &str| {
        [
            text(&format!("{prefix}catalog_name"), true),
            text(&format!("{prefix}db_schema_name"), true),
            text(&format!("{prefix}table_name"), false),
            text(&format!("{prefix}column_name"), false),
        ]
    };
    let mut fields = Vec::new();
    match which {
        Keys::Primary => {
            fields.extend(column(""));
            fields.push(text("key_name", true));
            fields.push(Field::new("key_sequence", DataType::Int32, false));
        }
        Keys::Foreign => {
            fields.extend(column("pk_"));
            fields.extend(column("fk_"));
            fields.push(Field::new("key_sequence", DataType::Int32, false));
            fields.extend(["fk_key_name", "pk_key_name"].map(|name| text(name, true)));
            let rule = |name| Field::new(name, DataType::UInt8, false);
            fields.extend(["update_rule", "delete_rule"].map(rule));
        }
    }
    RecordBatch::new_empty(Arc::new(Schema::new(fields)))
}
