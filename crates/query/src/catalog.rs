//! The catalog of an engine: look-up of tables by name. A topic is a table, too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::error::Result;
use skopos_model::Topic;

use crate::registry::Registry;
use crate::source::{Source, Wanted};
use crate::tables::{SampleTable, times};

/// Name of the only catalog.
pub const CATALOG: &str = "skopos";

/// Name of its only schema.
pub const SCHEMA: &str = "live";

/// Registered tables, and a table for each topic.
#[derive(Debug)]
pub(crate) struct Catalog {
    source: Arc<dyn Source>,
    names: Vec<String>,
    tables: BTreeMap<String, Arc<dyn TableProvider>>,
    aliases: BTreeMap<String, Topic>,
}

impl From<Registry> for Catalog {
    fn from(registry: Registry) -> Self {
        let Registry { source, names, tables, aliases, .. } = registry;
        Self { source, names, tables, aliases }
    }
}

impl Catalog {
    pub(crate) fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// Returns the topic of a table of one topic. Its name is an alias, the topic itself, or the topic with
    /// `_` for every character that an unquoted name cannot have, if only one topic has that form.
    pub(crate) fn topic(&self, name: &str) -> Option<Topic> {
        if let Some(topic) = self.aliases.get(name) {
            return Some(topic.clone());
        }
        if self.tables.contains_key(name) {
            return None;
        }
        let wanted = match Topic::new(name) {
            Ok(topic) if name.contains('/') => Wanted::These(vec![topic]),
            _ => Wanted::All,
        };
        let is_it = |topic: &Topic| match wanted {
            Wanted::All => plain(topic).eq(name.chars()),
            _ => topic.as_str() == name,
        };
        let mut found = BTreeSet::new();
        let look = |found: &mut BTreeSet<Topic>, topic: &Topic| {
            if is_it(topic) {
                found.insert(topic.clone());
            }
        };
        self.source.topics(&wanted, &mut |described| look(&mut found, described.topic));
        if found.is_empty() && self.source.has_history() {
            // The topic may be on disk alone. An error here is reported when samples are read.
            for part in self.source.history(&times(&[])).unwrap_or_default().parts {
                for stretch in part.stretches() {
                    look(&mut found, &stretch.series.topic);
                }
            }
        }
        if found.len() == 1 { found.pop_first() } else { None }
    }

    /// Returns the names of all tables, those of topics included.
    pub(crate) fn all_names(&self) -> Vec<String> {
        let mut names = self.table_names();
        self.source.topics(&Wanted::All, &mut |described| names.push(described.topic.to_string()));
        names
    }
}

/// Returns the characters of a topic, with `_` for each that an unquoted name cannot have.
fn plain(topic: &Topic) -> impl Iterator<Item = char> {
    let is_plain = |c: &char| c.is_ascii_alphanumeric();
    topic.as_str().chars().map(move |c| if is_plain(&c) { c } else { '_' })
}

#[async_trait]
impl SchemaProvider for Catalog {
    fn table_names(&self) -> Vec<String> {
        self.names.clone()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some(table) = self.tables.get(name) {
            return Ok(Some(table.clone()));
        }
        let topic = self.topic(name);
        Ok(topic.map(|topic| Arc::new(SampleTable::of_topic(self.source.clone(), topic)) as _))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.tables.contains_key(name) || self.topic(name).is_some()
    }
}
