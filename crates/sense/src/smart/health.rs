//! The health of a device, from the JSON of smartctl, in the same words for NVMe, ATA and SCSI. A
//! value that a device does not report, or reports in an unknown unit, is `None`.

use serde_json::Value as Json;

/// NVMe counts data in units of 1,000 sectors of 512 bytes (NVM Express Base Specification, SMART /
/// Health Information Log).
const NVME_DATA_UNIT_BYTES: u64 = 512_000;

/// A little below the coldest and above the hottest temperature that a device survives. A number
/// outside of this range is not a temperature.
const TEMPERATURES: std::ops::RangeInclusive<f64> = -60.0..=200.0;

/// The health of one device.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Health {
    pub(super) passed: Option<bool>,
    pub(super) endurance_used: Option<f64>,
    pub(super) available_spare: Option<f64>,
    pub(super) spare_threshold: Option<f64>,
    pub(super) critical_warning: Option<u64>,
    pub(super) media_errors: Option<u64>,
    pub(super) bad_blocks: Option<u64>,
    pub(super) total_blocks: Option<u64>,
    pub(super) block_bytes: Option<u64>,
    pub(super) read_bytes: Option<u64>,
    pub(super) written_bytes: Option<u64>,
    pub(super) power_on_seconds: Option<u64>,
    pub(super) power_cycles: Option<u64>,
    pub(super) unsafe_shutdowns: Option<u64>,
    pub(super) temperature: Option<f64>,
}

impl Health {
    /// Returns `None` if the answer does not describe the health.
    pub(super) fn of(json: &Json) -> Option<Self> {
        let number = |path: &str| json.pointer(path).and_then(Json::as_u64);
        let block_bytes = number("/logical_block_size").filter(|&n| n > 0);
        let capacity = number("/user_capacity/bytes");
        let in_blocks = || Some(capacity? / block_bytes?);
        let hours = number("/power_on_time/hours");
        let minutes = number("/power_on_time/minutes").unwrap_or(0);
        let temperature = json.pointer("/temperature/current").and_then(Json::as_f64);
        let common = Self {
            passed: json.pointer("/smart_status/passed").and_then(Json::as_bool),
            total_blocks: number("/user_capacity/blocks").or_else(in_blocks).filter(|&n| n > 0),
            block_bytes,
            power_on_seconds: hours
                .and_then(|h| h.checked_mul(3600)?.checked_add(minutes.checked_mul(60)?)),
            power_cycles: number("/power_cycle_count"),
            temperature: temperature.filter(|t| TEMPERATURES.contains(t)),
            ..Self::default()
        };
        let health = if let Some(log) = json.get("nvme_smart_health_information_log") {
            common.with_nvme(log)
        } else if let Some(table) = json.pointer("/ata_smart_attributes/table") {
            common.with_ata(table.as_array()?)
        } else {
            common.with_scsi(json)
        };
        // Devices without health records still report their size and temperature.
        let has_health = health.passed.is_some()
            || health.media_errors.is_some()
            || health.bad_blocks.is_some()
            || health.endurance_used.is_some();
        has_health.then_some(health)
    }

    fn with_nvme(self, log: &Json) -> Self {
        let number = |name: &str| log.get(name).and_then(Json::as_u64);
        let percent = |name: &str| number(name).map(|n| n as f64 / 100.0);
        let data = |name: &str| number(name)?.checked_mul(NVME_DATA_UNIT_BYTES);
        let media_errors = number("media_errors");
        let spare = number("available_spare");
        Self {
            endurance_used: percent("percentage_used"),
            available_spare: percent("available_spare"),
            spare_threshold: percent("available_spare_threshold"),
            critical_warning: number("critical_warning"),
            media_errors,
            // Once spare blocks are in use, blocks have failed, and NVMe does not report their
            // number.
            bad_blocks: media_errors.filter(|_| spare.is_some_and(|spare| spare >= 100)),
            read_bytes: data("data_units_read"),
            written_bytes: data("data_units_written"),
            unsafe_shutdowns: number("unsafe_shutdowns"),
            ..self
        }
    }

    fn with_ata(self, table: &[Json]) -> Self {
        let raw = |id: u64| raw(table.iter().find(|a| a["id"].as_u64() == Some(id))?);
        // Reallocated, pending, and offline uncorrectable sectors.
        let bad = [raw(5), raw(197), raw(198)];
        let data = data_units(table, self.block_bytes);
        Self {
            endurance_used: endurance_used(table),
            media_errors: raw(187),
            bad_blocks: bad.into_iter().flatten().reduce(u64::saturating_add),
            read_bytes: data.read,
            written_bytes: data.written,
            ..self
        }
    }

    fn with_scsi(self, json: &Json) -> Self {
        let log = |what: &str, field: &str| {
            json.pointer(&format!("/scsi_error_counter_log/{what}/{field}"))
        };
        let errors = ["read", "write", "verify"]
            .into_iter()
            .filter_map(|what| log(what, "total_uncorrected_errors")?.as_u64());
        // A text, in units of 10^9 bytes.
        let bytes = |what: &str| {
            let gigabytes: f64 = log(what, "gigabytes_processed")?.as_str()?.parse().ok()?;
            (0.0..1e9).contains(&gigabytes).then_some((gigabytes * 1e9) as u64)
        };
        let used = json.get("scsi_percentage_used_endurance_indicator").and_then(Json::as_u64);
        Self {
            endurance_used: used.map(|percent| percent as f64 / 100.0),
            media_errors: errors.reduce(u64::saturating_add),
            bad_blocks: json.get("scsi_grown_defect_list").and_then(Json::as_u64),
            read_bytes: bytes("read"),
            written_bytes: bytes("write"),
            ..self
        }
    }
}

/// Returns the raw value of an attribute. Some makers pack more data into its upper bytes. smartctl
/// knows them, and its text begins with the right number: `32 (Min/Max 23/35)`.
pub(super) fn raw(attribute: &Json) -> Option<u64> {
    let text = attribute.pointer("/raw/string").and_then(Json::as_str);
    let first = text.and_then(|t| t.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok());
    first.or_else(|| attribute.pointer("/raw/value")?.as_u64())
}

/// Attributes whose normalised value falls from 100 (new) to 0 (worn out), by smartctl's names.
static LIFE_LEFT: [&str; 6] = [
    "Media_Wearout_Indicator",
    "Percent_Lifetime_Remain",
    "Percent_Life_Remaining",
    "Remaining_Lifetime_Perc",
    "SSD_Life_Left",
    "Wear_Leveling_Count",
];

fn endurance_used(table: &[Json]) -> Option<f64> {
    let is_it = |a: &&Json| a["name"].as_str().is_some_and(|name| LIFE_LEFT.contains(&name));
    let left = table.iter().find(is_it)?.get("value")?.as_u64()?;
    (left <= 100).then(|| (100 - left) as f64 / 100.0)
}

#[derive(Default)]
struct Data {
    read: Option<u64>,
    written: Option<u64>,
}

/// The ends of attribute names that give their unit.
static UNITS: [(&str, u64); 3] = [("_32MiB", 32 << 20), ("_GiB", 1 << 30), ("_MiB", 1 << 20)];

/// Returns the bytes read and written. Makers count them in different units under one name. So an
/// attribute with its unit in its name comes first. If it equals `Total_LBAs_Written` in bytes, the
/// same unit holds for `Total_LBAs_Read`.
fn data_units(table: &[Json], block_bytes: Option<u64>) -> Data {
    let named = |beginnings: [&str; 3]| {
        table.iter().find_map(|attribute| {
            let name = attribute["name"].as_str()?;
            beginnings.iter().find(|b| name.starts_with(**b))?;
            let (_, unit) = UNITS.iter().find(|(end, _)| name.ends_with(end))?;
            Some((raw(attribute)?, *unit))
        })
    };
    let blocks =
        |wanted: &str| table.iter().find(|a| a["name"].as_str() == Some(wanted)).and_then(raw);
    let written = named(["Host_Writes", "Lifetime_Writes", "Total_Writes"]);
    let read = named(["Host_Reads", "Lifetime_Reads", "Total_Reads"]);
    let (blocks_written, blocks_read) = (blocks("Total_LBAs_Written"), blocks("Total_LBAs_Read"));
    let block_unit = match (written, blocks_written) {
        (Some((count, unit)), Some(same)) if count == same => Some(unit),
        _ => block_bytes,
    };
    let in_blocks = |count: Option<u64>| Some((count?, block_unit?));
    let bytes = |(count, unit): (u64, u64)| count.checked_mul(unit);
    Data {
        read: read.or_else(|| in_blocks(blocks_read)).and_then(bytes),
        written: written.or_else(|| in_blocks(blocks_written)).and_then(bytes),
    }
}
