//! The members of lists of cores, as facts of their own.

use skopos_model::{Kind, Origin, Sample, Topic, Value, core_list};

use crate::data::Fact;
use crate::window::Window;

/// Returns the members of a list of cores; `None` if the fact is not such a list. `samples` returns
/// those in the window of the rates.
pub(crate) fn of_list(
    fact: &Fact,
    samples: impl FnOnce() -> Option<Vec<Sample>>,
    window: &Window,
) -> Option<Vec<Fact>> {
    let (family, metric) = fact.known?;
    let instance = fact.topic.as_str().split('/').nth_back(1)?;
    let first = core_list::first_core(instance)?;
    let Some(Value::Structured(list)) = &fact.value else { return None };
    let is_counter = fact.kind == Kind::Counter;
    let samples = if is_counter && !window.is_quiet { samples()? } else { Vec::new() };
    let rate = |place: usize| match (is_counter, window.is_quiet) {
        (false, _) => None,
        (true, true) => Some(0.0),
        (true, false) => {
            let points: Vec<(i64, f64)> = samples.iter().filter_map(|s| point(s, place)).collect();
            window.rate(&points)
        }
    };
    let members = core_list::members(instance, list).filter_map(|(core, value)| {
        let topic: Topic =
            metric.topic(fact.topic.node(), &core_list::member(family, core)).ok()?;
        let rate = rate(core - first);
        Some(Fact { topic, value: Some(Value::F64(value)), rate, ..fact.clone() })
    });
    Some(members.collect())
}

/// Time and number at a place of a list; `None` if there is no number.
pub(crate) fn point(sample: &Sample, place: usize) -> Option<(i64, f64)> {
    let Value::Structured(list) = &sample.value else { return None };
    let known = (sample.origin != Origin::Unknown).then_some(list.as_json())?;
    Some((sample.time.as_nanos(), known.get(place)?.as_f64()?))
}
