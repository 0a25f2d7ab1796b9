//! What a vertex is at this moment, predicted by the reader from what the vertex stores. Nothing is
//! written, and the publisher does not know.

use skopos_model::{Kind, Origin, Sample, Timestamp, Value};
use skopos_score::delphi::predict;
use skopos_shm::{Range, Reading, Vertex};

/// A predicted sample, or why there is none.
pub(crate) type Now = Result<Sample, String>;

/// What the vertex is now. A value that was measured this very moment would be shown as predicted
/// too: what was asked for is the present, and only the past is measured.
pub(crate) fn now(vertex: &Vertex, latest: &Reading) -> Now {
    if latest.sample.origin == Origin::Unknown {
        return Err("its last value is unknown".to_owned());
    }
    let kind = vertex.info().kind;
    if kind == Kind::State {
        return Err("a state is not predicted".to_owned());
    }
    let samples = measured(vertex)?;
    let time = skopos_shm::now();
    let said = predict(kind, &samples, latest.checked_at, time)
        .ok_or_else(|| "none of its values is finite".to_owned())?;
    let origin = Origin::Predicted { bound: said.bound };
    Ok(Sample { time, value: Value::F64(said.value), origin })
}

/// The measured samples as numbers, oldest first: all that the ring still holds.
///
/// # Errors
/// Why there are none: the vertex is gone, or its values are no numbers.
pub(crate) fn measured(vertex: &Vertex) -> Result<Vec<(Timestamp, f64)>, String> {
    let everything = Timestamp::from_nanos(i64::MIN)..=Timestamp::from_nanos(i64::MAX);
    let Range { samples, .. } = vertex.range(everything).map_err(|e| e.to_string())?;
    let numbers: Vec<_> = samples
        .iter()
        .filter(|sample| sample.origin == Origin::Measured)
        .filter_map(|sample| Some((sample.time, sample.value.as_f64()?)))
        .collect();
    if numbers.is_empty() { Err("it has no measured number".to_owned()) } else { Ok(numbers) }
}
