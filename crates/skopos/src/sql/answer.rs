//! An answer as a table, JSON, CSV, Markdown, tab-separated text or an Arrow stream.

use std::io::{self, Write};
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use skopos_query::arrow::array::RecordBatch;
use skopos_query::arrow::datatypes::DataType;
use skopos_query::arrow::error::ArrowError;
use skopos_query::arrow::util::display::{ArrayFormatter, FormatOptions};
use skopos_query::arrow::{csv, ipc, json};
use skopos_query::{Answer, Way};

use crate::failure::Failure;
use crate::out::{Out, tell};

/// What an answer is printed as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns.
    Table,
    /// One document, `docs/json/sql.schema.json`.
    Json,
    /// RFC 4180, with a head.
    Csv,
    /// Fields between tabs, without a head.
    Plain,
    /// A Markdown table.
    Md,
    /// An Arrow IPC stream.
    Arrow,
}

/// Before the rows of the JSON document.
#[derive(Serialize)]
struct Head<'a> {
    columns: Vec<ColumnJson<'a>>,
}

#[derive(Serialize)]
struct ColumnJson<'a> {
    name: &'a str,
    r#type: String,
}

/// Prints it.
pub(crate) fn show(
    answer: &Answer,
    format: Format,
    took: Duration,
    out: &mut Out,
) -> Result<(), Failure> {
    let shown = match format {
        Format::Table => table(answer, took, out),
        Format::Md => markdown(answer, out),
        Format::Plain => plain(answer, out),
        Format::Json => json(answer, took, out),
        Format::Csv => csv(answer, out),
        Format::Arrow => arrow(answer, out),
    };
    if !answer.missing.is_empty() {
        // The answer is still one; who reads it by program finds the names in the document.
        tell(format!(
            "warning: partial answer, without the history of {}",
            answer.missing.join(", ")
        ));
    }
    match shown.and_then(|()| Ok(out.flush()?)) {
        Ok(()) => Ok(()),
        Err(ArrowError::IoError(_, e)) => Err(e.into()),
        Err(e) => Err(Failure::new("the answer cannot be shown").because(&e)),
    }
}

fn cells(batch: &RecordBatch, null: &str) -> Result<Vec<Vec<String>>, ArrowError> {
    let options = FormatOptions::default().with_null(null);
    let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let row = |at| columns.iter().map(|column| column.value(at).try_to_string()).collect();
    (0..batch.num_rows()).map(row).collect()
}

pub(super) fn all_cells(answer: &Answer, null: &str) -> Result<Vec<Vec<String>>, ArrowError> {
    let mut rows = Vec::with_capacity(answer.rows());
    for batch in &answer.batches {
        rows.extend(cells(batch, null)?);
    }
    Ok(rows)
}

fn names(answer: &Answer) -> Vec<String> {
    answer.schema.fields().iter().map(|field| field.name().clone()).collect()
}

fn table(answer: &Answer, took: Duration, out: &mut Out) -> Result<(), ArrowError> {
    let rows = all_cells(answer, "NULL")?;
    let count = rows.len();
    let is_number = |at: &usize| answer.schema.field(*at).data_type().is_numeric();
    let right: Vec<usize> = (0..answer.schema.fields().len()).filter(is_number).collect();
    let all: Vec<Vec<String>> = [names(answer)].into_iter().chain(rows).collect();
    out.table(&all, &right)?;
    let rows = if count == 1 { "row" } else { "rows" };
    let how = if answer.way == Way::Point { ", from memory" } else { "" };
    let note = format!("{count} {rows} in {took:.1?}{how}");
    out.line(out.dim(&note))?;
    Ok(())
}

fn plain(answer: &Answer, out: &mut Out) -> Result<(), ArrowError> {
    for row in all_cells(answer, "")? {
        out.line(row.join("\t"))?;
    }
    Ok(())
}

fn markdown(answer: &Answer, out: &mut Out) -> Result<(), ArrowError> {
    let line = |cells: Vec<String>| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |", cells.join(" | "))
    };
    out.line(line(names(answer)))?;
    let rule = |field: &DataType| if field.is_numeric() { "---:" } else { "---" };
    let rules = answer.schema.fields().iter().map(|f| rule(f.data_type()).to_owned());
    out.line(line(rules.collect()))?;
    for row in all_cells(answer, "")? {
        out.line(line(row))?;
    }
    Ok(())
}

fn json(answer: &Answer, took: Duration, out: &mut Out) -> Result<(), ArrowError> {
    let column = |field: &'_ std::sync::Arc<_>| -> String {
        let field: &skopos_query::arrow::datatypes::Field = field;
        field.data_type().to_string()
    };
    let fields = answer.schema.fields();
    let columns = fields.iter().map(|f| ColumnJson { name: f.name(), r#type: column(f) });
    let head = serde_json::to_string(&Head { columns: columns.collect() });
    let head = head.map_err(io::Error::other)?;
    let way = if answer.way == Way::Point { "point" } else { "planned" };
    let mut writer = out.writer();
    // The rows are written as they are, so that a long answer is not in memory twice.
    write!(writer, "{},\"rows\":", head.trim_end_matches('}'))?;
    let builder = json::WriterBuilder::new().with_explicit_nulls(true);
    let mut rows = builder.build::<_, json::writer::JsonArray>(&mut writer);
    rows.write_batches(&answer.batches.iter().collect::<Vec<_>>())?;
    rows.finish()?;
    drop(rows);
    let missing = serde_json::to_string(&answer.missing).map_err(io::Error::other)?;
    let took = took.as_secs_f64();
    writeln!(writer, ",\"way\":\"{way}\",\"missing\":{missing},\"elapsed_seconds\":{took:.6}}}")?;
    Ok(())
}

fn csv(answer: &Answer, out: &mut Out) -> Result<(), ArrowError> {
    let mut writer = csv::WriterBuilder::new().with_header(true).build(out.writer());
    let empty = RecordBatch::new_empty(answer.schema.clone());
    let nothing = answer.batches.is_empty().then_some(&empty);
    nothing.into_iter().chain(&answer.batches).try_for_each(|batch| writer.write(batch))
}

fn arrow(answer: &Answer, out: &mut Out) -> Result<(), ArrowError> {
    let mut writer = ipc::writer::StreamWriter::try_new(out.writer(), &answer.schema)?;
    answer.batches.iter().try_for_each(|batch| writer.write(batch))?;
    writer.finish()
}
