//! The catalog of an engine: look-up of tables by name. A topic is a table, too.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::error::Result;
use skopos_model::Topic;

use crate::plain_names::PlainNames;
use crate::registry::Registry;
use crate::source::{Source, Wanted};
use crate::table::Table as _;
use crate::tables::{RegisteredTable, SampleTable, SharedLatest, times};

/// Name of the only catalog.
pub const CATALOG: &str = "skopos";

/// Name of its only schema.
pub const SCHEMA: &str = "live";

/// Number of topics with which a misspelt name is compared: those of some two hundred nodes.
const MAX_COMPARED: usize = 65_536;

/// Registered tables, and a table for each topic.
#[derive(Debug)]
pub(crate) struct Catalog {
    source: Arc<dyn Source>,
    names: Vec<String>,
    tables: BTreeMap<String, Arc<dyn TableProvider>>,
    aliases: BTreeMap<String, Topic>,
    plain_names: Arc<PlainNames>,
}

impl From<Registry> for Catalog {
    fn from(registry: Registry) -> Self {
        let Registry { source, names, tables, aliases, .. } = registry;
        Self { source, names, tables, aliases, plain_names: Arc::default() }
    }
}

impl Catalog {
    /// Returns a catalog with `latest` for standing questions.
    pub(crate) fn with_latest(&self, latest: Arc<SharedLatest>) -> Self {
        let mut tables = self.tables.clone();
        tables.insert(latest.name().to_owned(), Arc::new(RegisteredTable::new(latest)));
        Self {
            source: self.source.clone(),
            names: self.names.clone(),
            tables,
            aliases: self.aliases.clone(),
            plain_names: self.plain_names.clone(),
        }
    }

    pub(crate) fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// Returns the topic of a table of one topic. Its name is an alias, the topic itself, or the topic with
    /// `_` for every character that an unquoted name cannot have, if only one topic has that form.
    pub(crate) fn topic(&self, name: &str) -> Option<Topic> {
        self.topic_if(name, |topic| self.is_live(topic) || self.is_stored(topic))
    }

    /// Returns the topic of a table of one topic that has live samples. It reads no history, whose parts take long to list.
    pub(crate) fn live_topic(&self, name: &str) -> Option<Topic> {
        self.topic_if(name, |topic| self.is_live(topic))
    }

    fn topic_if(&self, name: &str, exists: impl Fn(&Topic) -> bool) -> Option<Topic> {
        if let Some(topic) = self.aliases.get(name) {
            return Some(topic.clone());
        }
        if self.tables.contains_key(name) {
            return None;
        }
        match Topic::new(name) {
            Ok(topic) if name.contains('/') => exists(&topic).then_some(topic),
            _ => self.plain_names.topic(&*self.source, name),
        }
    }

    fn is_live(&self, topic: &Topic) -> bool {
        let mut is_live = false;
        let wanted = Wanted::These(vec![topic.clone()]);
        self.source.topics(&wanted, &mut |described| is_live |= described.topic == topic);
        is_live
    }

    /// Returns true if a topic is on disk. An error of the disk is reported when samples are read.
    fn is_stored(&self, topic: &Topic) -> bool {
        if !self.source.has_history() {
            return false;
        }
        let parts = self.source.history(&times(&[])).unwrap_or_default().parts;
        parts.iter().any(|part| {
            let stretches = part.stretches();
            let at = stretches.partition_point(|stretch| stretch.series.topic < *topic);
            stretches.get(at).is_some_and(|stretch| stretch.series.topic == *topic)
        })
    }

    /// Returns the names of all tables, and of as many topics as a misspelt name is compared with.
    pub(crate) fn all_names(&self) -> Vec<String> {
        let mut names = self.table_names();
        let most = names.len() + MAX_COMPARED;
        self.source.topics(&Wanted::All, &mut |described| {
            if names.len() < most {
                names.push(described.topic.to_string());
            }
        });
        names
    }
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
