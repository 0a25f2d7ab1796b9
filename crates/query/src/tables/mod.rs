//! What there is to select from, by name.

mod anomalies;
pub(crate) mod columns;
mod insights;
pub(crate) mod pushdown;
mod made;
pub(crate) mod latest;
pub(crate) mod samples;
pub(crate) mod subset;
pub(crate) mod scan;
mod last;
pub(crate) mod kept;
pub(crate) mod latest_at;
mod small;
mod tasks;
mod wide;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::error::Result;
use skopos_model::{Topic, schema};

use self::anomalies::AnomalyTable;
use self::insights::InsightTable;
use self::latest::LatestTable;
use self::made::Made;
use self::samples::SampleTable;
use self::small::{Small, SmallTable};
use self::subset::Subset;
use self::tasks::{Reports, TaskTable};
use self::wide::WideTable;
use crate::source::{Source, Wanted};

/// Name of the only catalog.
pub const CATALOG: &str = "skopos";

/// Name of its only schema.
pub const SCHEMA: &str = "live";

/// Tables that are always there, but for those of families.
const FIXED: [&str; 9] =
    ["latest", "samples", "topics", "nodes", "insights", "anomalies", "self", "tasks", "jobs"];

/// All tables: fixed ones, a wide one for each family, one for each topic and for each alias.
#[derive(Debug)]
pub(crate) struct Tables {
    source: Arc<dyn Source>,
    aliases: BTreeMap<String, Topic>,
}

impl Tables {
    pub(crate) fn new(source: Arc<dyn Source>, aliases: BTreeMap<String, Topic>) -> Self {
        Self { source, aliases }
    }

    /// The topic that a table is of, if it is the table of one: by alias, by the topic itself, or by
    /// the topic with `_` for every character that a plain name cannot have, if that is only one.
    pub(crate) fn topic(&self, name: &str) -> Option<Topic> {
        if is_table(name) {
            return None;
        }
        if let Some(topic) = self.aliases.get(name) {
            return Some(topic.clone());
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
            // Nobody has it any more. What cannot be read now is told to who reads samples.
            for part in self.source.history(&pushdown::times(&[])).unwrap_or_default() {
                for stretch in part.stretches() {
                    look(&mut found, &stretch.series.topic);
                }
            }
        }
        if found.len() == 1 { found.pop_first() } else { None }
    }

    fn fixed(&self, name: &str) -> Option<Arc<dyn TableProvider>> {
        let source = self.source.clone();
        let below = |part| Made(LatestTable::new(source.clone(), Subset::Below(part)));
        Some(match name {
            "latest" => Arc::new(Made(LatestTable::new(source, Subset::All))),
            "samples" => Arc::new(SampleTable::new(source, Subset::All)),
            "insights" => Arc::new(Made(InsightTable::new(source))),
            "self" => Arc::new(below("self")),
            "anomalies" => Arc::new(AnomalyTable::new(source)),
            "topics" => Arc::new(Made(SmallTable::new(source, Small::Topics))),
            "nodes" => Arc::new(Made(SmallTable::new(source, Small::Nodes))),
            "tasks" => Arc::new(TaskTable::new(source, Reports::Tasks)),
            "jobs" => Arc::new(TaskTable::new(source, Reports::Jobs)),
            _ => return None,
        })
    }

    /// Every name, topics among them: for suggestions.
    pub(crate) fn all_names(&self) -> Vec<String> {
        let mut names = self.table_names();
        self.source.topics(&Wanted::All, &mut |described| names.push(described.topic.to_string()));
        names
    }
}

/// Whether a table has this name whatever is published, so that nothing else can.
pub fn is_table(name: &str) -> bool {
    FIXED.contains(&name) || family(name).is_some()
}

pub(crate) fn family(name: &str) -> Option<&'static schema::Family> {
    // `self` is of all of the product's own facts, not of one family.
    schema::FAMILIES.iter().find(|family| family.name == name && !FIXED.contains(&name)).copied()
}

/// A topic as a plain name.
fn plain(topic: &Topic) -> impl Iterator<Item = char> {
    let is_plain = |c: &char| c.is_ascii_alphanumeric();
    topic.as_str().chars().map(move |c| if is_plain(&c) { c } else { '_' })
}

#[async_trait]
impl SchemaProvider for Tables {
    fn table_names(&self) -> Vec<String> {
        let families = schema::FAMILIES.iter().map(|family| family.name);
        let fixed = FIXED.into_iter().chain(families.filter(|name| !FIXED.contains(name)));
        fixed.map(str::to_owned).chain(self.aliases.keys().cloned()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some(table) = self.fixed(name) {
            return Ok(Some(table));
        }
        let source = self.source.clone();
        if let Some(family) = family(name) {
            return Ok(Some(Arc::new(Made(WideTable::new(source, family)))));
        }
        let topic = self.topic(name);
        Ok(topic.map(|topic| Arc::new(SampleTable::of_topic(source, topic)) as _))
    }

    fn table_exist(&self, name: &str) -> bool {
        FIXED.contains(&name) || family(name).is_some() || self.topic(name).is_some()
    }
}
