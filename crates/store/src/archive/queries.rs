use std::collections::BTreeMap;

use skopos_model::task::{Resource, resource};

use super::condition::Conditions;
use super::error::Error;
use super::file::Archive;
use super::files::with_files;
use crate::estimate::{Evidence, Record};
use crate::stats::Distribution;

/// A class of tasks.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Number of its tasks.
    pub tasks: u64,
    /// Number of hosts on which they ran.
    pub hosts: u64,
    /// Start of the first task, in seconds of UNIX time.
    pub from_seconds: f64,
    /// End of the last task, in seconds of UNIX time.
    pub to_seconds: f64,
}

/// Usage of one resource by the tasks of a class on one host.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    /// Distribution of the known values.
    pub distribution: Distribution,
    /// Number of these values that are lower bounds, because the measurement does not cover the whole
    /// task.
    pub lower_bounds: u64,
    /// Number of tasks for which the value is unknown.
    pub unknown: u64,
}

impl Usage {
    /// Adds everything that was added to `other`.
    pub fn merge(&mut self, other: &Self) {
        self.distribution.merge(&other.distribution);
        self.lower_bounds += other.lower_bounds;
        self.unknown += other.unknown;
    }
}

/// The enforcement of a limit on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// The kernel bounds the charge of a control group.
    Kernel,
    /// Samples bound resident memory and files of tmpfs.
    Samples,
}

/// Records for an estimate.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// A record for each task that returned 0.
    pub records: Vec<Record>,
    /// The same and the attempts that a limit on this resource ended, the oldest first.
    pub evidence: Vec<Evidence>,
    /// Number of records whose value is a lower bound.
    pub lower_bounds: u64,
    /// Number of tasks that did not return 0, or were ended because of a limit: it is unknown how much
    /// they would have needed.
    pub unfinished: u64,
    /// Number of tasks for which this resource or the time is unknown.
    pub unknown: u64,
}

impl Records {
    /// Adds the records of older tasks, if these tasks have none: attempts that a limit ended say nothing without a task that
    /// ended well. The numbers of unfinished and of unknown tasks stay.
    pub fn add_older(&mut self, older: Self) {
        if self.records.is_empty() {
            self.records = older.records;
            self.evidence.splice(0..0, older.evidence);
            self.lower_bounds = older.lower_bounds;
        }
    }
}

/// The condition in SQL that a task ended by itself and returned 0.
const ENDED_WELL: &str = "exit_type = 'normal' AND status = 0";

impl Archive {
    /// Returns the classes in the order of their names.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn classes(&self, conditions: &Conditions) -> Result<Vec<Class>, Error> {
        let (clause, values) = conditions.sql();
        let query = format!(
            "SELECT class, count(*), count(DISTINCT host), min(start_seconds), max(end_seconds)
             FROM task WHERE {clause} GROUP BY class ORDER BY class"
        );
        let mut classes = Vec::new();
        self.for_each_row(&query, values, "the classes cannot be read", |row| {
            classes.push(Class {
                name: row.get(0)?,
                tasks: row.get(1)?,
                hosts: row.get(2)?,
                from_seconds: row.get(3)?,
                to_seconds: row.get(4)?,
            });
            Ok(true)
        })?;
        Ok(classes)
    }

    /// Returns the usage of each resource by the tasks of a class, by host and resource. Merging the
    /// values of all hosts gives those of the class.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn usage(
        &self,
        class: &str,
        conditions: &Conditions,
    ) -> Result<BTreeMap<String, BTreeMap<String, Usage>>, Error> {
        let (clause, mut values) = conditions.sql();
        values.push(class.to_owned().into());
        let query = format!(
            "SELECT host, resource.name, value, is_whole FROM task
             JOIN reading ON reading.task = task.id JOIN resource ON resource.id = reading.resource
             WHERE {clause} AND class = ?"
        );
        let mut hosts: BTreeMap<String, BTreeMap<String, Usage>> = BTreeMap::new();
        self.for_each_row(&query, values, "the values cannot be read", |row| {
            let (host, name): (String, String) = (row.get(0)?, row.get(1)?);
            let usage = hosts.entry(host).or_default().entry(name).or_default();
            match row.get::<_, Option<f64>>(2)? {
                Some(value) if usage.distribution.add(value) => {
                    usage.lower_bounds += u64::from(!row.get::<_, bool>(3)?);
                }
                _ => usage.unknown += 1,
            }
            Ok(true)
        })?;
        Ok(hosts)
    }

    /// Returns the memory that a limit would have to grant each task of a class, and its duration. `kept_by`
    /// says whether the kernel enforces the limit on a control group, whose charge then counts, or samples
    /// do, which count resident memory and files of tmpfs. A report without a charge counts like one of
    /// samples. Of the tasks only the latest `most` count, if that is given; if they have no record, so do the latest `most` that
    /// returned 0.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn memory_records(
        &self,
        class: &str,
        kept_by: Keeper,
        conditions: &Conditions,
        most: Option<u32>,
    ) -> Result<Records, Error> {
        let sampled = "(SELECT sum(value) FROM reading JOIN resource ON resource.id = reading.resource
             WHERE reading.task = task.id AND name IN ('resident_bytes_max', 'tmpfs_bytes_max')
             AND EXISTS (SELECT 1 FROM reading AS r JOIN resource AS n ON n.id = r.resource
                 WHERE r.task = task.id AND n.name = 'resident_bytes_max' AND r.value IS NOT NULL))";
        let charge = "(SELECT value FROM reading JOIN resource ON resource.id = reading.resource
             WHERE reading.task = task.id AND name = 'cgroup_bytes_max')";
        let value = match kept_by {
            Keeper::Samples => sampled.to_owned(),
            Keeper::Kernel => {
                format!("coalesce(max({charge}, {sampled}), {charge}, {sampled})")
            }
        };
        match resource("resident_bytes_max") {
            Some(memory) => self.records_of((class, memory), &value, conditions, most),
            None => Ok(Records::default()),
        }
    }

    /// Returns the amount of one resource that each task of a class used, and its duration. Of the tasks only the latest
    /// `most` count, if that is given; if they have no record, so do the latest `most` that returned 0.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn records(
        &self,
        class: &str,
        resource: &Resource,
        conditions: &Conditions,
        most: Option<u32>,
    ) -> Result<Records, Error> {
        self.records_of((class, resource), "reading.value", conditions, most)
    }

    /// Returns records whose amount is the SQL expression `value`. Whether the value covers the whole task is
    /// that of the reading of `resource`.
    fn records_of(
        &self,
        of: (&str, &Resource),
        value: &str,
        conditions: &Conditions,
        most: Option<u32>,
    ) -> Result<Records, Error> {
        let mut found = self.latest_records(of, value, (conditions, "1"), most)?;
        if most.is_some() && found.records.is_empty() {
            found.add_older(self.latest_records(of, value, (conditions, ENDED_WELL), most)?);
        }
        Ok(found)
    }

    /// Does the same for the latest tasks that meet a further condition in SQL, whether they have a record or not.
    fn latest_records(
        &self,
        (class, resource): (&str, &Resource),
        value: &str,
        (conditions, further): (&Conditions, &str),
        most: Option<u32>,
    ) -> Result<Records, Error> {
        let (clause, mut values) = conditions.sql();
        let ended_for = format!("{}: %", resource.short());
        let name = || resource.name.to_owned();
        values.splice(0..0, [ended_for, name(), name()].map(Into::into));
        values.push(class.to_owned().into());
        // SQLite takes a negative number for no limit.
        values.push(most.map_or(-1, i64::from).into());
        // The tasks are chosen first, because the expressions read their whole documents. A limit that ended a task is written
        // as `memory: 5.1 GiB > 4 GiB`.
        let query = format!(
            "SELECT {value}, is_whole, end_seconds - start_seconds, {ENDED_WELL},
             CASE WHEN exit_type = 'limit' AND EXISTS (SELECT 1 FROM json_each(document, '$.ended.limits')
                 WHERE value LIKE ?)
             THEN (SELECT json_extract(value, '$.most') FROM json_each(document, '$.limits_set')
                 WHERE json_extract(value, '$.name') = ?) END
             FROM task LEFT JOIN reading ON reading.task = task.id
             AND reading.resource = (SELECT id FROM resource WHERE name = ?)
             WHERE task.id IN (SELECT task.id FROM task WHERE {clause} AND {further} AND class = ?
                 ORDER BY end_seconds DESC, task.id DESC LIMIT ?)
             ORDER BY end_seconds, task.id"
        );
        let mut found = Records::default();
        self.for_each_row(&query, values, "the values cannot be read", |row| {
            let value: Option<f64> = row.get(0)?;
            let seconds: f64 = row.get(2)?;
            let is_finished: Option<bool> = row.get(3)?;
            let seconds = if resource.unit == "seconds" { 1.0 } else { seconds };
            let limit: Option<f64> = row.get(4)?;
            if let Some(value) = limit.filter(|_| seconds > 0.0) {
                let record = Record { value, seconds };
                found.evidence.push(Evidence { record, is_censored: true });
            }
            match value.filter(|_| seconds > 0.0) {
                _ if is_finished != Some(true) => found.unfinished += 1,
                Some(value) => {
                    let record = Record { value, seconds };
                    found.records.push(record);
                    found.evidence.push(Evidence { record, is_censored: false });
                    let is_complete: Option<bool> = row.get(1)?;
                    found.lower_bounds += u64::from(is_complete != Some(true));
                }
                None => found.unknown += 1,
            }
            Ok(true)
        })?;
        Ok(found)
    }

    /// Passes each report to `each`, as a JSON document, in the order of import. If the files of the task were counted,
    /// the document has them in the field `files`, as a [`TaskFiles`](skopos_model::task::TaskFiles). `each` returns
    /// false to stop. Returns the number of reports.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn export(
        &self,
        conditions: &Conditions,
        mut each: impl FnMut(&str) -> bool,
    ) -> Result<u64, Error> {
        let (clause, values) = conditions.sql();
        let query = format!(
            "SELECT document, (SELECT document FROM files WHERE files.task = task.id)
             FROM task WHERE {clause} ORDER BY id"
        );
        let mut exported = 0;
        self.for_each_row(&query, values, "the reports cannot be read", |row| {
            exported += 1;
            let files: Option<String> = row.get(1)?;
            Ok(each(&with_files(row.get(0)?, files.as_deref())))
        })?;
        Ok(exported)
    }

    /// Checks the whole file with `PRAGMA integrity_check`, and returns the damage that it finds.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn damage(&self) -> Result<Vec<String>, Error> {
        let mut damage = Vec::new();
        self.for_each_row("PRAGMA integrity_check", Vec::new(), "it cannot be checked", |row| {
            let line: String = row.get(0)?;
            damage.extend((line != "ok").then_some(line));
            Ok(true)
        })?;
        Ok(damage)
    }
}
