//! Series and samples as records of the log core.
//!
//! # Layout
//! Little-endian.
//!
//! ```text
//! description of a series:  kind u8, type u8, length u8 and unit, topic; the epoch is the time of registration
//! content of a sample:      origin u8, [bound f64 if predicted], bits u64 or JSON; the sequence is its time
//! ```
//!
//! The origin is 0 for measured, 1 for predicted, 2 for unknown, and 4 more for JSON.

use skopos_model::{
    ByteReader, Kind, Origin, Sample, Scalar, Structured, Timestamp, Topic, Unit, Value, ValueType,
};

use super::series::{OriginCode, Series};

/// The bit beside the origin that marks JSON.
const STRUCTURED: u8 = 4;

/// Returns the description of a series.
pub(super) fn description(series: &Series) -> Vec<u8> {
    let mut out = vec![series.kind.code(), series.value_type.code()];
    // The model limits a unit to less than 256 bytes.
    out.push(series.unit.as_str().len() as u8);
    out.extend_from_slice(series.unit.as_str().as_bytes());
    out.extend_from_slice(series.topic.as_str().as_bytes());
    out
}

/// Reads the description of a series; `None` if it is not one.
pub(super) fn series(since: i64, description: &[u8]) -> Option<Series> {
    let mut reader = ByteReader::new(description);
    let (kind, value_type) = (Kind::from_code(reader.u8()?)?, ValueType::from_code(reader.u8()?)?);
    let unit_bytes = reader.u8()?;
    let unit = Unit::new(reader.text(unit_bytes.into())?).ok()?;
    let topic = Topic::new(reader.text(reader.remaining())?).ok()?;
    Some(Series { topic, unit, kind, value_type, since: Timestamp::from_nanos(since) })
}

/// Replaces `out` by the content of a sample.
pub(super) fn write(sample: &Sample, out: &mut Vec<u8>) {
    out.clear();
    let structured = matches!(sample.value, Value::Structured(_));
    out.push(OriginCode::of(sample.origin) as u8 | if structured { STRUCTURED } else { 0 });
    if let Origin::Predicted { bound } = sample.origin {
        out.extend_from_slice(&bound.to_bits().to_le_bytes());
    }
    match &sample.value {
        Value::F64(v) => out.extend_from_slice(&v.to_bits().to_le_bytes()),
        Value::I64(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::U64(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::Structured(structured) => out.extend_from_slice(structured.to_string().as_bytes()),
    }
}

/// Reads a sample of a series with this type; `None` if it is not one.
pub(super) fn sample(value_type: ValueType, time: i64, content: &[u8]) -> Option<Sample> {
    let mut reader = ByteReader::new(content);
    let code = reader.u8()?;
    let origin = match OriginCode::from_code(code & !STRUCTURED)? {
        OriginCode::Measured => Origin::Measured,
        OriginCode::Predicted => Origin::Predicted { bound: f64::from_bits(reader.u64()?) },
        OriginCode::Unknown => Origin::Unknown,
    };
    let value = match code & STRUCTURED {
        0 => Scalar::from_bits(value_type, reader.u64()?)?.into(),
        _ => Structured::from_json(reader.text(reader.remaining())?).ok()?.into(),
    };
    reader.is_empty().then(|| Sample { time: Timestamp::from_nanos(time), value, origin })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_and_samples_come_back() {
        let topic = Topic::new("n1/a/b").expect("a topic");
        let (unit, kind) = (Unit::BYTES, Kind::Counter);
        let since = Timestamp::from_nanos(-5);
        let value_type = ValueType::U64;
        let written = Series { topic, unit, kind, value_type, since };
        assert_eq!(series(-5, &description(&written)), Some(written));
        assert_eq!(series(0, &[0, 0, 9]), None);
        let mut content = Vec::new();
        for (value, value_type) in [
            (Value::F64(-0.0), ValueType::F64),
            (Value::I64(i64::MIN), ValueType::I64),
            (Value::U64(u64::MAX), ValueType::U64),
            (Value::Structured(Structured::text("é")), ValueType::Structured),
            (Value::Structured(Structured::text("a reason")), ValueType::F64),
        ] {
            for origin in [Origin::Measured, Origin::Predicted { bound: 0.5 }, Origin::Unknown] {
                let time = Timestamp::from_nanos(7);
                let written = Sample { time, value: value.clone(), origin };
                write(&written, &mut content);
                assert_eq!(sample(value_type, 7, &content), Some(written));
                assert_eq!(sample(value_type, 7, &content[..content.len() - 1]), None);
            }
        }
    }
}
