//! Delphi on series that were not in its training: synthetic, and recorded under fio.

use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;
use skopos_model::SplitMix64;
use skopos_model::{Kind, Timestamp};
use skopos_score::delphi::{
    COVERAGE, Evaluation, Method, Model, ModelError, Observed, Predictor, evaluate, predict,
};
use skopos_score::trace::Trace;

const SECOND: i64 = 1_000_000_000;

/// The number of samples before the first judged one.
const WARM_UP: usize = 30;

fn at(seconds: f64) -> Timestamp {
    Timestamp::from_nanos((seconds * SECOND as f64) as i64)
}

/// One value a second.
fn series(len: usize, mut value: impl FnMut(usize) -> f64) -> Vec<(Timestamp, f64)> {
    (0..len).map(|i| (at(i as f64), value(i))).collect()
}

fn fed(kind: Kind, samples: &[(Timestamp, f64)]) -> Predictor {
    let mut predictor = Predictor::for_kind(kind);
    for (time, value) in samples {
        assert_ne!(predictor.observe(*time, *value), Observed::Ignored);
    }
    predictor
}

/// Evaluates each trace of one recorder.
fn recorded(by: &str) -> Vec<(PathBuf, Evaluation)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/traces").join(by);
    let entries = std::fs::read_dir(&dir).expect("the recorded traces");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "csv"));
    paths.sort();
    assert!(paths.len() >= 15, "{paths:?}");
    let judged = |path: PathBuf| {
        let trace = Trace::parse(&std::fs::read_to_string(&path).expect("text")).expect("a trace");
        let start = Timestamp::default();
        let samples = trace.samples.iter().map(|(t, v)| (start.saturating_add(*t), *v));
        let samples: Vec<_> = samples.collect();
        let kind = if trace.topic.ends_with("_total") { Kind::Counter } else { Kind::Gauge };
        (path, evaluate(kind, &samples, WARM_UP).expect("samples"))
    };
    paths.into_iter().map(judged).collect()
}

/// The error of the shown predictions, relative to the better of last value and linear.
fn ratio(e: &Evaluation) -> f64 {
    let best = e.last_value.mae.min(e.linear.mae);
    if best > 0.0 { e.shown.mae / best } else { 1.0 + e.shown.mae }
}

#[test]
fn errors_on_unseen_series_stay_small() {
    let mut random = SplitMix64::new(11);
    let (mut walk, mut level, mut count) = (0.0, 0.0, 0.0);
    let mut noise = random.clone();
    let mut steps = random.clone();
    let turn = std::f64::consts::TAU / 60.0;
    // Name, kind, samples, and the greatest error relative to the better of the other two.
    let cases: [(&str, Kind, Vec<_>, f64); 8] = [
        (
            "walk",
            Kind::Gauge,
            series(2000, |_| {
                walk += random.normal();
                walk
            }),
            1.02,
        ),
        ("sine", Kind::Gauge, series(2000, |i| 50.0 * (turn * i as f64).sin()), 0.9),
        ("ramp", Kind::Gauge, series(500, |i| 10.0 * i as f64), 1.0),
        ("uneven ramp", Kind::Gauge, series(500, |i| 0.1 * i as f64), 1.000_001),
        ("constant", Kind::Gauge, series(500, |_| 42.0), 1.0),
        (
            "steps",
            Kind::Gauge,
            series(2000, |i| {
                if i % 40 == 0 {
                    level = 100.0 * steps.normal()
                }
                level
            }),
            1.02,
        ),
        ("noise", Kind::Gauge, series(2000, |_| noise.normal()), 0.85),
        (
            "counter",
            Kind::Counter,
            series(2000, |_| {
                count += noise.unit().powi(2);
                count
            }),
            0.9,
        ),
    ];
    for (name, kind, samples, most) in cases {
        let e = evaluate(kind, &samples, WARM_UP).expect("samples");
        assert!(ratio(&e) <= most, "{name}: {} {e:#?}", ratio(&e));
    }
}

#[test]
fn the_bound_holds_nine_times_in_ten_on_recorded_traces() {
    let traces = recorded("sar");
    let mut mean = 0.0;
    for (path, e) in &traces {
        let coverage = e.coverage.expect("a bound");
        assert!((0.85..=0.97).contains(&coverage), "{}: {coverage}", path.display());
        mean += coverage / traces.len() as f64;
    }
    assert!((mean - COVERAGE).abs() < 0.02, "{mean}");
}

#[test]
fn shown_predictions_mostly_beat_both_others_on_recorded_traces() {
    let ratios: Vec<_> = recorded("sar").iter().map(|(_, e)| ratio(e)).collect();
    let share =
        |holds: fn(&&f64) -> bool| ratios.iter().filter(holds).count() as f64 / ratios.len() as f64;
    assert!(share(|r| **r < 1.0) > 0.75, "{ratios:?}");
    assert!(share(|r| **r <= 1.02) > 0.9, "{ratios:?}");
}

#[test]
fn a_value_that_mostly_rests_is_not_predicted_worse() {
    for (path, e) in recorded("agent") {
        assert!(ratio(&e) <= 1.02, "{}: {e:#?}", path.display());
    }
}

#[test]
fn a_value_renewed_on_a_schedule_is_predicted_to_move_after_its_rest() {
    // A load average: renewed every five seconds, moving towards the load, polled each second.
    let mut random = SplitMix64::new(7);
    let (mut busy, mut load) = (0.0, 0.0);
    let average = series(1000, |i| {
        if i % 40 == 0 {
            busy = 10.0 * random.unit();
        }
        if i % 5 == 0 {
            load += 0.08 * (busy - load);
        }
        load
    });
    let e = evaluate(Kind::Gauge, &average, WARM_UP).expect("samples");
    assert!(ratio(&e) < 0.4, "{e:#?}");
    // A job that writes the same amount every seven seconds: time and amount are known after the
    // rest.
    let written = series(200, |i| (i / 7 * 38_000) as f64);
    let predictor = fed(Kind::Counter, &written[..=195]);
    let said = |seconds: f64| predictor.now(at(seconds)).expect("samples").value;
    assert_eq!(predictor.method(), Method::Delphi);
    assert!((said(196.0) - written[196].1).abs() < 1.0, "{}", said(196.0));
    assert!((said(197.0) - written[197].1).abs() < 1.0, "{}", said(197.0));
    assert!(written[195].1 < written[196].1);
}

/// A source that is polled every eight seconds: the predictions in between against the true values.
#[test]
fn the_bound_holds_between_polls_too() {
    let mut random = SplitMix64::new(23);
    let mut walk = 0.0;
    let turn = std::f64::consts::TAU / 400.0;
    let cases = [
        (
            "walk",
            series(20_000, |_| {
                walk += random.normal();
                walk
            }),
            0.99,
        ),
        ("noise", series(20_000, |_| random.normal()), 0.93),
        ("noisy sine", series(20_000, |i| 50.0 * (turn * i as f64).sin() + random.normal()), 0.99),
    ];
    for (name, samples, most) in cases {
        let mut predictor = Predictor::new();
        let (mut within, mut all) = (0, 0);
        for (i, (time, value)) in samples.iter().enumerate() {
            if i % 8 == 0 {
                predictor.observe(*time, *value);
            } else if i > 8 * WARM_UP {
                let said = predictor.now(*time).expect("samples");
                all += 1;
                within += usize::from((said.value - value).abs() <= said.bound);
            }
        }
        let coverage = within as f64 / f64::from(all);
        assert!((0.89..most).contains(&coverage), "{name}: {coverage}");
    }
}

#[test]
fn between_samples_and_at_uneven_times() {
    // A line, sampled at irregular times.
    let times = [0.0, 1.0, 2.0, 4.0, 8.0, 9.0, 11.0, 12.0, 16.0, 17.0, 20.0, 22.0, 23.0, 25.0];
    let samples: Vec<_> = times.iter().map(|t| (at(*t), 3.0 * t)).collect();
    let predictor = fed(Kind::Gauge, &samples);
    for ahead in [0.0, 0.1, 1.0, 2.5, 4.0] {
        let said = predictor.now(at(25.0 + ahead)).expect("samples");
        assert!((said.value - 3.0 * (25.0 + ahead)).abs() < 1e-6, "{ahead}: {said:?}");
    }
    // At times before the last sample, the prediction is the last sample.
    assert_eq!(predictor.now(at(3.0)).map(|said| said.value), Some(75.0));
}

/// A source that stops: every method predicts a movement for two intervals, and no longer.
#[test]
fn a_stopped_source_is_not_predicted_for_ever() {
    let mut random = SplitMix64::new(29);
    let noise: Vec<_> = (0..300).map(|_| random.normal()).collect();
    let mut shown = Vec::new();
    let methods: [&dyn Fn(usize) -> f64; 4] = [
        &|i| 10.0 * i as f64,
        &|i| 10.0 * i as f64 + noise[i],
        &|i| 50.0 * (0.3 * i as f64).sin(),
        &|_| 42.0,
    ];
    for value in methods {
        let samples: Vec<_> = (0..300).map(|i| (at(0.1 * i as f64), value(i))).collect();
        let last = 29.9;
        let predictor = fed(Kind::Gauge, &samples);
        let near = predictor.now(at(last + 0.19)).expect("samples");
        assert!(near.bound.is_finite(), "{near:?}");
        shown.push(near.method);
        let held = predictor.now(at(last + 0.2)).expect("samples").value;
        for ahead in [0.25, 1.0, 69.0, 1e6] {
            let far = predictor.now(at(last + ahead)).expect("samples");
            assert!((far.value - held).abs() < 1e-3, "{ahead} s ahead: {far:?}, {held} at reach");
            assert_eq!(far.bound, f64::INFINITY, "{ahead} s ahead: {far:?}");
            let all = predictor.forecasts(at(last + ahead)).expect("samples");
            let reach = predictor.forecasts(at(last + 0.2)).expect("samples");
            for (far, reach) in [(all.linear, reach.linear), (all.trained, reach.trained)] {
                assert!((far - reach).abs() < 1e-3, "{ahead} s ahead: {far}, {reach} at reach");
            }
        }
    }
    for method in [Method::LastValue, Method::Linear, Method::Delphi] {
        assert!(shown.contains(&method), "{method}: {shown:?}");
    }
    // A source that is polled less and less often: the next poll is within reach.
    let mut predictor = fed(Kind::Gauge, &series(60, |i| i as f64));
    for later in [61.0, 65.0, 73.0, 89.0] {
        let said = predictor.now(at(later)).expect("samples");
        assert!(said.bound.is_finite(), "{later}: {said:?}");
        predictor.observe(at(later), later);
    }
}

#[test]
fn no_prediction_before_the_first_sample_and_no_model_before_the_fifth() {
    let mut predictor = Predictor::new();
    assert_eq!(predictor.now(at(1.0)), None);
    assert_eq!(predictor.scores(), None);
    predictor.observe(at(0.0), 7.0);
    let said = predictor.now(at(1.0)).expect("a sample");
    assert_eq!((said.value, said.bound, said.method), (7.0, f64::INFINITY, Method::LastValue));
}

#[test]
fn a_counter_never_falls_and_starts_again_after_a_restart() {
    let mut random = SplitMix64::new(5);
    let mut predictor = Predictor::for_kind(Kind::Counter);
    let mut value = 0.0;
    for i in 0..3000 {
        value = if i % 500 == 499 { 0.0 } else { value + 100.0 * random.unit() };
        let expected = if i > 0 && i % 500 == 499 { Observed::Restarted } else { Observed::Taken };
        assert_eq!(predictor.observe(at(f64::from(i)), value), expected, "{i}");
        for ahead in [0.3, 1.0, 5.0] {
            let said = predictor.now(at(f64::from(i) + ahead)).expect("a sample");
            assert!(said.value >= value, "{i}: {said:?} after {value}");
        }
    }
    assert_eq!(predictor.restarts(), 6);
    // Amounts that shrink evenly down to one: the next would be negative.
    let (mut value, mut predictor) = (0.0, Predictor::for_kind(Kind::Counter));
    for i in 0..1000 {
        value += 1999.0 - 2.0 * f64::from(i);
        predictor.observe(at(f64::from(i)), value);
        let said = predictor.now(at(f64::from(i) + 1.0)).expect("a sample");
        assert!(said.value >= value, "{i}: {said:?} after {value}");
    }
    assert_eq!(predictor.method(), Method::Delphi);
}

#[test]
fn a_state_does_not_move() {
    let predictor = fed(Kind::State, &series(100, |i| i as f64));
    let said = predictor.now(at(200.0)).expect("a sample");
    assert_eq!((said.value, said.method), (99.0, Method::LastValue));
}

#[test]
fn nan_and_late_samples_are_ignored_and_counted() {
    let mut predictor = fed(Kind::Gauge, &series(50, |i| i as f64));
    let before = predictor.now(at(50.0));
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(predictor.observe(at(50.0), bad), Observed::Ignored);
    }
    assert_eq!(predictor.observe(at(48.0), 1.0), Observed::Ignored);
    assert_eq!(predictor.ignored(), 4);
    assert_eq!(predictor.now(at(50.0)), before);
    // A second sample of the same time is a correction.
    assert_eq!(predictor.observe(at(49.0), 60.0), Observed::Taken);
    assert_eq!(predictor.now(at(49.0)).map(|said| said.value), Some(60.0));
}

#[test]
fn a_predictor_without_state_agrees_with_a_running_one() {
    let mut random = SplitMix64::new(9);
    let polls = series(120, |i| if i % 7 < 3 { 5.0 } else { 5.0 + random.normal().floor() });
    let mut changes = polls.clone();
    changes.dedup_by_key(|(_, value)| *value);
    assert!(changes.len() < 100);
    let now = at(119.5);
    let running = fed(Kind::Gauge, &polls).now(now).expect("samples");
    let reader = predict(Kind::Gauge, &changes, at(119.0), now).expect("samples");
    // It restores at most four polls without a change, so weights differ a little.
    assert!((running.value - reader.value).abs() < 0.3, "{running:?} {reader:?}");
    assert_eq!(predict(Kind::Gauge, &[], at(1.0), now), None);
}

#[test]
fn a_file_of_weights_is_read_back_or_refused() {
    let good = Model::built_in().to_bytes();
    assert_eq!(Model::from_bytes(&good).as_ref(), Ok(Model::built_in()));
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        Model::from_bytes(&bytes)
    };
    assert_eq!(Model::from_bytes(&good[1..]), Err(ModelError::Length));
    assert_eq!(with(0, b'X'), Err(ModelError::Magic));
    assert_eq!(with(8, 99), Err(ModelError::Version));
    let mut infinite = good.clone();
    infinite[24..28].copy_from_slice(&f32::INFINITY.to_le_bytes());
    assert_eq!(Model::from_bytes(&infinite), Err(ModelError::Weight));
}

#[test]
fn the_state_of_a_vertex_is_small() {
    assert_eq!(size_of::<Predictor>(), 544);
}

proptest! {
    #[test]
    fn any_numbers_at_any_times_give_a_number_and_a_bound(
        samples in prop::collection::vec((any::<i64>(), any::<f64>()), 0..60),
        sorted in any::<bool>(),
        ahead in 0u64..u64::MAX,
    ) {
        let mut samples = samples;
        if sorted {
            samples.sort_by_key(|(time, _)| *time);
        }
        for kind in [Kind::Gauge, Kind::Counter, Kind::State] {
            let mut predictor = Predictor::for_kind(kind);
            for (time, value) in &samples {
                let time = Timestamp::from_nanos(*time);
                predictor.observe(time, *value);
                if let Some(said) = predictor.now(time.saturating_add(Duration::from_nanos(ahead))) {
                    prop_assert!(said.value.is_finite(), "{said:?}");
                    prop_assert!(said.bound >= 0.0, "{said:?}");
                }
            }
        }
    }
}
