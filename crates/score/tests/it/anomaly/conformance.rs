//! Properties of every detector.

use skopos_model::{Kind, Timestamp, Topic};
use skopos_score::anomaly::{
    DETECTORS, LARGEST_VALUE, MAX_EVENTS_PER_MINUTE, MAX_STATE_BYTES, State, Watch,
};

use super::{Noise, SECOND, Stream, rules};

/// Each detector, configured for a stream around 100 with a standard deviation of 1.
const ALL: [&str; 5] = [
    "detector = \"threshold\"\nabove = 130\nclear = 110",
    "detector = \"robust-z\"",
    "detector = \"change-point\"",
    "detector = \"extreme\"",
    "detector = \"envelope\"",
];

/// The most samples until a gross shift is found.
const SOON: i64 = 5;

/// The most samples until a past shift is usual again.
const PATIENCE: i64 = 200;

fn check(of: impl Fn(&str)) {
    for (parameters, name) in ALL.iter().zip(DETECTORS) {
        assert!(parameters.contains(name), "all detectors are in the suite");
        of(parameters);
    }
}

fn quiet(noise: &mut Noise) -> f64 {
    100.0 + noise.normal()
}

#[test]
fn a_gross_shift_is_raised_soon_and_becomes_usual_or_ends() {
    check(|parameters| {
        let (mut stream, mut noise) = (Stream::new(parameters, Kind::Gauge), Noise::new(1));
        for second in 1..1000 {
            stream.at(second * SECOND, quiet(&mut noise));
        }
        assert_eq!(stream.events, [], "{parameters}");
        for second in 1000..1000 + SOON {
            stream.at(second * SECOND, 50.0 + quiet(&mut noise));
        }
        let event = stream.events.first().unwrap_or_else(|| panic!("not found: {parameters}"));
        assert_eq!((event.state, event.suppressed), (State::Raised, 0));
        assert!(parameters.contains(event.detector) && event.rule == "r");
        assert_eq!(event.topic.as_str(), "n/a");
        assert!((1000 * SECOND..(1000 + SOON) * SECOND).contains(&event.at.as_nanos()));
        assert!(event.since <= event.at && event.since.as_nanos() >= 999 * SECOND, "{event:?}");
        assert!((145.0..155.0).contains(&event.came), "{event:?}");
        assert!(event.expected.high < event.came && event.score >= 1.0, "{event:?}");
        assert!(event.expected.low <= event.expected.value, "{event:?}");
        assert_eq!(stream.watch.raised().count(), 1);
        for second in 1000 + SOON..1000 + SOON + PATIENCE {
            stream.at(second * SECOND, quiet(&mut noise));
        }
        let last = stream.events.last().expect("events");
        assert_eq!(last.state, State::Cleared, "{parameters}");
        assert!((last.came - 100.0).abs() < 10.0, "{last:?}");
        assert_eq!(stream.watch.raised().count(), 0);
    });
}

#[test]
fn a_constant_is_never_unusual_nor_are_its_last_bits() {
    check(|parameters| {
        for level in [100.0, 0.0, -3.5, 1e-300, 1e12_f64.next_up(), -LARGEST_VALUE] {
            let level = level.min(120.0);
            let mut stream = Stream::new(parameters, Kind::Gauge);
            let bits = [level, level.next_up(), level.next_down()];
            stream.all((0..2000).map(|i| if i < 500 { level } else { bits[i % 3] }));
            assert_eq!(stream.events, [], "{parameters} at {level}");
        }
    });
}

#[test]
fn the_same_samples_give_the_same_events() {
    check(|parameters| {
        let run = || {
            let (mut stream, mut noise) = (Stream::new(parameters, Kind::Gauge), Noise::new(7));
            stream.all((0..5000).map(|i| {
                let burst = if i % 300 > 290 { 60.0 } else { 0.0 };
                burst + quiet(&mut noise)
            }));
            stream.events
        };
        let events = run();
        assert!(events.len() >= 2, "{parameters}: {} events", events.len());
        assert_eq!(events, run());
    });
}

#[test]
fn nan_is_counted_and_changes_nothing() {
    check(|parameters| {
        let strange = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, f64::MAX, f64::MIN];
        let (mut plain, mut mixed) =
            (Stream::new(parameters, Kind::Gauge), Stream::new(parameters, Kind::Gauge));
        let mut noise = Noise::new(3);
        for second in 1..600_i64 {
            let value = if second > 580 { 160.0 } else { quiet(&mut noise) };
            plain.at(second * SECOND, value);
            mixed.at(second * SECOND - 1, strange[second as usize % strange.len()]);
            mixed.at(second * SECOND, value);
        }
        assert_eq!(plain.events, mixed.events, "{parameters}");
        assert!(!plain.events.is_empty());
        assert_eq!(mixed.watch.counts().not_finite, 599);
        assert_eq!(plain.watch.counts().not_finite, 0);
    });
}

#[test]
fn the_largest_numbers_do_no_harm() {
    check(|parameters| {
        let mut stream = Stream::new(parameters, Kind::Gauge);
        let mut noise = Noise::new(5);
        stream.all((0..3000).map(|i| match i {
            600 => LARGEST_VALUE,
            700 => -LARGEST_VALUE,
            _ => quiet(&mut noise),
        }));
        for event in &stream.events {
            let numbers = [event.came, event.score, event.expected.value];
            assert!(numbers.iter().all(|x| x.is_finite()), "{event:?}");
        }
        assert_eq!(stream.watch.raised().count(), 0, "{parameters}: it gets over it");
    });
}

#[test]
fn time_that_does_not_go_forward_is_counted_and_changes_nothing() {
    check(|parameters| {
        let (mut plain, mut mixed) =
            (Stream::new(parameters, Kind::Gauge), Stream::new(parameters, Kind::Gauge));
        let mut noise = Noise::new(11);
        for second in 1..600_i64 {
            let value = if second > 580 { 160.0 } else { quiet(&mut noise) };
            plain.at(second * SECOND, value);
            mixed.at(second * SECOND, value);
            mixed.at(second * SECOND, 1e6);
            mixed.at(second * SECOND - second % 7 * SECOND, -1e6);
        }
        assert_eq!(plain.events, mixed.events, "{parameters}");
        assert!(!plain.events.is_empty());
        assert_eq!(mixed.watch.counts().backwards, 2 * 599);
    });
}

#[test]
fn uneven_times_are_no_anomaly() {
    check(|parameters| {
        let (mut stream, mut noise) = (Stream::new(parameters, Kind::Gauge), Noise::new(13));
        let mut now = 0;
        for _ in 0..1500 {
            // From a hundredth of a second to a hundred seconds.
            now += (1e7 * 1e4_f64.powf(noise.uniform())) as i64;
            stream.at(now, quiet(&mut noise));
        }
        assert_eq!(stream.events, [], "{parameters}");
        for step in 1..=SOON {
            stream.at(now + step * 17 * SECOND, 160.0);
        }
        assert_eq!(stream.events.len(), 1, "{parameters}");
    });
}

#[test]
fn a_counter_is_judged_by_its_rate() {
    check(|parameters| {
        let (mut stream, mut noise) = (Stream::new(parameters, Kind::Counter), Noise::new(17));
        let (mut now, mut count) = (SECOND, 1e9);
        let mut step = |stream: &mut Stream, noise: &mut Noise, rate: f64| {
            let seconds = 0.2 + 3.0 * noise.uniform();
            now += (seconds * 1e9) as i64;
            count += seconds * (rate + noise.normal());
            // The source restarts now and then: the value falls far, and that is not unusual.
            if now % 97 == 0 {
                count = 5.0;
            }
            stream.at(now, count);
        };
        for _ in 0..3000 {
            step(&mut stream, &mut noise, 100.0);
        }
        assert_eq!(stream.events, [], "{parameters}");
        let resets = stream.watch.counts().resets;
        assert!((5..100).contains(&resets), "{resets}");
        for _ in 0..SOON + 2 {
            step(&mut stream, &mut noise, 150.0);
        }
        let event = stream.events.first().unwrap_or_else(|| panic!("not found: {parameters}"));
        assert!((140.0..160.0).contains(&event.came), "{event:?}");
    });
}

#[test]
fn a_noisy_fact_does_not_flood_and_held_back_changes_are_reported() {
    check(|parameters| {
        let parameters = format!("{parameters}\nevents_per_minute = 2");
        let (mut stream, mut noise) = (Stream::new(&parameters, Kind::Gauge), Noise::new(19));
        // Ten samples a second: half an hour of bursts, then calm.
        for tenth in 0..18_000_i64 {
            let far = if tenth % 200 < 5 { (tenth / 200 + 2) as f64 * 40.0 } else { 0.0 };
            let burst = if tenth > 2000 { far } else { 0.0 };
            stream.at(tenth * SECOND / 10 + 1, burst + quiet(&mut noise));
        }
        for second in 1801..3000 {
            stream.at(second * SECOND, quiet(&mut noise));
        }
        let counts = stream.watch.counts();
        assert_eq!(counts.events, stream.events.len() as u64);
        assert!(counts.events <= 2 * 31, "{parameters}: {}", counts.events);
        for window in stream.events.windows(4) {
            let span = window[3].at.since(window[0].at).as_secs_f64();
            assert!(span >= 30.0, "4 events in {span} s");
        }
        // States alternate, so a listener knows the current one.
        let states: Vec<State> = stream.events.iter().map(|e| e.state).collect();
        assert!(states.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!(states.last(), Some(&State::Cleared), "{parameters}");
        // The next event counts all changes that were held back before it.
        for second in 3000..3000 + SOON {
            stream.at(second * SECOND, 10_000.0);
        }
        let counts = stream.watch.counts();
        let suppressed: u64 = stream.events.iter().map(|e| e.suppressed).sum();
        assert_eq!(counts.changes, counts.events + suppressed, "{parameters}");
    });
    // `extreme` has few changes; detectors with many changes had some held back.
    let mut stream = Stream::new("detector = \"threshold\"\nabove = 1", Kind::Gauge);
    stream.all((0..600).map(|i| f64::from(i % 2) * 2.0));
    assert!(stream.watch.counts().changes >= 599 && stream.events.len() <= 6 * 11);
}

#[test]
fn a_storm_is_bounded_for_all_together() {
    let mut watch = Watch::new(&rules(
        "[[anomaly]]\nname = \"r\"\ntopic = \"**\"\ndetector = \"threshold\"\nabove = 1",
    ))
    .expect("rules");
    let topics = (0..2000).map(|i| Topic::new(&format!("n/{i}")).expect("a topic"));
    let vertices: Vec<_> =
        topics.map(|topic| watch.joined(&topic, Kind::Gauge).expect("room")).collect();
    let mut events = Vec::new();
    let mut all_at = |second: i64| {
        let before = events.len();
        for vertex in &vertices {
            watch.observe(*vertex, Timestamp::from_nanos(second * SECOND), 2.0, &mut events);
        }
        events.len() - before
    };
    assert_eq!(all_at(1), MAX_EVENTS_PER_MINUTE as usize);
    assert_eq!(all_at(31), MAX_EVENTS_PER_MINUTE as usize / 2);
    // Held-back changes are reported later.
    assert_eq!(all_at(3600), MAX_EVENTS_PER_MINUTE as usize);
    all_at(7200);
    assert_eq!(events.len(), 2000);
}

#[test]
fn memory_is_bounded_and_comes_back() {
    check(|parameters| {
        let toml = format!("[[anomaly]]\nname = \"r\"\ntopic = \"**\"\n{parameters}");
        let mut watch = Watch::new(&rules(&toml)).expect("rules");
        let topic = |i: usize| Topic::new(&format!("n/{i}")).expect("a topic");
        let joined: Vec<_> =
            (0..20_000).filter_map(|i| watch.joined(&topic(i), Kind::Gauge)).collect();
        assert!((400..20_000).contains(&joined.len()), "{parameters}: {}", joined.len());
        assert_eq!(watch.counts().refused as usize, 20_000 - joined.len());
        let bytes = watch.state_bytes();
        assert!((MAX_STATE_BYTES * 9 / 10..=MAX_STATE_BYTES).contains(&bytes), "{bytes}");
        let mut events = Vec::new();
        for second in 1..300 {
            for vertex in &joined {
                watch.observe(*vertex, Timestamp::from_nanos(second * SECOND), 1.0, &mut events);
            }
        }
        assert_eq!(watch.state_bytes(), bytes, "samples take no more");
        // A vertex that leaves frees its memory, and its handle is no longer valid.
        let (stale, refused) = (joined[0], watch.counts().refused);
        watch.left(stale);
        watch.left(stale);
        assert!(watch.state_bytes() < bytes);
        let newcomer = watch.joined(&topic(0), Kind::Gauge).expect("room");
        assert_ne!(newcomer, stale);
        watch.observe(stale, Timestamp::from_nanos(1), f64::NAN, &mut events);
        assert_eq!(watch.counts().not_finite, 0);
        assert_eq!(watch.counts().refused, refused);
        for vertex in joined[1..].iter().chain([&newcomer]) {
            watch.left(*vertex);
        }
        assert_eq!(watch.state_bytes(), 0);
    });
}
