//! The present value of a vertex, predicted by the reader from the samples in the ring. The prediction is
//! not written, and the publisher does not take part.

use skopos_model::{Kind, Origin, Sample, Timestamp, Value};
use skopos_score::delphi::predict;
use skopos_shm::{Range, Reading, Vertex};

/// A predicted sample, or the reason why there is no prediction.
pub(crate) type Now = Result<Sample, String>;

/// Returns the present value of the vertex. It is always marked as predicted, even if the last poll was a
/// moment ago: only the past is measured.
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

/// The measured samples in the ring as numbers, oldest first.
///
/// # Errors
/// The vertex is gone, or its values are not numbers.
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
