//! An answer as a table, JSON, CSV, Markdown, tab-separated text or an Arrow stream.

use std::io::Write;
use std::time::Duration;

use clap::ValueEnum;
use skopos_query::arrow::array::RecordBatch;
use skopos_query::arrow::csv;
use skopos_query::arrow::datatypes::DataType;
use skopos_query::arrow::error::ArrowError;
use skopos_query::arrow::util::display::{ArrayFormatter, FormatOptions};
use skopos_query::{Answer, Way};

use skopos_hub::pieces::{JsonRows, arrow};
use skopos_term::format::printable;
use skopos_term::{Failure, Out, tell};

/// The most missing nodes that a warning names, so that it fits into a line. The JSON document names all.
const NAMES_SHOWN: usize = 5;

/// The format of a printed answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns.
    Table,
    /// Each row as lines of a column's name and its value.
    Expanded,
    /// One document, `docs/json/sql.schema.json`.
    Json,
    /// Comma-separated values (RFC 4180), with a head.
    Csv,
    /// Fields between tabs, without a head.
    Plain,
    /// A Markdown table.
    Md,
    /// An Arrow IPC stream.
    Arrow,
}

/// Prints the answer.
pub(crate) fn show(
    answer: &Answer,
    format: Format,
    took: Duration,
    out: &mut Out,
) -> Result<(), Failure> {
    let shown = match format {
        Format::Table => table(answer, took, out),
        Format::Expanded => expanded(answer, took, out),
        Format::Md => markdown(answer, out),
        Format::Plain => plain(answer, out),
        Format::Json => json(answer, took, out.writer()),
        Format::Csv => csv(answer, out),
        Format::Arrow => arrow(&answer.schema, &answer.batches, out.writer()),
    };
    if !answer.missing.is_empty() {
        // A partial answer is not a failure; programs find the missing nodes in the JSON document.
        let missing = printable(&some_of(&answer.missing));
        tell(format!("warning: partial answer, without the history of {missing}"));
    }
    match shown.and_then(|()| Ok(out.flush()?)) {
        Ok(()) => Ok(()),
        Err(ArrowError::IoError(_, e)) => Err(e.into()),
        Err(e) => Err(Failure::new("the answer cannot be shown").because(&e)),
    }
}

/// Joins names for people: the first few, and the number of the others.
fn some_of(names: &[String]) -> String {
    let shown = names[..names.len().min(NAMES_SHOWN)].join(", ");
    match names.len().saturating_sub(NAMES_SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

pub(crate) fn cells(batch: &RecordBatch, null: &str) -> Result<Vec<Vec<String>>, ArrowError> {
    let options = FormatOptions::default().with_null(null);
    let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    // Users and processes chose many texts, and a cell must not end its line or steer the terminal.
    let cell = |column: &ArrayFormatter<'_>, at| {
        column.value(at).try_to_string().map(|text| printable(&text))
    };
    let row = |at| columns.iter().map(|column| cell(column, at)).collect();
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
    out.line(out.dim(&note(answer, count, took)))?;
    Ok(())
}

fn note(answer: &Answer, count: usize, took: Duration) -> String {
    let rows = if count == 1 { "row" } else { "rows" };
    let how = if answer.way == Way::Point { ", from memory" } else { "" };
    format!("{count} {rows} in {took:.1?}{how}")
}

fn expanded(answer: &Answer, took: Duration, out: &mut Out) -> Result<(), ArrowError> {
    let (names, rows) = (names(answer), all_cells(answer, "NULL")?);
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    for (at, row) in rows.iter().enumerate() {
        out.line(out.dim(&format!("-[ row {} ]-", at + 1)))?;
        for (name, cell) in names.iter().zip(row) {
            out.line(format!("{name:width$} | {cell}"))?;
        }
    }
    out.line(out.dim(&note(answer, rows.len(), took)))?;
    Ok(())
}

/// Returns the number of lines that [`show`] prints, if no cell is wider than the screen.
pub(super) fn lines(answer: &Answer, format: Format) -> usize {
    match format {
        Format::Expanded => answer.rows() * (answer.schema.fields().len() + 1) + 1,
        _ => answer.rows() + 2,
    }
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

fn json(answer: &Answer, took: Duration, writer: &mut impl Write) -> Result<(), ArrowError> {
    let mut rows = JsonRows::new(answer, took)?;
    for batch in &answer.batches {
        writer.write_all(&rows.piece(batch)?)?;
    }
    writer.write_all(&rows.end()?)?;
    Ok(())
}

fn csv(answer: &Answer, out: &mut Out) -> Result<(), ArrowError> {
    let mut writer = csv::WriterBuilder::new().with_header(true).build(out.writer());
    let empty = RecordBatch::new_empty(answer.schema.clone());
    let nothing = answer.batches.is_empty().then_some(&empty);
    nothing.into_iter().chain(&answer.batches).try_for_each(|batch| writer.write(batch))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_cell_has_no_character_that_a_terminal_obeys() {
        use skopos_query::arrow::array::StringArray;
        use skopos_query::arrow::datatypes::{Field, Schema};
        let schema = Schema::new(vec![Field::new("job", DataType::Utf8, true)]);
        let texts = StringArray::from(vec![Some("4\u{202e}7\u{1b}[2J\n"), None]);
        let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(texts)]).expect("a batch");
        let expected = [["4\\u{202e}7\\u{1b}[2J\\n"], ["NULL"]];
        assert_eq!(cells(&batch, "NULL").expect("cells"), expected);
    }

    #[test]
    fn a_warning_names_a_few_and_counts_the_others() {
        let names = |count| (1..=count).map(|n| format!("n{n}")).collect::<Vec<_>>();
        assert_eq!(some_of(&names(1)), "n1");
        assert_eq!(some_of(&names(5)), "n1, n2, n3, n4, n5");
        assert_eq!(some_of(&names(205)), "n1, n2, n3, n4, n5 and 200 more");
    }
}
