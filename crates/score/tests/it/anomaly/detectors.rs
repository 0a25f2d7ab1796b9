//! The properties in which each detector differs from the others.

use skopos_model::Kind;
use skopos_score::anomaly::State;

use super::{Noise, SECOND, Stream};

/// `values`, a second apart; the seconds at which an anomaly was raised (+) or cleared (-).
fn check(parameters: &str, values: &[f64], expected: &[i64]) {
    let mut stream = Stream::new(&format!("{parameters}\nevents_per_minute = 60"), Kind::Gauge);
    stream.all(values.iter().copied());
    let found: Vec<i64> = stream
        .events
        .iter()
        .map(|event| {
            let second = event.at.as_nanos() / SECOND;
            if event.state == State::Raised { second } else { -second }
        })
        .collect();
    assert_eq!(found, expected, "{parameters}: {values:?}");
}

#[test]
fn threshold_has_two_levels_and_a_duration() {
    let above = "detector = \"threshold\"\nabove = 10\nclear = 5";
    check(above, &[10.0, 10.1, 6.0, 11.0, 5.0, 10.0], &[2, -5]);
    let below = "detector = \"threshold\"\nbelow = -1\nclear = 2";
    check(below, &[0.0, -1.0, -1.5, 1.9, -5.0, 2.0], &[3, -6]);
    let same = "detector = \"threshold\"\nabove = 10";
    check(same, &[11.0, 10.0, 11.0], &[1, -2, 3]);
    let held = "detector = \"threshold\"\nabove = 10\nclear = 5\nfor = \"3s\"";
    // Six values beyond the level in total, but a usual one between them.
    check(held, &[11.0, 11.0, 11.0, 9.0, 11.0, 11.0, 11.0], &[]);
    check(held, &[0.0, 11.0, 11.0, 11.0, 11.0, 4.0, 11.0], &[5, -6]);
    // A value between the levels is not beyond: the duration begins anew.
    check(held, &[11.0, 11.0, 7.0, 11.0, 11.0, 11.0, 11.0], &[7]);
}

#[test]
fn threshold_reports_the_start_and_the_distance() {
    let mut stream =
        Stream::new("detector = \"threshold\"\nbelow = 1e9\nclear = 2e9\nfor = 2", Kind::Gauge);
    stream.all([3e9, 0.9e9, 0.7e9, 0.5e9]);
    let event = &stream.events[0];
    assert_eq!((event.since.as_nanos(), event.at.as_nanos()), (2 * SECOND, 4 * SECOND));
    assert_eq!((event.came, event.score), (0.5e9, 1.5));
    assert_eq!((event.expected.value, event.expected.low), (2e9, 1e9));
    assert_eq!(event.expected.high, f64::INFINITY);
}

/// 100 values around 100 with a standard deviation of 1, followed by `values`.
fn after_noise(values: &[f64]) -> Vec<f64> {
    let mut noise = Noise::new(23);
    (0..100).map(|_| 100.0 + noise.normal()).chain(values.iter().copied()).collect()
}

#[test]
fn robust_z_finds_spikes_and_change_point_does_not() {
    let spike = after_noise(&[130.0, 100.0, 100.0]);
    check("detector = \"robust-z\"", &spike, &[101, -102]);
    check("detector = \"change-point\"", &spike, &[]);
    // Three in a row are a shift if the value before them was above the mean too.
    check("detector = \"change-point\"", &after_noise(&[130.0; 2]), &[]);
    check("detector = \"change-point\"", &after_noise(&[130.0; 3]), &[103]);
}

#[test]
fn robust_z_gets_used_to_a_level_after_half_a_window() {
    let mut values = after_noise(&[]);
    values.extend([130.0; 120]);
    check("detector = \"robust-z\"", &values, &[101, -151]);
}

#[test]
fn robust_z_knows_bursts_that_come_often() {
    // A burst in twelve samples belongs to the series; the first bursts and those after a calm do
    // not.
    let mut values = vec![0.0; 100];
    values[99] = 1.0;
    values.extend((0..600).map(|i| f64::from(i % 12 == 11)));
    let mut stream = Stream::new("detector = \"robust-z\"", Kind::Gauge);
    stream.all(values);
    assert!(!stream.events.is_empty());
    let last = stream.events.last().expect("events");
    assert!(last.at.as_nanos() < 200 * SECOND, "{last:?}");
    // With a least spread, the bursts were never unusual.
    check(
        "detector = \"robust-z\"\nmin_spread = 0.5",
        &[vec![0.0; 99], vec![1.0, 0.0]].concat(),
        &[],
    );
}

#[test]
fn change_point_reports_direction_size_and_onset() {
    for shift in [-4.0, -2.0, 2.0, 4.0, 30.0] {
        let (mut stream, mut noise) =
            (Stream::new("detector = \"change-point\"", Kind::Gauge), Noise::new(29));
        let mut level = 100.0;
        for second in 1..800 {
            if second == 500 {
                level += shift;
            }
            stream.at(second * SECOND, level + noise.normal());
        }
        let [raised, cleared] = &stream.events[..] else { panic!("{shift}: {:?}", stream.events) };
        let size = raised.came - raised.expected.value;
        assert!((size - shift).abs() < 1.0, "{shift}: {raised:?}");
        let seconds = |time: skopos_model::Timestamp| time.as_nanos() / SECOND;
        assert!((494..504).contains(&seconds(raised.since)), "{shift}: {raised:?}");
        assert!((501..560).contains(&seconds(raised.at)), "{shift}: {raised:?}");
        // After 50 samples, the new level is usual.
        assert_eq!(seconds(cleared.at), seconds(raised.at) + 50);
        assert!((cleared.expected.value - level).abs() < 0.5, "{shift}: {cleared:?}");
    }
}

#[test]
fn change_point_does_not_get_used_to_a_shift_before_it_is_sure() {
    // With so short a memory, the mean would be half way there after 22 samples.
    let mut found = 0;
    for seed in 0..100 {
        let (mut stream, mut noise) = (
            Stream::new("detector = \"change-point\"\nwindow = 32", Kind::Gauge),
            Noise::new(seed),
        );
        stream.all((0..80).map(|i| noise.normal() + if i < 50 { 0.0 } else { 2.5 }));
        found += usize::from(stream.events.iter().any(|e| e.at.as_nanos() > 50 * SECOND));
    }
    assert!(found >= 80, "{found} of 100");
}

#[test]
fn extreme_has_a_margin_a_side_and_a_memory() {
    let steps = |top: &[f64]| [&[0.0, 10.0][..], &[5.0; 8], top].concat();
    let ten = "detector = \"extreme\"\nafter = 10\nmargin = 0.5";
    check(ten, &steps(&[15.0, 15.1, 5.0]), &[]);
    check(ten, &steps(&[15.1, 10.1, 9.0]), &[11, -13]);
    check(ten, &steps(&[-5.1, 9.0]), &[11, -12]);
    check(&format!("{ten}\nside = \"high\""), &steps(&[-5.1, 9.0]), &[]);
    check(&format!("{ten}\nside = \"low\""), &steps(&[-5.1, 9.0, 30.0]), &[11, -12]);
    // A level that stays is usual after that many samples.
    check(ten, &steps(&[20.0; 12]), &[11, -21]);
    // Too few samples for a judgement.
    check("detector = \"extreme\"\nafter = 12", &steps(&[50.0, 0.0]), &[]);
    // With a margin of 0 each new record counts; it is one anomaly as long as records continue.
    check(
        "detector = \"extreme\"\nafter = 10\nmargin = 0",
        &steps(&[11.0, 12.0, 13.0, 9.0]),
        &[11, -14],
    );
}

#[test]
fn extreme_drops_values_older_than_its_horizon() {
    let peaks = |horizon: &str| {
        let parameters = format!("detector = \"extreme\"\nafter = 10\nside = \"high\"{horizon}");
        let mut stream = Stream::new(&parameters, Kind::Gauge);
        for minute in 0..600_i64 {
            // A peak of 100, then three hours around 10, then a peak of 50.
            let value = match minute {
                100 => 100.0,
                300 => 50.0,
                _ => 10.0 + (minute % 3) as f64,
            };
            stream.at(minute * 60 * SECOND, value);
        }
        stream
            .events
            .iter()
            .filter(|e| e.state == State::Raised)
            .map(|e| e.came)
            .collect::<Vec<_>>()
    };
    assert_eq!(peaks(""), [100.0]);
    assert_eq!(peaks("\nhorizon = \"2h\""), [100.0, 50.0]);
    assert_eq!(peaks("\nhorizon = \"6h\""), [100.0]);
}

#[test]
fn extreme_learns_anew_after_a_silence_longer_than_its_horizon() {
    let mut stream =
        Stream::new("detector = \"extreme\"\nafter = 10\nhorizon = \"1m\"", Kind::Gauge);
    stream.all((0..50).map(f64::from).map(|i| i % 3.0));
    stream.at(9000 * SECOND, 1e6);
    stream.at(9001 * SECOND, 2e6);
    assert_eq!(stream.events, []);
}
