//! Parses the output of `scontrol -o -d show job ID`: one line of `Key=value`, unchanged since
//! Slurm 14. JSON would not be better here: `scontrol` of 22.05 does not print it, `squeue --json`
//! needs a plug-in that may be missing, and its shape changes with each release.
//!
//! Values may contain spaces, and the user who submits a job writes some of them (name, comment,
//! command). So a key that occurs twice is not used at all.

use serde_json::json;
use skopos_model::Structured;

/// The most groups of nodes with the same resources in `distribution`; the others are only counted.
const MAX_GROUPS: usize = 32;

/// A longer list of nodes is left out of the record: thousands of nodes, badly abbreviated.
const MAX_NODE_LIST_BYTES: usize = 1024;

/// The most bytes of a name that are kept.
const MAX_NAME_BYTES: usize = 256;

/// The properties of one job in Slurm.
#[derive(Debug, PartialEq)]
pub(super) struct Job {
    pub(super) state: Structured,
    pub(super) user: Structured,
    pub(super) name: Structured,
    pub(super) nodes: u64,
    pub(super) cpus: u64,
    pub(super) tasks: Option<u64>,
    pub(super) memory_bytes: Option<u64>,
    pub(super) start_seconds: Option<f64>,
    pub(super) end_seconds: Option<f64>,
    pub(super) limit_seconds: Option<f64>,
    pub(super) allocation: Structured,
}

/// The reason why a job's line cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// There is no line for this job.
    Absent,
    /// This key is missing, or it has no value.
    Missing(&'static str),
    /// This key occurs more than once: perhaps a job was named like it.
    Twice(&'static str),
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Absent => write!(f, "scontrol does not show this job"),
            Self::Missing(key) => write!(f, "scontrol shows it without {key}"),
            Self::Twice(key) => write!(
                f,
                "its name, comment or command contains `{key}=`, so Slurm's own `{key}=` cannot be \
                 recognised"
            ),
        }
    }
}

/// Parses the line of job `id` in `text`, which has more lines for a job array.
pub(super) fn parse(text: &str, id: u32) -> Result<Job, Unusable> {
    let start = format!("JobId={id} ");
    let line = text.lines().find(|line| line.starts_with(&start)).ok_or(Unusable::Absent)?;
    let required = |key| value(line, key)?.ok_or(Unusable::Missing(key));
    let count = |key| number(required(key)?).ok_or(Unusable::Missing(key));
    let user = required("UserId")?;
    let user = user.split_once('(').map_or(user, |(name, _)| name);
    let (nodes, cpus) = (count("NumNodes")?, count("NumCPUs")?);
    let tasks = value(line, "NumTasks")?.and_then(number);
    let memory_bytes = memory(line)?;
    let node_list = required("NodeList")?;
    let record = Record { node_list, nodes, cpus, tasks, memory_bytes };
    let time = |key| Ok(value(line, key)?.and_then(unix_seconds));
    Ok(Job {
        state: text_value(required("JobState")?)?,
        user: text_value(user)?,
        name: text_value(job_name(line)?)?,
        nodes,
        cpus,
        tasks,
        memory_bytes,
        start_seconds: time("StartTime")?,
        end_seconds: time("EndTime")?,
        limit_seconds: value(line, "TimeLimit")?.and_then(limit_seconds),
        allocation: record.structured(line)?,
    })
}

/// Returns the value of `key`, up to the next space. `None` if it is missing, or `(null)`.
pub(super) fn value<'a>(line: &'a str, key: &'static str) -> Result<Option<&'a str>, Unusable> {
    let Some((_, rest)) = once(line, key)? else { return Ok(None) };
    let value = rest.split(' ').next().unwrap_or_default();
    Ok(Some(value).filter(|v| !v.is_empty() && *v != "(null)"))
}

/// Returns the text before and after ` KEY=`.
fn once<'a>(line: &'a str, key: &'static str) -> Result<Option<(&'a str, &'a str)>, Unusable> {
    let pattern = format!(" {key}=");
    let Some((before, after)) = line.split_once(&pattern) else { return Ok(None) };
    if after.contains(&pattern) { Err(Unusable::Twice(key)) } else { Ok(Some((before, after))) }
}

/// Returns the name, which may contain spaces, and ends where the next key begins.
fn job_name(line: &str) -> Result<&str, Unusable> {
    let (_, rest) = once(line, "JobName")?.ok_or(Unusable::Missing("JobName"))?;
    let (name, _) = once(rest, "UserId")?.ok_or(Unusable::Missing("UserId"))?;
    let mut end = name.len().min(MAX_NAME_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    Ok(&name[..end])
}

fn text_value(text: &str) -> Result<Structured, Unusable> {
    // The texts here are short: words of Slurm's own, and a name that was cut.
    Structured::new(json!(text)).map_err(|_| Unusable::Missing("JobName"))
}

/// Reads "4", or "1-4" as long as a job's size is not decided.
pub(super) fn number(text: &str) -> Option<u64> {
    text.split('-').next()?.parse().ok()
}

/// Reads `TRES=cpu=5,mem=2800M,node=4`, which is `AllocTRES=` since 23.02.
pub(super) fn memory(line: &str) -> Result<Option<u64>, Unusable> {
    let resources = match value(line, "AllocTRES")? {
        Some(resources) => Some(resources),
        None => value(line, "TRES")?,
    };
    let memory = resources.and_then(|r| r.split(',').find_map(|r| r.strip_prefix("mem=")));
    Ok(memory.and_then(bytes))
}

/// Reads `2800M` or `1.50G`; without a letter, megabytes.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "K" => 10,
        "" | "M" => 20,
        "G" => 30,
        "T" => 40,
        "P" => 50,
        _ => return None,
    };
    let amount: f64 = digits.parse().ok()?;
    let bytes = amount * (1u64 << shift) as f64;
    // Beyond 2^53 the number would be rounded, and no machine has that much memory.
    (0.0..9e15).contains(&bytes).then_some(bytes as u64)
}

/// Reads `2026-11-22T00:22:18` in UTC; `Unknown` is `None`.
pub(super) fn unix_seconds(text: &str) -> Option<f64> {
    let (date, time) = text.split_once('T')?;
    let mut date = date.split('-').map(|n| n.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let is_date =
        (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    let of_day = clock_seconds(time)?;
    is_date.then(|| (days_from_civil(year, month, day) * 86_400) as f64 + of_day)
}

/// Returns the days since 1970-01-01 in the proleptic Gregorian calendar (H. Hinnant,
/// "chrono-compatible low-level date algorithms"). Years begin in March, so that the leap day comes
/// last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Reads `1-02:04:00` or `00:10:00`; `UNLIMITED` is `None`.
pub(super) fn limit_seconds(text: &str) -> Option<f64> {
    match text.split_once('-') {
        Some((days, time)) => {
            let days: u32 = days.parse().ok()?;
            Some(f64::from(days) * 86_400.0 + clock_seconds(time)?)
        }
        None => clock_seconds(text),
    }
}

/// Reads `02:04:00`.
fn clock_seconds(text: &str) -> Option<f64> {
    let mut parts = text.split(':').map(|n| n.parse::<u8>().ok());
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    let is_all = parts.next().is_none();
    is_all.then(|| f64::from(hours) * 3600.0 + f64::from(minutes) * 60.0 + f64::from(seconds))
}

/// The record `allocation`.
struct Record<'a> {
    node_list: &'a str,
    nodes: u64,
    cpus: u64,
    tasks: Option<u64>,
    memory_bytes: Option<u64>,
}

impl Record<'_> {
    fn structured(&self, line: &str) -> Result<Structured, Unusable> {
        let all = groups(line)?;
        let mut kept = all.len().min(MAX_GROUPS);
        loop {
            let mut record = json!({ "nodes": self.nodes, "cpus": self.cpus });
            if self.node_list.len() <= MAX_NODE_LIST_BYTES {
                record["node_list"] = json!(self.node_list);
            }
            if let Some(tasks) = self.tasks {
                record["tasks"] = json!(tasks);
            }
            if let Some(bytes) = self.memory_bytes {
                record["memory_bytes"] = json!(bytes);
            }
            if let Some(cpus) = value(line, "CPUs/Task")?.and_then(number) {
                record["cpus_per_task"] = json!(cpus);
            }
            record["distribution"] = json!(all[..kept]);
            if kept < all.len() {
                record["distribution_left_out"] = json!(all.len() - kept);
            }
            match Structured::new(record) {
                Ok(record) => return Ok(record),
                // The groups contain lists of nodes of any length, too.
                Err(_) if kept > 0 => kept /= 2,
                Err(_) => return Err(Unusable::Missing("Nodes")),
            }
        }
    }
}

/// Reads `Nodes=n[3-4],vm CPU_IDs=0 Mem=700 GRES=` for each group of nodes with the same resources.
/// The groups stand between two keys that occur once.
fn groups(line: &str) -> Result<Vec<serde_json::Value>, Unusable> {
    let Some((_, rest)) = once(line, "JOB_GRES")? else { return Ok(Vec::new()) };
    let Some((given, _)) = once(rest, "MinCPUsNode")? else { return Ok(Vec::new()) };
    let mut groups: Vec<serde_json::Value> = Vec::new();
    for word in given.split(' ') {
        if let Some(nodes) = word.strip_prefix("Nodes=") {
            groups.push(json!({ "nodes": nodes }));
        }
        let Some(group) = groups.last_mut() else { continue };
        if let Some(cpus) = word.strip_prefix("CPU_IDs=").and_then(count_ids) {
            group["cpus"] = json!(cpus);
        }
        if let Some(bytes) = word.strip_prefix("Mem=").and_then(bytes) {
            group["memory_bytes"] = json!(bytes);
        }
    }
    Ok(groups)
}

/// Returns the number of ids in `0-3,8`.
fn count_ids(text: &str) -> Option<u64> {
    text.split(',').try_fold(0u64, |sum, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        Some(sum + u64::from(last.checked_sub(first)?) + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIMATE: &str = include_str!("../../tests/data/slurm/show-job-3.txt");
    const ODD: &str = include_str!("../../tests/data/slurm/show-job-4.txt");
    const ARRAY: &str = include_str!("../../tests/data/slurm/show-job-5.txt");
    const MIB: u64 = 1 << 20;

    #[test]
    fn a_job_on_four_nodes() {
        let job = parse(CLIMATE, 3).expect("as recorded");
        assert_eq!((job.nodes, job.cpus, job.tasks), (4, 5, Some(5)));
        assert_eq!(job.memory_bytes, Some(2800 * MIB));
        // date -u -d 2026-11-22T00:22:18 +%s
        assert_eq!(job.start_seconds, Some(1_795_306_938.0));
        assert_eq!(job.limit_seconds, Some(93_840.0));
        assert_eq!(job.end_seconds, Some(1_795_306_938.0 + 93_840.0));
        let texts = [&job.state, &job.user, &job.name].map(|t| t.as_json().as_str());
        assert_eq!(texts, [Some("RUNNING"), Some("root"), Some("climate")]);
        let expected = json!({
            "node_list": "n[2-4],vm", "nodes": 4, "cpus": 5, "tasks": 5, "cpus_per_task": 1,
            "memory_bytes": 2800 * MIB,
            "distribution": [
                { "nodes": "n2", "cpus": 2, "memory_bytes": 700 * MIB },
                { "nodes": "n[3-4],vm", "cpus": 1, "memory_bytes": 700 * MIB },
            ],
        });
        assert_eq!(*job.allocation.as_json(), expected);
    }

    #[test]
    fn a_job_of_an_array_without_a_limit() {
        let job = parse(ARRAY, 5).expect("as recorded");
        assert_eq!(job.allocation.as_json()["node_list"], "vm");
        assert_eq!((job.end_seconds, job.limit_seconds), (None, None));
        assert_eq!(parse(ARRAY, 6).map(|job| job.nodes), Ok(1));
        assert_eq!(parse(ARRAY, 7), Err(Unusable::Absent));
    }

    #[test]
    fn a_name_that_looks_like_a_field_is_not_taken_for_it() {
        assert_eq!(parse(ODD, 4), Err(Unusable::Twice("JobState")));
        for (forged, key) in [
            ("JobName=x UserId=ann(7) GroupId=", "UserId"),
            ("Comment=a NumNodes=9", "NumNodes"),
            ("Comment=a StartTime=2026-01-01T00:00:00", "StartTime"),
            ("Comment=a JOB_GRES= Nodes=n9 MinCPUsNode=1", "JOB_GRES"),
        ] {
            let (place, _) = forged.split_once('=').expect("a key");
            let forged = CLIMATE.replacen(&format!("{place}="), &format!("{forged} "), 1);
            assert_eq!(parse(&forged, 3), Err(Unusable::Twice(key)), "{forged}");
        }
        let harmless = CLIMATE.replace("climate", "a b  c=d Ünïcode");
        let job = parse(&harmless, 3).expect("each key occurs once");
        assert_eq!(job.name.as_json(), "a b  c=d Ünïcode");
    }

    #[test]
    fn a_missing_key_is_named_and_an_odd_value_is_absent() {
        let without = |from: &str, to: &str| parse(&CLIMATE.replace(from, to), 3);
        assert_eq!(without(" JobState=", " X="), Err(Unusable::Missing("JobState")));
        assert_eq!(without("NumCPUs=5", "NumCPUs=x"), Err(Unusable::Missing("NumCPUs")));
        assert_eq!(
            without("NodeList=n[2-4],vm", "NodeList=(null)"),
            Err(Unusable::Missing("NodeList"))
        );
        let job = without("mem=2800M,", "").expect("memory is not always accounted for");
        assert_eq!(job.memory_bytes, None);
        let newer = without(" TRES=", " ReqTRES=cpu=1,mem=1M AllocTRES=").expect("as of 23.02");
        assert_eq!(newer.memory_bytes, Some(2800 * MIB));
        for cut in 0..CLIMATE.len() {
            drop(parse(&CLIMATE[..cut], 3));
        }
    }

    #[test]
    fn a_record_that_would_be_too_long_is_shortened_and_says_so() {
        let groups = |n: usize, name: &str| -> String {
            (0..n).map(|i| format!("   Nodes={name}{i} CPU_IDs=0 Mem=1 GRES=")).collect()
        };
        let with = |groups: &str| {
            let text = CLIMATE.replace("   Nodes=n2", &format!("{groups}   Nodes=n2"));
            parse(&text, 3).expect("a job").allocation
        };
        let many = with(&groups(100, "n"));
        assert_eq!(many.as_json()["distribution"].as_array().map(Vec::len), Some(MAX_GROUPS));
        assert_eq!(many.as_json()["distribution_left_out"], 70);
        let long = with(&groups(30, &"n".repeat(300)));
        assert_eq!(long.as_json()["distribution"].as_array().map(Vec::len), Some(8));
        assert_eq!(long.as_json()["nodes"], 4);
    }

    #[test]
    fn numbers_of_slurm() {
        let near = |text: &str| bytes(text);
        assert_eq!(near("1.50G"), Some(1_610_612_736));
        assert_eq!(
            [near("2K"), near("700"), near("1T")],
            [Some(2048), Some(700 * MIB), Some(1 << 40)]
        );
        assert_eq!([near(""), near("x"), near("-1M"), near("9e99P"), near("1X")], [None; 5]);
        assert_eq!(
            [count_ids("0-3,8"), count_ids("7"), count_ids("3-1"), count_ids("")],
            [Some(5), Some(1), None, None]
        );
        assert_eq!(limit_seconds("00:10:00"), Some(600.0));
        assert_eq!(
            [limit_seconds("UNLIMITED"), limit_seconds("1-"), limit_seconds("10:00")],
            [None; 3]
        );
        assert_eq!(unix_seconds("2000-02-29T00:00:01"), Some(951_782_401.0));
        assert_eq!([unix_seconds("Unknown"), unix_seconds("2026-13-01T00:00:00")], [None; 2]);
    }
}
