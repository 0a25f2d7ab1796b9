//! The registry: the tables of an engine.
//!
//! # Invariants
//! - Each name belongs to one table; the second registration of a name is an error.
//! - The engine knows a registered table by [`Table`] alone.
//! - A look-up by name allocates nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use skopos_model::{Topic, schema, unpoisoned};

use crate::column::Column;
use crate::error::Error;
use crate::source::Source;
use crate::table::Table;
use crate::tables::{
    ColumnListing, LatestTable, Listed, Listing, NodeTable, RegisteredTable, SampleTable,
    TableListing, TopicTable, WideTable,
};

/// The tables of an engine: those over its source, and those that other crates register.
#[derive(Debug)]
pub struct Registry {
    pub(crate) source: Arc<dyn Source>,
    /// In the order of their registration.
    pub(crate) names: Vec<String>,
    pub(crate) tables: BTreeMap<String, Arc<dyn TableProvider>>,
    pub(crate) aliases: BTreeMap<String, Topic>,
    /// Tables in pieces.
    pub(crate) pieced: BTreeMap<String, Arc<dyn Table>>,
    listing: Listing,
}

impl Registry {
    /// Returns a registry with the tables over `source`: `latest`, `samples`, `topics`, `nodes`, `self`, one
    /// for each family of facts, and `tables` and `columns`, which describe all tables.
    pub fn new(source: Arc<dyn Source>) -> Self {
        let listing = Listing::default();
        let mut registry = Self {
            source: source.clone(),
            names: Vec::new(),
            tables: BTreeMap::new(),
            aliases: BTreeMap::new(),
            pieced: BTreeMap::new(),
            listing: listing.clone(),
        };
        registry.insert(LatestTable::all(source.clone()));
        let samples = SampleTable::all(source.clone());
        let help = "Every sample in memory, on disk and on other nodes".to_owned();
        registry.insert_as("samples", help, samples.columns(), Arc::new(samples));
        registry.insert(TopicTable::new(source.clone()));
        registry.insert(NodeTable::new(source.clone()));
        registry.insert(LatestTable::of_this_product(source.clone()));
        registry.insert(TableListing::new(listing.clone()));
        registry.insert(ColumnListing::new(listing));
        // The table `self` has more topics than the family `self`.
        for family in schema::FAMILIES.iter().filter(|family| family.name != "self") {
            registry.insert(WideTable::new(source.clone(), family));
        }
        registry
    }

    /// Registers a table.
    ///
    /// # Errors
    /// Another table has its name; its name or one of its columns cannot be used.
    pub fn register(&mut self, table: impl Table) -> Result<(), Error> {
        check(&table)?;
        self.check_name(table.name())?;
        self.insert(table);
        Ok(())
    }

    /// Registers `name` as the table of one topic.
    ///
    /// # Errors
    /// Another table has this name.
    pub fn alias(&mut self, name: &str, topic: Topic) -> Result<(), Error> {
        self.check_name(name)?;
        let table = SampleTable::of_topic(self.source.clone(), topic.clone());
        let help = format!("Samples of the topic {topic}");
        self.insert_as(name, help, table.columns(), Arc::new(table));
        self.aliases.insert(name.to_owned(), topic);
        Ok(())
    }

    fn check_name(&self, name: &str) -> Result<(), Error> {
        match self.tables.contains_key(name) {
            true => Err(Error::TableExists(name.to_owned())),
            false => Ok(()),
        }
    }

    fn insert(&mut self, table: impl Table) {
        let (name, help) = (table.name().to_owned(), table.help().to_owned());
        let columns = table.columns().to_vec();
        let table: Arc<dyn Table> = Arc::new(table);
        if table.in_pieces().is_some() {
            self.pieced.insert(name.clone(), table.clone());
        }
        self.insert_as(&name, help, columns, Arc::new(RegisteredTable::new(table)));
    }

    fn insert_as(
        &mut self,
        name: &str,
        help: String,
        columns: Vec<Column>,
        table: Arc<dyn TableProvider>,
    ) {
        self.names.push(name.to_owned());
        self.tables.insert(name.to_owned(), table);
        unpoisoned(self.listing.write()).push(Listed { name: name.to_owned(), help, columns });
    }
}

/// Checks the name and the columns of a table.
fn check(table: &dyn Table) -> Result<(), Error> {
    let wrong = |problem: String| Error::Table { name: table.name().to_owned(), problem };
    let is_lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let is_plain = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(is_lower)
    };
    let rule = "a name is a lower-case letter, then lower-case letters, digits and `_`";
    if !is_plain(table.name()) {
        return Err(wrong(format!("it cannot be selected without quotes; {rule}")));
    }
    let columns = table.columns();
    if columns.is_empty() {
        return Err(wrong("it has no columns; a table has at least one".to_owned()));
    }
    for (at, column) in columns.iter().enumerate() {
        let name = column.name();
        if !is_plain(name) {
            return Err(wrong(format!("its column `{name}` needs quotes; {rule}")));
        }
        if columns[..at].iter().any(|other| other.name() == name) {
            return Err(wrong(format!("two of its columns are `{name}`; names must differ")));
        }
    }
    Ok(())
}
