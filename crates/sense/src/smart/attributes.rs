//! Everything that a device reports about itself beside the common health: its attributes as they are, and the counts of
//! them that have one meaning for many makers. A value that a device does not report is `None`.

use serde_json::{Value as Json, json};
use skopos_model::Structured;

use super::health::raw;

/// The most attributes: the table of ATA has room for 30.
const MAX_ATTRIBUTES: usize = 64;

/// NVMe counts some times in minutes.
const MINUTE: u64 = 60;

/// The counts of one device.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) program_failures: Option<u64>,
    pub(super) erase_failures: Option<u64>,
    pub(super) erase_cycles: Option<u64>,
    pub(super) reallocated: Option<u64>,
    pub(super) pending: Option<u64>,
    pub(super) uncorrectable: Option<u64>,
    pub(super) corrected: Option<u64>,
    pub(super) link_errors: Option<u64>,
    pub(super) command_timeouts: Option<u64>,
    pub(super) log_entries: Option<u64>,
    pub(super) busy_seconds: Option<u64>,
    pub(super) warm_seconds: Option<u64>,
    pub(super) hot_seconds: Option<u64>,
}

impl Counts {
    /// Reads the answer of smartctl.
    pub(super) fn of(json: &Json) -> Self {
        let number = |path: &str| json.pointer(path).and_then(Json::as_u64);
        let nvme = |name: &str| number(&format!("/nvme_smart_health_information_log/{name}"));
        let minutes = |name: &str| nvme(name)?.checked_mul(MINUTE);
        let table = json.pointer("/ata_smart_attributes/table").and_then(Json::as_array);
        let table = table.map_or(&[][..], Vec::as_slice);
        let by_id = |id: u64| table.iter().find(|a| a["id"].as_u64() == Some(id)).and_then(raw);
        let by_name = |names: &[&str]| {
            let is_it = |a: &&Json| {
                a["name"].as_str().is_some_and(|name| names.iter().any(|n| name.contains(n)))
            };
            table.iter().find(is_it).and_then(raw)
        };
        let corrected = ["read", "write", "verify"].into_iter().filter_map(|what| {
            number(&format!("/scsi_error_counter_log/{what}/total_errors_corrected"))
        });
        Self {
            program_failures: by_name(&["Program_Fail"]),
            erase_failures: by_name(&["Erase_Fail"]),
            erase_cycles: by_name(&["Erase_Count", "PE_Cycle", "Wear_Leveling_Count"]),
            reallocated: by_id(5),
            pending: by_id(197),
            uncorrectable: by_id(198),
            corrected: corrected.reduce(u64::saturating_add),
            link_errors: by_id(199),
            command_timeouts: by_id(188),
            log_entries: nvme("num_err_log_entries"),
            busy_seconds: minutes("controller_busy_time"),
            warm_seconds: minutes("warning_temp_time"),
            hot_seconds: minutes("critical_comp_time"),
        }
    }
}

/// Returns the attributes of a device as a list of records, and the number of those for which there was no room. `None` for
/// a device without attributes.
pub(super) fn attributes(json: &Json) -> Option<(Structured, u64)> {
    let mut records = records(json)?;
    let all = records.len();
    records.truncate(MAX_ATTRIBUTES);
    loop {
        if let Ok(list) = Structured::new(Json::Array(records.clone())) {
            return Some((list, (all - records.len()) as u64));
        }
        // Names may be long; the first attributes are the common ones.
        records.pop()?;
    }
}

fn records(json: &Json) -> Option<Vec<Json>> {
    if let Some(table) = json.pointer("/ata_smart_attributes/table") {
        let record = |a: &Json| {
            json!({
                "id": a.get("id"), "name": a.get("name"), "value": a.get("value"),
                "worst": a.get("worst"), "threshold": a.get("thresh"), "raw": raw(a),
            })
        };
        return Some(table.as_array()?.iter().map(record).collect());
    }
    let named = |name: String, value: &Json| json!({ "name": name, "raw": value });
    if let Some(log) = json.get("nvme_smart_health_information_log") {
        return Some(log.as_object()?.iter().map(|(k, v)| named(k.clone(), v)).collect());
    }
    let log = json.get("scsi_error_counter_log")?.as_object()?;
    let of = |(what, counts): (&String, &Json)| {
        let counts = counts.as_object()?.iter();
        Some(counts.map(|(k, v)| named(format!("{what}_{k}"), v)).collect::<Vec<_>>())
    };
    Some(log.iter().filter_map(of).flatten().collect())
}
