//! The value and the age of an insight, as text for people.

use skopos_agent::control::VertexStatus;
use skopos_model::{Timestamp, Unit, Value, duration};
use skopos_term::format;

/// Formats the value with its unit for people; `unknown: reason` without a value.
pub(crate) fn value(vertex: &VertexStatus) -> String {
    if let Some(reason) = &vertex.unknown {
        return format!("unknown: {reason}");
    }
    let unit = Unit::new(&vertex.unit).unwrap_or(Unit::NONE);
    match vertex.value.as_f64() {
        Some(number) if vertex.value.is_f64() => format::value(&Value::F64(number), unit),
        Some(number) => match vertex.value.as_u64() {
            Some(whole) => format::value(&Value::U64(whole), unit),
            None => format::value(&Value::F64(number), unit),
        },
        None => vertex.value.to_string(),
    }
}

/// Formats the time since the last poll of the source.
pub(crate) fn age(vertex: &VertexStatus, now: Timestamp) -> String {
    match vertex.checked_at_ns {
        0 => "never polled".to_owned(),
        nanos => format!("{} old", duration::human(now.since(Timestamp::from_nanos(nanos)))),
    }
}
