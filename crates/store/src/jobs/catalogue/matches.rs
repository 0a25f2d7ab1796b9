//! A filter on an entry in memory: for running jobs, and to check what databases answer.

use skopos_model::Timestamp;

use super::super::entry::JobEntry;
use super::filter::{Amount, Filter};
use super::words;

/// Returns true if a time is known and in a range, or if there is no range.
fn is_in(range: Option<(Timestamp, Timestamp)>, time: Option<Timestamp>) -> bool {
    range.is_none_or(|(from, to)| time.is_some_and(|time| (from..=to).contains(&time)))
}

impl Filter {
    /// Returns true if an entry passes, as it does in every catalogue.
    pub fn matches(&self, entry: &JobEntry) -> bool {
        let start = entry.start.as_ref().map(|start| &start.value);
        let is = |asked: &Option<String>, value: Option<&str>| {
            asked.as_ref().is_none_or(|asked| value.unwrap_or_default() == asked)
        };
        let is_known = |asked: &Option<String>, value: Option<&str>| {
            asked.as_ref().is_none_or(|asked| value == Some(asked))
        };
        let tags = entry.all_tags();
        self.visibility.shows(entry.user(), entry.project())
            && is(&self.site, Some(&entry.site))
            && is(&self.job, Some(entry.id.job()))
            && (self.ids.is_empty() || self.ids.contains(entry.id.job()))
            && self.generation.is_none_or(|asked| entry.id.generation() == asked)
            && is_known(&self.user, entry.user())
            && is_known(&self.project, entry.project())
            && is(&self.application, start.map(|start| start.application.as_str()))
            && is(&self.queue, start.map(|start| start.queue.as_str()))
            && self.host.as_ref().is_none_or(|host| entry.nodes.contains(host))
            && self.ran.is_none_or(|(from, to)| {
                entry.started().is_some_and(|started| started <= to)
                    && entry.ended().is_none_or(|ended| ended >= from)
            })
            && is_in(self.started, entry.started())
            && is_in(self.ended, entry.started().and(entry.ended()))
            && (self.states.is_empty() || self.states.contains(&entry.state()))
            && (self.exit_types.is_empty()
                || entry.exit_type().is_some_and(|exit| self.exit_types.contains(&exit)))
            && self.tags.iter().all(|tag| tags.contains(tag.as_str()))
            && self.resources.iter().all(|range| {
                let name = range.resource.name;
                let value = match range.amount {
                    Amount::Used => entry.used(name),
                    Amount::Requested => start.and_then(|start| start.requested.get(name).copied()),
                };
                value.is_some_and(|value| range.from <= value && value <= range.to)
            })
            && words::are_among(&self.words(), &words::words_of(entry))
    }
}
