use skopos_model::{Kind, Unit};

/// The least changes that are unusual, by unit, for a counter's rate per second and for other values.
const LEAST: [(&str, f64, f64); 5] = [
    // Things: connections, packets, errors. A handful a second is an everyday event.
    ("", 5.0, 5.0),
    // A file's worth, and less than a thousandth of a link or disk.
    ("bytes", 65_536.0, 1_048_576.0),
    // A twentieth of a second in each second; a millisecond of latency.
    ("seconds", 0.05, 0.001),
    ("ratio", 0.01, 0.01),
    ("celsius", 3.0, 3.0),
];

/// Returns the least distance from the usual range at which a value of this kind and unit is unusual: a smaller one is not
/// worth a report, however quiet the metric was before. Zero for other units: then a thousandth of the value counts.
pub fn least_change(kind: Kind, unit: Unit) -> f64 {
    let found = LEAST.iter().find(|(name, ..)| *name == unit.as_str());
    found.map_or(0.0, |(_, rate, value)| if kind == Kind::Counter { *rate } else { *value })
}
