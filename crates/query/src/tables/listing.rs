//! `tables` and `columns`: every table that the engine has, with its help.

use std::sync::{Arc, RwLock};

use datafusion::arrow::array::{ArrayRef, StringArray};
use skopos_model::unpoisoned;

use crate::column::Column;
use crate::rows::{BoxError, Rows};
use crate::scan::Scan;
use crate::table::{Fingerprint, Table};

/// The description of one table.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) help: String,
    pub(crate) columns: Vec<Column>,
}

/// The descriptions of all tables; registration adds to them.
pub(crate) type Listing = Arc<RwLock<Vec<Listed>>>;

/// The table `tables`.
#[derive(Debug)]
pub(crate) struct TableListing {
    columns: [Column; 3],
    listing: Listing,
}

/// The table `columns`.
#[derive(Debug)]
pub(crate) struct ColumnListing {
    columns: [Column; 5],
    listing: Listing,
}

impl TableListing {
    pub(crate) fn new(listing: Listing) -> Self {
        let columns = [
            Column::text("name", "Name of the table"),
            Column::text("help", "Meaning of a row"),
            Column::text("columns", "Names of the columns, with commas between them"),
        ];
        Self { columns, listing }
    }
}

impl ColumnListing {
    pub(crate) fn new(listing: Listing) -> Self {
        let columns = [
            Column::text("table_name", "Name of the table"),
            Column::text("name", "Name of the column"),
            Column::text("type", "Type of the values"),
            Column::text("unit", "Unit of the values, of numbers that have one"),
            Column::text("help", "Meaning of a value"),
        ];
        Self { columns, listing }
    }
}

/// Returns a batch of texts, from its rows.
fn texts<const N: usize>(
    scan: &Scan,
    rows: impl IntoIterator<Item = [Option<String>; N]>,
) -> Result<Rows, BoxError> {
    let mut columns: [Vec<Option<String>>; N] = [const { Vec::new() }; N];
    for row in rows {
        columns.iter_mut().zip(row).for_each(|(column, cell)| column.push(cell));
    }
    let columns = columns.map(|column| Arc::new(StringArray::from(column)) as ArrayRef);
    Ok(Rows::of(scan.select(&columns)?))
}

impl Table for TableListing {
    fn name(&self) -> &str {
        "tables"
    }

    fn help(&self) -> &str {
        "Tables of this engine; each topic is a table, too"
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn scan(&self, scan: &Scan) -> Result<Rows, BoxError> {
        let listing = unpoisoned(self.listing.read());
        texts(
            scan,
            listing.iter().map(|table| {
                let names: Vec<&str> = table.columns.iter().map(Column::name).collect();
                [table.name.clone(), table.help.clone(), names.join(", ")].map(Some)
            }),
        )
    }

    fn fingerprint(&self, _scan: &Scan) -> Fingerprint {
        Fingerprint::Version(0)
    }
}

impl Table for ColumnListing {
    fn name(&self) -> &str {
        "columns"
    }

    fn help(&self) -> &str {
        "Columns of the tables of this engine, with type, unit and meaning"
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn scan(&self, scan: &Scan) -> Result<Rows, BoxError> {
        let listing = unpoisoned(self.listing.read());
        let all = listing.iter().flat_map(|table| table.columns.iter().map(move |c| (table, c)));
        texts(
            scan,
            all.map(|(table, column)| {
                [
                    Some(table.name.clone()),
                    Some(column.name().to_owned()),
                    Some(column.data_type().to_string()),
                    column.unit().map(|unit| unit.as_str().to_owned()),
                    Some(column.help().to_owned()),
                ]
            }),
        )
    }

    fn fingerprint(&self, _scan: &Scan) -> Fingerprint {
        Fingerprint::Version(0)
    }
}
