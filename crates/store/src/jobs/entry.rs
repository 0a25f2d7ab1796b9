//! The entry of a job in the catalogue: a fold over the records of its parts.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use skopos_model::Timestamp;
use skopos_model::job::{JobEnd, JobId, JobRecord, JobStart, JobState, Kind, MAX_DETAILS};
use skopos_model::task::{Combine, ExitType, RESOURCES, Summary};

use super::part::{JobPart, PartRef, StoredRecord};

/// The most nodes of an entry: those of the largest job.
pub const MAX_NODES: usize = MAX_DETAILS;

/// The most schemas, tags and findings that an entry names. Further ones are in the segments.
const MAX_NAMED: usize = 1024;

/// Metadata with the time of their record. The latest record counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dated<T> {
    /// Time of the record, in nanoseconds of UNIX time.
    pub at: i64,
    /// The metadata.
    #[serde(flatten)]
    pub value: T,
}

/// The knowledge of the catalogue about a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobEntry {
    /// The site that has the job.
    pub site: String,
    /// The job.
    pub id: JobId,
    /// The metadata; `None` for an orphan, whose start has not arrived.
    pub start: Option<Dated<JobStart>>,
    /// The result, if the job has ended.
    pub end: Option<Dated<JobEnd>>,
    /// Times of the first and last record, in nanoseconds of UNIX time.
    pub times: Option<(i64, i64)>,
    /// Nodes of the start and of all records.
    pub nodes: BTreeSet<String>,
    /// Tags that users added (`true`) or removed, with the time of the change.
    pub tags: BTreeMap<String, (i64, bool)>,
    /// Resources that the reports of its tasks have, combined.
    pub used: BTreeMap<String, f64>,
    /// Names of the schemas of its measurements.
    pub schemas: BTreeSet<String>,
    /// Findings in the reports of its tasks.
    pub findings: BTreeSet<String>,
    /// Number of measurements.
    pub samples: u64,
    /// Number of reports of tasks.
    pub reports: u64,
    /// Number of records that were lost, by the producers' own account.
    pub lost: u64,
    /// The sealed parts, by number.
    pub parts: Vec<PartRef>,
}

impl JobEntry {
    /// Returns the entry of a job without records.
    pub fn new(site: &str, id: JobId) -> Self {
        Self {
            site: site.to_owned(),
            id,
            start: None,
            end: None,
            times: None,
            nodes: BTreeSet::new(),
            tags: BTreeMap::new(),
            used: BTreeMap::new(),
            schemas: BTreeSet::new(),
            findings: BTreeSet::new(),
            samples: 0,
            reports: 0,
            lost: 0,
            parts: Vec::new(),
        }
    }

    /// Returns true if any record of the job is known.
    pub fn has_records(&self) -> bool {
        self.times.is_some()
    }

    /// Notes the new places of parts.
    pub fn move_parts(&mut self, moved: &[&PartRef]) {
        for part in &mut self.parts {
            if let Some(moved) = moved.iter().find(|moved| moved.number == part.number) {
                *part = (*moved).clone();
            }
        }
    }

    /// Adds a part, which comes after those that the entry has and is sealed at `place`.
    pub fn add_part(&mut self, part: &JobPart, place: &PartRef) {
        part.records.iter().filter_map(StoredRecord::get).for_each(|record| self.add(&record));
        self.parts.push(place.clone());
    }

    /// Adds a record of the job. A record whose content is not valid counts for its time and node alone.
    pub fn add(&mut self, record: &JobRecord<'_>) {
        let at = record.time.as_nanos();
        self.times = Some(self.times.map_or((at, at), |(from, to)| (from.min(at), to.max(at))));
        self.add_node(record.node);
        match record.kind {
            Kind::Sample => {
                self.samples += 1;
                if let Some((schema, _)) = record.sample()
                    && !self.schemas.contains(schema)
                {
                    insert(&mut self.schemas, schema);
                }
            }
            Kind::Start => {
                if let Ok(start) = record.start() {
                    start.nodes.iter().for_each(|node| self.add_node(node));
                    replace(&mut self.start, at, start);
                }
            }
            Kind::End => {
                if let Ok(end) = record.end() {
                    replace(&mut self.end, at, end);
                }
            }
            Kind::Report => {
                if let Ok(report) = record.report() {
                    self.add_report(&report);
                }
            }
            Kind::Loss => {
                if let Ok(loss) = record.loss() {
                    self.lost = self.lost.saturating_add(loss.records);
                }
            }
            Kind::Tags => {
                let tags = record.tags().unwrap_or_default();
                // A word that is both removed and added stays.
                let changes = tags.remove.into_iter().map(|tag| (tag, false));
                for (tag, is_added) in changes.chain(tags.add.into_iter().map(|tag| (tag, true))) {
                    self.add_tag(tag, at, is_added);
                }
            }
            Kind::Metrics | Kind::Spans | Kind::Files => {}
        }
    }

    fn add_node(&mut self, node: &str) {
        let is_new = !node.is_empty() && !self.nodes.contains(node);
        if is_new && self.nodes.len() < MAX_NODES {
            self.nodes.insert(node.to_owned());
        }
    }

    fn add_tag(&mut self, tag: String, at: i64, is_added: bool) {
        let is_full = self.tags.len() >= MAX_NAMED;
        match self.tags.get_mut(&tag) {
            Some(known) => *known = (*known).max((at, is_added)),
            None if is_full => {}
            None => drop(self.tags.insert(tag, (at, is_added))),
        }
    }

    fn add_report(&mut self, report: &Summary) {
        self.reports += 1;
        for resource in RESOURCES {
            let Some(value) = report.resources.get(resource.name).and_then(|r| r.value) else {
                continue;
            };
            let combined = match (self.used.get(resource.name), resource.combine) {
                (None, _) => value,
                // A document has no infinite number.
                (Some(known), Combine::Sum) => (known + value).clamp(f64::MIN, f64::MAX),
                (Some(known), Combine::Max) => known.max(value),
            };
            self.used.insert(resource.name.to_owned(), combined);
        }
        report.findings.iter().for_each(|finding| insert(&mut self.findings, &finding.what));
    }

    /// Returns the state. A job without a start is an orphan, also if its end is known.
    pub fn state(&self) -> JobState {
        match (&self.end, &self.start) {
            (_, None) => JobState::Orphan,
            (Some(end), Some(_)) => end.value.state,
            (None, Some(_)) => JobState::Running,
        }
    }

    /// Returns the kind of the end, if the job has ended and it is known.
    pub fn exit_type(&self) -> Option<ExitType> {
        self.end.as_ref().and_then(|end| end.value.exit_type)
    }

    /// Returns the user that owns the job; `None` if the start does not name one.
    pub fn user(&self) -> Option<&str> {
        self.start.as_ref().map(|start| start.value.user.as_str()).filter(|user| !user.is_empty())
    }

    /// Returns the project; `None` if the start does not name one.
    pub fn project(&self) -> Option<&str> {
        let project = self.start.as_ref().map(|start| start.value.project.as_str());
        project.filter(|project| !project.is_empty())
    }

    /// Returns the time at which the job began: that of its start, else of its first record.
    pub fn started(&self) -> Option<Timestamp> {
        let told = self.start.as_ref().and_then(|start| start.value.start_seconds);
        told.map(of_seconds).or(self.times.map(|(from, _)| Timestamp::from_nanos(from)))
    }

    /// Returns the time at which the job ended, if it has.
    pub fn ended(&self) -> Option<Timestamp> {
        let end = self.end.as_ref()?;
        let told = end.value.end_seconds.map(of_seconds);
        Some(told.unwrap_or(Timestamp::from_nanos(end.at)))
    }

    /// Returns the tags of the start that no user removed, and those that users added.
    pub fn all_tags(&self) -> BTreeSet<&str> {
        let of_start = self.start.iter().flat_map(|start| &start.value.tags).map(String::as_str);
        let kept = of_start.filter(|tag| self.tags.get(*tag).is_none_or(|(_, is_there)| *is_there));
        let added = self.tags.iter().filter(|(_, (_, is_there))| *is_there);
        kept.chain(added.map(|(tag, _)| tag.as_str())).collect()
    }

    /// Returns what the job used of a resource: by the reports of its tasks, else by its end.
    pub fn used(&self, resource: &str) -> Option<f64> {
        let of_end = || self.end.as_ref().and_then(|end| end.value.used.get(resource));
        self.used.get(resource).or_else(of_end).copied()
    }
}

/// Replaces metadata by those of a record, unless the known ones are later. Of two records of one time either order
/// gives the same result.
fn replace<T: Serialize>(known: &mut Option<Dated<T>>, at: i64, value: T) {
    let document = |value: &T| serde_json::to_string(value).unwrap_or_default();
    let is_later = known
        .as_ref()
        .is_none_or(|known| (known.at, document(&known.value)) < (at, document(&value)));
    if is_later {
        *known = Some(Dated { at, value });
    }
}

fn insert(names: &mut BTreeSet<String>, name: &str) {
    if names.len() < MAX_NAMED {
        names.insert(name.to_owned());
    }
}

/// Turns seconds of UNIX time into a time. Seconds beyond the range of times become its ends.
fn of_seconds(seconds: f64) -> Timestamp {
    Timestamp::from_nanos((seconds * 1e9) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: Kind, time: i64, content: &[u8]) -> JobRecord<'_> {
        let time = Timestamp::from_nanos(time);
        JobRecord { kind, job: "7", generation: 0, node: "n01", time, content }
    }

    fn entry(records: &[JobRecord<'_>]) -> JobEntry {
        let mut entry = JobEntry::new("site", JobId::new("7", 0).expect("an id"));
        records.iter().for_each(|record| entry.add(record));
        entry
    }

    #[test]
    fn metadata_are_those_of_the_latest_record_in_any_order() {
        let sample = JobRecord::sample_content("node", &[1.0]);
        let records = [
            record(Kind::Start, 10, br#"{"user":"ann","nodes":["n02"],"tags":["a","b"]}"#),
            record(Kind::Start, 20, br#"{"user":"bob","tags":["a","b"],"start_seconds":2e-9}"#),
            record(Kind::Start, 20, br#"{"user":"abe"}"#),
            record(Kind::Sample, 30, &sample),
            record(Kind::Tags, 31, br#"{"remove":["a"],"add":["slow"]}"#),
            record(Kind::Tags, 35, br#"{"remove":["slow","fast"]}"#),
            record(Kind::Tags, 36, br#"{"add":["fast"]}"#),
            record(Kind::Loss, 37, br#"{"why":"full","records":4}"#),
            record(Kind::End, 40, br#"{"state":"failed","status":3}"#),
            record(Kind::Start, 41, b"not a document"),
        ];
        let forwards = entry(&records);
        let mut backwards = records;
        backwards.reverse();
        assert_eq!(forwards, entry(&backwards));
        assert_eq!((forwards.user(), forwards.state()), (Some("bob"), JobState::Failed));
        assert_eq!(forwards.times, Some((10, 41)));
        assert_eq!(forwards.all_tags().into_iter().collect::<Vec<_>>(), ["b", "fast"]);
        assert_eq!(forwards.nodes.iter().collect::<Vec<_>>(), ["n01", "n02"]);
        assert_eq!((forwards.samples, forwards.lost), (1, 4));
        assert_eq!(forwards.started(), Some(Timestamp::from_nanos(2)));
        assert_eq!(forwards.ended(), Some(Timestamp::from_nanos(40)));
    }

    #[test]
    fn a_job_without_start_is_an_orphan_until_it_arrives() {
        let sample = JobRecord::sample_content("node", &[1.0]);
        let mut orphan = entry(&[record(Kind::Sample, 30, &sample)]);
        assert_eq!((orphan.state(), orphan.user()), (JobState::Orphan, None));
        let mut ended = orphan.clone();
        ended.add(&record(Kind::End, 40, br#"{"state":"failed"}"#));
        assert_eq!(
            (ended.state(), ended.ended()),
            (JobState::Orphan, Some(Timestamp::from_nanos(40)))
        );
        ended.add(&record(Kind::Start, 50, br#"{"user":"ann"}"#));
        assert_eq!(ended.state(), JobState::Failed);
        assert_eq!(orphan.started(), Some(Timestamp::from_nanos(30)));
        orphan.add(&record(Kind::Start, 50, br#"{"user":"ann"}"#));
        assert_eq!((orphan.state(), orphan.user()), (JobState::Running, Some("ann")));
    }

    /// JSON has no infinite number: the document of such an entry could not be read again.
    #[test]
    fn a_sum_that_is_too_large_stays_finite() {
        let report = serde_json::json!({
            "version": skopos_model::task::SUMMARY_VERSION,
            "task": {"class": "a", "command": ["a"], "folder": "", "monitor": "skopos"},
            "host": {"node": "n01", "kernel": "6", "cores": 2, "memory_bytes": 1},
            "start_seconds": 1.0, "end_seconds": 3.0,
            "ended": {"exit_type": "normal", "status": 0, "signal": null, "limits": [],
                "guilty": null},
            "level": 1,
            "resources": {"cpu_seconds": {"value": 1e308, "unit": "seconds", "method": "wait4",
                "completeness": "all", "error_bound": null}},
            "mechanisms": [], "overhead": {"cpu_seconds": 0.0, "resident_bytes_max": 1, "stops": 0},
            "disturbed": [], "findings": [], "processes": [], "processes_left_out": 0
        });
        let report = report.to_string();
        let entry = entry(&[record(Kind::Report, 1, report.as_bytes()); 3]);
        assert_eq!((entry.reports, entry.used("cpu_seconds")), (3, Some(f64::MAX)));
        let document = serde_json::to_string(&entry).expect("a document");
        assert_eq!(serde_json::from_str::<JobEntry>(&document).expect("an entry"), entry);
    }

    #[test]
    fn entries_survive_their_document() {
        let entry = entry(&[record(Kind::Start, 10, br#"{"user":"ann","requested":{"cores":4}}"#)]);
        let document = serde_json::to_string(&entry).expect("a document");
        assert_eq!(serde_json::from_str::<JobEntry>(&document).expect("an entry"), entry);
    }
}
