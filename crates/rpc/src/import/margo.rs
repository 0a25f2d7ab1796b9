//! The statistics of Margo's own monitor: files `*.stats.json`.
//!
//! A file has the statistics of one process: by RPC and caller, for each peer, for each operation, and of it for each
//! quantity `num`, `min`, `max`, `sum`, `avg` and `var`, times in seconds. Two of them are not what their name says:
//!
//! - `var` is the sum of the squared distances from the mean. It is divided here by `num - 1`.
//! - `num` is written as a 32-bit number. Above 2^31 it is negative or the greatest such number. Here such a count is
//!   computed from `sum / avg` and flagged.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The most RPCs of a file: a thousand times those of a service.
const MAX_RPCS: usize = 100_000;

/// The parent of an RPC that no other RPC called: Margo's id of no provider.
const NO_PROVIDER: u64 = 65_535;

/// The statistics of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MargoStats {
    /// The address of the process.
    pub address: String,
    /// The name of the machine.
    pub hostname: String,
    /// Number of the process.
    pub pid: Option<u64>,
    /// The operations of RPCs, those with the most time first.
    pub operations: Vec<Operation>,
    /// Statistics whose count did not fit 32 bits.
    pub overflowed_counts: usize,
    /// Entries that do not have the form of a statistic.
    pub malformed: usize,
}

/// An operation of an RPC with one peer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Operation {
    /// The name of the RPC, or its id if it has no name.
    pub rpc: String,
    /// The name of the RPC that called it, if it did and is known.
    pub caller: Option<String>,
    /// The provider.
    pub provider: Option<u64>,
    /// `origin` or `target`.
    pub side: &'static str,
    /// The peer, such as `sent to na+sm://1-0`.
    pub peer: String,
    /// The operation and the quantity, such as `ult.duration`; of bulk transfers with the peer between.
    pub name: String,
    /// The interval of Table III that it is, if it is one.
    pub interval: Option<&'static str>,
    /// The statistic, in seconds or bytes.
    pub statistic: Statistic,
}

/// A statistic, with its faults corrected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Statistic {
    /// Number of values.
    pub count: u64,
    /// The least value.
    pub min: f64,
    /// The greatest value.
    pub max: f64,
    /// The sum.
    pub sum: f64,
    /// The mean.
    pub mean: f64,
    /// The variance; `None` for fewer than two values.
    pub variance: Option<f64>,
    /// True if the count in the file did not fit 32 bits; this one is computed from the sum and the mean.
    pub is_count_computed: bool,
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    address: String,
    #[serde(default)]
    hostname: String,
    #[serde(default)]
    pid: Option<u64>,
    rpcs: BTreeMap<String, Rpc>,
}

#[derive(Deserialize)]
struct Rpc {
    #[serde(default)]
    name: String,
    #[serde(default)]
    rpc_id: u64,
    #[serde(default)]
    provider_id: Option<u64>,
    #[serde(default)]
    parent_rpc_id: u64,
    #[serde(default)]
    origin: BTreeMap<String, serde_json::Value>,
    #[serde(default)]
    target: BTreeMap<String, serde_json::Value>,
}

#[derive(Deserialize)]
struct Raw {
    num: i64,
    #[serde(default)]
    min: f64,
    #[serde(default)]
    max: f64,
    #[serde(default)]
    sum: f64,
    avg: f64,
    #[serde(default)]
    var: f64,
}

/// Reads the text of a `*.stats.json` file.
///
/// # Errors
/// The text is not JSON, has no `rpcs`, or has more of them than a process can have.
pub fn parse(input: &str, text: &str) -> Result<MargoStats, Error> {
    let refuse = |why: String| Error::Input { input: input.to_owned(), why };
    let file: File = serde_json::from_str(text).map_err(|error| {
        refuse(format!(
            "not the statistics of Margo's monitor (`margo.HOST.PID.stats.json`): {error}"
        ))
    })?;
    if file.rpcs.len() > MAX_RPCS {
        return Err(refuse(format!("it has more than {MAX_RPCS} RPCs")));
    }
    let names: BTreeMap<u64, &str> = file
        .rpcs
        .values()
        .filter(|rpc| !rpc.name.is_empty())
        .map(|rpc| (rpc.rpc_id, rpc.name.as_str()))
        .collect();
    let mut stats = MargoStats {
        address: file.address.clone(),
        hostname: file.hostname.clone(),
        pid: file.pid,
        ..MargoStats::default()
    };
    for rpc in file.rpcs.values() {
        for (side, peers) in [("origin", &rpc.origin), ("target", &rpc.target)] {
            for (peer, operations) in peers {
                let about = About { rpc, side, peer, names: &names };
                stats.collect(&about, &mut Vec::new(), operations);
            }
        }
    }
    stats.operations.sort_by(|a, b| {
        b.statistic.sum.total_cmp(&a.statistic.sum).then_with(|| a.name.cmp(&b.name))
    });
    Ok(stats)
}

struct About<'f> {
    rpc: &'f Rpc,
    side: &'static str,
    peer: &'f str,
    names: &'f BTreeMap<u64, &'f str>,
}

/// The deepest statistic: bulk, peer, operation, quantity.
const MAX_DEPTH: usize = 5;

impl MargoStats {
    fn collect<'v>(
        &mut self,
        about: &About<'_>,
        path: &mut Vec<&'v str>,
        value: &'v serde_json::Value,
    ) {
        let Some(object) = value.as_object() else {
            self.malformed += 1;
            return;
        };
        if object.contains_key("num") {
            match Raw::deserialize(value).ok().and_then(|raw| statistic(&raw)) {
                Some(statistic) => self.add(about, path, statistic),
                None => self.malformed += 1,
            }
            return;
        }
        if path.len() >= MAX_DEPTH {
            self.malformed += 1;
            return;
        }
        for (key, value) in object {
            path.push(key);
            self.collect(about, path, value);
            path.pop();
        }
    }

    fn add(&mut self, about: &About<'_>, path: &[&str], statistic: Statistic) {
        if statistic.count == 0 {
            return;
        }
        self.overflowed_counts += usize::from(statistic.is_count_computed);
        let rpc = about.rpc;
        let name = path.join(".");
        let unnamed = |id: u64| format!("rpc {id}");
        let has_caller = rpc.parent_rpc_id != 0 && rpc.parent_rpc_id != NO_PROVIDER;
        let caller = has_caller.then(|| {
            let known = about.names.get(&rpc.parent_rpc_id);
            known.map_or_else(|| unnamed(rpc.parent_rpc_id), |name| (*name).to_owned())
        });
        self.operations.push(Operation {
            rpc: if rpc.name.is_empty() { unnamed(rpc.rpc_id) } else { rpc.name.clone() },
            caller,
            provider: rpc.provider_id.filter(|provider| *provider != NO_PROVIDER),
            side: about.side,
            peer: about.peer.to_owned(),
            interval: interval(about.side, &name),
            name,
            statistic,
        });
    }
}

/// Corrects a statistic; `None` if its numbers cannot be.
fn statistic(raw: &Raw) -> Option<Statistic> {
    let numbers = [raw.min, raw.max, raw.sum, raw.avg, raw.var];
    if numbers.iter().any(|number| !number.is_finite()) {
        return None;
    }
    let is_count_computed = raw.num < 0 || raw.num == i64::from(i32::MAX);
    let count = match is_count_computed {
        true if raw.avg > 0.0 => (raw.sum / raw.avg).round() as u64,
        true => return None,
        false => raw.num.unsigned_abs(),
    };
    Some(Statistic {
        count,
        min: raw.min,
        max: raw.max,
        sum: raw.sum,
        mean: raw.avg,
        variance: (count >= 2).then(|| raw.var.max(0.0) / (count - 1) as f64),
        is_count_computed,
    })
}

/// The interval of Table III that an operation is.
fn interval(side: &str, name: &str) -> Option<&'static str> {
    use crate::interval::Interval;
    let interval = match (side, name) {
        ("origin", "set_input.duration") => Interval::InputSerialization,
        ("target", "ult.relative_timestamp_from_handler_start") => Interval::TargetHandler,
        ("target", "get_input.duration") => Interval::InputDeserialization,
        ("target", "set_output.duration") => Interval::OutputSerialization,
        ("target", "respond_cb.relative_timestamp_from_irespond_start") => {
            Interval::TargetCompletionCallback
        }
        _ => return None,
    };
    Some(interval.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FILE: &str = r#"{
        "address": "na+sm://77-0", "hostname": "n01", "pid": 77,
        "progress_loop": {"trigger": {"num": 3, "min": 0, "max": 0, "avg": 0, "var": 0, "sum": 0}},
        "rpcs": {
            "65535:65535:5:1": {
                "rpc_id": 5, "provider_id": 1, "parent_rpc_id": 65535, "parent_provider_id": 65535,
                "name": "put",
                "target": {"received from na+sm://12-0": {
                    "ult": {
                        "duration": {"num": 4, "min": 1.0, "max": 3.0, "avg": 2.0, "var": 2.0, "sum": 8.0},
                        "relative_timestamp_from_handler_start":
                            {"num": -2147483548, "min": 0.5, "max": 0.5, "avg": 0.5, "var": 0, "sum": 1073741874.0}
                    },
                    "bulk": {"pull from na+sm://12-0": {
                        "itransfer": {"size": {"num": 1, "min": 8, "max": 8, "avg": 8, "var": 0, "sum": 8}}}}
                }}
            },
            "5:1:9:65535": {
                "rpc_id": 9, "provider_id": 65535, "parent_rpc_id": 5, "parent_provider_id": 1, "name": "",
                "origin": {"sent to na+sm://9-0": {"set_input":
                    {"duration": {"num": 2, "min": 1, "max": 1, "avg": 1, "var": 0, "sum": 2}, "odd": 3}}}
            }
        }
    }"#;

    #[test]
    fn variances_are_divided_and_overflowed_counts_computed() {
        let stats = parse("x", FILE).unwrap();
        assert_eq!((stats.overflowed_counts, stats.malformed, stats.pid), (1, 1, Some(77)));
        let find = |name: &str| stats.operations.iter().find(|o| o.name == name).unwrap();
        let ult = find("ult.duration");
        // 1, 2, 2, 3: the sum of squared distances is 2, the variance 2/3.
        assert_eq!(ult.statistic.variance, Some(2.0 / 3.0));
        assert_eq!((ult.rpc.as_str(), &ult.caller, ult.provider), ("put", &None, Some(1)));
        let queue = find("ult.relative_timestamp_from_handler_start");
        assert!(queue.statistic.is_count_computed);
        assert_eq!(queue.statistic.count, 2_147_483_748);
        assert_eq!(queue.interval, Some("target_handler"));
        let input = find("set_input.duration");
        assert_eq!((input.rpc.as_str(), input.caller.as_deref()), ("rpc 9", Some("put")));
        let bulk = find("bulk.pull from na+sm://12-0.itransfer.size");
        assert_eq!((bulk.statistic.count, bulk.statistic.variance), (1, None));
    }

    #[test]
    fn another_document_is_refused_with_the_name_of_the_right_one() {
        let error = parse("x.json", "{\"a\": 1}").unwrap_err().to_string();
        assert!(error.starts_with("x.json: not the statistics of Margo's monitor"), "{error}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".*", at in 0..FILE.len(), with in any::<char>()) {
            let _ = parse("x", &text);
            if FILE.is_char_boundary(at) && FILE.is_char_boundary(at + 1) {
                let changed = format!("{}{with}{}", &FILE[..at], &FILE[at + 1..]);
                let _ = parse("x", &changed);
            }
        }
    }
}
