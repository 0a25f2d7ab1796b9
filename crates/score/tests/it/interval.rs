//! Interval policies and their input.

use std::time::Duration;

use skopos_model::schema::{self, Metric};
use skopos_model::{Kind, SplitMix64, Unit};
use skopos_score::interval::{
    Belief as _, Finding, LastValue, Policy, PolicyConfig, PolicyKind, Replayed, Surprise, Truth,
    hacc, least_deviation, replay,
};
use skopos_score::trace::Trace;

const SECOND: Duration = Duration::from_secs(1);

fn found(at: Duration, change: f64) -> Finding {
    Finding { at, change, value: None }
}

/// Polls a metric of which the share `change` of polls finds a change; returns the last interval.
fn poll(policy: &mut dyn Policy, polls: usize, change: f64, at: &mut Duration) -> Duration {
    let mut interval = Duration::ZERO;
    for _ in 0..polls {
        interval = policy.next(&found(*at, change));
        *at += interval;
    }
    interval
}

#[test]
fn a_constant_metric_reaches_the_longest_interval_under_every_policy() {
    for kind in PolicyKind::ALL.into_iter().filter(|kind| *kind != PolicyKind::Fixed) {
        // A minute at the base interval is enough to learn a behaviour that must be unlearned.
        let config = PolicyConfig { max_seconds: Some(25.0), ..PolicyConfig::new(kind) };
        let mut policy = config.build().expect("a good configuration");
        let mut at = Duration::ZERO;
        assert_eq!(poll(&mut *policy, 100, 0.0, &mut at), 25 * SECOND, "{kind} from the start");
        poll(&mut *policy, 50, 9.0, &mut at);
        assert_eq!(poll(&mut *policy, 100, 0.0, &mut at), 25 * SECOND, "{kind} after changes");
        assert_eq!(policy.name(), kind.name());
    }
}

#[test]
fn a_fixed_interval_never_changes() {
    let config = PolicyConfig { min_seconds: Some(5.0), ..PolicyConfig::new(PolicyKind::Fixed) };
    let mut policy = config.build().expect("a good configuration");
    for change in [0.0, 1e9, f64::NAN] {
        assert_eq!(policy.next(&found(SECOND, change)), 5 * SECOND);
    }
}

#[test]
fn aimd_adds_within_the_threshold_and_multiplies_beyond() {
    let config = PolicyConfig {
        threshold: Some(2.0),
        factor: Some(0.5),
        step_seconds: Some(3.0),
        ..PolicyConfig::new(PolicyKind::Aimd)
    };
    let mut policy = config.build().expect("a good configuration");
    for (change, seconds) in
        [(0.0, 4.0), (2.0, 7.0), (2.1, 3.5), (f64::NAN, 6.5), (9.0, 3.25), (9.0, 1.625), (9.0, 1.0)]
    {
        let expected = Duration::from_secs_f64(seconds);
        assert_eq!(policy.next(&found(SECOND, change)), expected, "after a change of {change}");
    }
}

#[test]
fn aimd_window_compares_with_the_mean_of_the_last_changes() {
    let config = PolicyConfig { window: Some(2), ..PolicyConfig::new(PolicyKind::AimdWindow) };
    let mut policy = config.build().expect("a good configuration");
    // In the window: empty, 0, 0 40, 40 4, 4 2.2, 2.2 0.4.
    for (change, seconds) in
        [(0.0, 2.0), (40.0, 1.5), (4.0, 1.125), (2.2, 2.125), (0.4, 1.593_75), (0.13, 2.593_75)]
    {
        let expected = Duration::from_secs_f64(seconds);
        assert_eq!(policy.next(&found(SECOND, change)), expected, "after a change of {change}");
    }
}

#[test]
fn an_invalid_configuration_is_refused_with_the_valid_range() {
    let aimd = PolicyConfig::new(PolicyKind::Aimd);
    let fixed = PolicyConfig::new(PolicyKind::Fixed);
    let window = PolicyConfig::new(PolicyKind::AimdWindow);
    for (config, expected) in [
        (
            PolicyConfig { min_seconds: Some(0.0), ..aimd.clone() },
            "`min_seconds = 0`: it must lie between 0.001 and 86400",
        ),
        (
            PolicyConfig { max_seconds: Some(f64::NAN), ..aimd.clone() },
            "`max_seconds = NaN`: it must lie between 0.001 and 86400",
        ),
        (
            PolicyConfig { min_seconds: Some(9.0), max_seconds: Some(2.0), ..aimd.clone() },
            "`max_seconds = 2` is less than `min_seconds = 9`",
        ),
        (
            PolicyConfig { factor: Some(1.0), ..aimd.clone() },
            "`factor = 1`: it must lie between 0.01 and 0.99",
        ),
        (PolicyConfig { window: Some(0), ..window }, "`window = 0`: it must lie between 1 and 64"),
        (
            PolicyConfig { window: Some(3), ..aimd },
            "`aimd` has no `window`; it has `min_seconds`, `max_seconds`, `step_seconds`, \
             `factor`, `threshold`",
        ),
        (
            PolicyConfig { max_seconds: Some(5.0), ..fixed },
            "`fixed` has no `max_seconds`; it has `min_seconds`",
        ),
    ] {
        assert_eq!(config.build().expect_err("refused").to_string(), expected);
    }
}

/// The least deviation of a fact that only its own past defines.
const ANY: f32 = 0.0;

/// The greatest change of each poll of one fact, `seconds` apart.
fn changes(kind: Kind, values: impl IntoIterator<Item = f64>, seconds: u32) -> Vec<f64> {
    let mut surprise = Surprise::new(SECOND);
    surprise.add_fact(0, kind, ANY);
    let changes = values.into_iter().enumerate().map(|(n, value)| {
        surprise.begin(SECOND * seconds * u32::try_from(n).expect("few"));
        surprise.fact(0, value);
        surprise.finish().change
    });
    changes.collect()
}

/// Returns the `n`th of a sequence of numbers between 0 and 1.
fn noise(n: u64) -> f64 {
    SplitMix64::new(n).unit()
}

#[test]
fn a_gauge_that_jitters_is_not_a_surprise_and_a_step_is() {
    let mut values: Vec<f64> = (0..400).map(|n| 1e9 + 1e6 * noise(n)).collect();
    values.push(1.1e9);
    let changes = changes(Kind::Gauge, values, 1);
    assert!(changes[200..400].iter().all(|c| *c < 1.0), "{:?}", &changes[200..400]);
    assert!(changes[400] > 5.0, "{}", changes[400]);
}

#[test]
fn steps_out_of_rest_stay_surprises_for_as_long_as_they_come() {
    // A step every fifth second, polled each second and then only at the steps.
    let dense = changes(Kind::Gauge, (0..500u32).map(|n| f64::from(n / 5 % 2) * 38_000.0), 1);
    assert_eq!(dense[1..].iter().filter(|c| **c >= 1.0).count(), 99);
    let locked = changes(Kind::Gauge, (0..500).map(|n| f64::from(n % 2) * 38_000.0), 5);
    assert!(locked[1..].iter().all(|c| *c >= 1.0));
}

#[test]
fn a_counter_is_judged_by_its_rate() {
    let mut total = 0.0;
    let mut steady: Vec<f64> = Vec::new();
    for n in 0..600 {
        total += 100.0 + 10.0 * noise(n);
        steady.push(total);
    }
    steady.push(total + 1000.0);
    // The counter ends like this and restarts at zero.
    steady.extend([total + 1100.0, 5.0, 105.0]);
    let changes = changes(Kind::Counter, steady, 1);
    let surprised = changes[200..600].iter().filter(|c| **c >= 1.0).count();
    assert!(surprised <= 2, "{surprised} of 400");
    assert!(changes[600] > 10.0 && changes[601] > 10.0, "{:?}", &changes[600..]);
    assert_eq!(&changes[602..], [2.0, 0.0], "a restart counts once");
}

#[test]
fn states_count_and_nan_does_not() {
    assert_eq!(changes(Kind::State, [1.0, 1.0, 2.0, 2.0], 1), [0.0, 0.0, 2.0, 0.0]);
    assert_eq!(changes(Kind::Gauge, [1.0, f64::NAN, 1.0, f64::INFINITY], 1), [0.0; 4]);
    assert_eq!(changes(Kind::Gauge, [0.0, 1.0], 1), [0.0, 100.0], "a hundredth is nothing");
    assert_eq!(changes(Kind::Counter, [0.0, 1.0, 3.0], 1), [0.0, 0.0, 1e6], "nothing before");
}

/// Returns true if a fact of `metric` that rests and then moves by `by` is a surprise.
fn surprises(metric: &Metric, by: f64) -> bool {
    let mut surprise = Surprise::new(SECOND);
    surprise.add_fact(0, metric.kind, least_deviation(metric));
    let changes = (0u32..).zip([0.0, 0.0, 0.0, by]).map(|(second, value)| {
        surprise.begin(SECOND * second);
        surprise.fact(0, value);
        surprise.finish().change >= 1.0
    });
    let found: Vec<bool> = changes.collect();
    assert_eq!(found[..3], [false; 3], "{} at rest", metric.name);
    found[3]
}

#[test]
fn a_deviation_too_small_for_any_decision_is_not_a_surprise() {
    for (metric, little, much) in [
        (&schema::mem::AVAILABLE_BYTES, 4e6, 5e6),
        (&schema::block::READ_BYTES_TOTAL, 1e6, 1.1e6),
        (&schema::psi::SOME_AVG10_RATIO, 0.04, 0.06),
        (&schema::cpu::USER_SECONDS_TOTAL, 0.04, 0.06),
        (&schema::block::READ_LATENCY_SECONDS, 0.0005, 0.002),
        // On a small machine, one more task is the difference between idle and busy.
        (&schema::load::LOAD_1M, 0.08, 1.9),
        (&schema::block::QUEUE_DEPTH_MEAN, 0.9, 1.0),
        (&schema::block::IN_FLIGHT, 0.0, 1.0),
        (&schema::cpu::CONTEXT_SWITCHES_TOTAL, 900.0, 1100.0),
        (&schema::vmstat::OOM_KILLS_TOTAL, 0.0, 1.0),
        (&schema::smart::MEDIA_ERRORS_TOTAL, 0.0, 1.0),
    ] {
        assert!(!surprises(metric, little), "{little} of {}", metric.name);
        assert!(surprises(metric, much), "{much} of {}", metric.name);
    }
}

/// The counters of the schema for which every increase is significant, without `_total`.
const NEWS: &str = "
    anomaly_report: lost
    cgroup: memory_oom_kills
    int_node: lost drops
    mirror: lost_batches malformed_batches
    netdev: receive_errors receive_drops receive_fifo_errors transmit_errors transmit_drops
        transmit_carrier_errors
    nic: receive_length_errors receive_overruns receive_crc_errors receive_frame_errors
        transmit_aborted transmit_fifo_errors transmit_window_errors
    path: lost
    peer: lost
    qdisc: drops
    responder: malformed
    self: publish_errors counter_resets trace_records_lost trace_failures
    self/anomaly_receiver: malformed kernel_drops
    self/anomaly_reports: failed
    self/delivery: dropped lost
    self/history: lost errors merge_failures
    self/int: malformed events_lost datagrams_failed
    self/ioam: send_failed malformed reports_failed
    self/jobs: dropped_reads
    self/live: snapshot_requests_dropped name_requests_dropped renewal_requests_dropped
        history_requests_dropped history_answers_dropped measure_requests_dropped
        deliveries_dropped messages_overflowed messages_malformed
    self/remote_write: samples_overflowed
    self/rule: failures failed_actions
    self/sensor: poll_errors
    smart: media_errors unsafe_shutdowns program_failures erase_failures corrected_errors
        link_errors error_log_entries read_errors
    snmp_interface: receive_drops transmit_drops receive_errors transmit_errors
    snmp_poller: failed_polls
    softnet: dropped
    tcp: attempt_failures established_resets retransmitted_segments received_errors sent_resets
        listen_overflows listen_drops request_queue_drops fast_retransmits
        slow_start_retransmits syn_retransmits lost_retransmits backlog_drops
        receive_queue_drops aborts_on_memory aborts_on_timeout
    telemetry: kernel_drops malformed
    udp: received_errors receive_buffer_errors send_buffer_errors checksum_errors memory_errors
    vmstat: oom_kills compaction_failures page_cache_drops
";

#[test]
fn every_counted_error_is_a_surprise() {
    let all = schema::FAMILIES.iter().flat_map(|family| family.metrics);
    let counts = all.filter(|m| m.kind == Kind::Counter && m.unit == Unit::NONE);
    let found: Vec<_> = counts
        .filter(|metric| least_deviation(metric) == 0.0)
        .map(|metric| (metric.path, metric.name.trim_end_matches("_total")))
        .collect();
    let mut expected = Vec::new();
    let mut path = "";
    for word in NEWS.split_whitespace() {
        match word.strip_suffix(':') {
            Some(family) => path = family,
            None => expected.push((path, word)),
        }
    }
    assert_eq!(found, expected);
}

#[test]
fn an_unused_index_has_no_fact() {
    let mut surprise = Surprise::new(SECOND);
    surprise.add_fact(7, Kind::State, ANY);
    for second in 0..3 {
        surprise.begin(SECOND * second);
        surprise.fact(3, f64::from(second));
        surprise.fact(9, f64::from(second));
        assert_eq!(surprise.finish().change, 0.0);
    }
}

#[test]
fn the_greatest_surprise_of_a_poll_counts_and_a_gone_fact_is_forgotten() {
    let mut surprise = Surprise::new(SECOND);
    surprise.add_fact(0, Kind::State, ANY);
    surprise.add_fact(7, Kind::Gauge, ANY);
    let mut poll = |second: u32, a: f64, b: f64| {
        surprise.begin(SECOND * second);
        surprise.fact(0, a);
        surprise.fact(7, b);
        let change = surprise.finish().change;
        if second == 2 {
            surprise.add_fact(7, Kind::Gauge, ANY);
        }
        change
    };
    let expected = [0.0, 2.0, 1.0 / 0.06];
    assert_eq!([poll(0, 1.0, 5.0), poll(1, 2.0, 5.0), poll(2, 2.0, 6.0)], expected);
    assert_eq!([poll(3, 2.0, 99.0), poll(4, 2.0, 99.0)], [0.0, 0.0], "another fact, first seen");
}

/// Half an hour, as in the paper.
const HALF_HOUR: Duration = Duration::from_secs(1800);

fn hazard(truth: &Truth) -> Replayed {
    let mut policy = PolicyConfig::new(PolicyKind::Hazard).build().expect("the defaults are good");
    replay(truth, 1.0, &mut *policy, &mut LastValue::default())
}

/// A value that steps at the given seconds.
fn steps(length: usize, at: impl IntoIterator<Item = usize>) -> Truth {
    let mut values = vec![0.0; length];
    for step in at {
        values[step..].iter_mut().for_each(|value| *value += 100.0);
    }
    Truth { base: SECOND, values }
}

#[test]
fn hazard_polls_a_rhythm_at_its_beats() {
    let regular = hazard(&hacc::regular(HALF_HOUR));
    assert!(regular.accuracy >= 0.95 && regular.cost <= 0.20, "{regular:?}");
    for period in [3, 7, 12, 30] {
        let replayed = hazard(&steps(6000, (period..6000).step_by(period)));
        // Learning a long period, and trusting it, needs further polls besides the beats.
        let beats = 1.0 / period as f64 + 0.02;
        assert!(replayed.accuracy >= 0.93, "every {period} s: {replayed:?}");
        assert!(replayed.cost <= beats, "every {period} s: {replayed:?}");
    }
}

#[test]
fn hazard_polls_only_where_changes_are_due() {
    // The seeds differ from those with which the constants were chosen.
    let replayed: Vec<_> =
        (101..=120).map(|seed| hazard(&hacc::irregular(HALF_HOUR, seed))).collect();
    let mean = |of: fn(&Replayed) -> f64| replayed.iter().map(of).sum::<f64>() / 20.0;
    let (cost, accuracy) = (mean(|r| r.cost), mean(|r| r.accuracy));
    assert!(accuracy >= 0.95 && cost <= 0.35, "accuracy {accuracy}, cost {cost}");
}

#[test]
fn hazard_notices_that_a_workload_stops_starts_and_changes_its_rhythm() {
    let length = 9000;
    let regular = |from: usize, to: usize, period: usize| (from..to).step_by(period);
    let at = regular(5, 1800, 5)
        // Nothing for twenty minutes, then the rhythm again, out of phase; then faster; then
        // slower.
        .chain(regular(3002, 5000, 5))
        .chain(regular(5000, 7000, 3))
        .chain(regular(7000, length, 20));
    let truth = steps(length, at);
    let part = |from: usize, to: usize| {
        let mut policy = PolicyConfig::new(PolicyKind::Hazard).build().expect("good");
        let mut belief = LastValue::default();
        let (mut due, mut polls, mut right) = (0usize, 0usize, 0usize);
        let mut last = truth.values[0];
        for (second, value) in truth.values[..to].iter().enumerate() {
            if due <= second {
                let change = (value - last).abs();
                last = *value;
                let at = SECOND * u32::try_from(second).expect("few");
                belief.polled(at, *value);
                due = second + policy.next(&found(at, change)).as_secs() as usize;
                polls += usize::from(second >= from);
            }
            right += usize::from(second >= from && last == *value);
        }
        (polls as f64 / (to - from) as f64, right as f64 / (to - from) as f64)
    };
    for (what, from, to, cost, accuracy) in [
        ("it stopped", 2400, 3000, 0.05, 1.0),
        ("it runs again", 3302, 5000, 0.30, 0.93),
        ("it is faster", 6000, 7000, 0.50, 0.93),
        ("it is slower", 7600, length, 0.20, 0.93),
    ] {
        let found = part(from, to);
        assert!(found.0 <= cost && found.1 >= accuracy, "{what}: cost, accuracy {found:?}");
    }
}

#[test]
fn hazard_polls_a_drift_at_the_tolerance() {
    let values = (0..3000).map(|second| f64::from(second) * 30.0).collect();
    let truth = Truth { base: SECOND, values };
    let mut policy = PolicyConfig::new(PolicyKind::Hazard).build().expect("good");
    // A significant change is a hundred, which takes three and a third seconds of drift.
    let replayed = replay(&truth, 100.0, &mut *policy, &mut LastValue::default());
    assert!(replayed.accuracy_within >= 0.95 && replayed.cost <= 0.30, "{replayed:?}");
}

#[test]
fn every_interval_is_within_the_bounds() {
    for kind in PolicyKind::ALL {
        for (min, max) in [(1.0, 60.0), (0.001, 86_400.0), (2.0, 2.0)] {
            let config = PolicyConfig {
                min_seconds: Some(min),
                max_seconds: (kind != PolicyKind::Fixed).then_some(max),
                ..PolicyConfig::new(kind)
            };
            let bounds = config.bounds().expect("good");
            let mut policy = config.build().expect("good");
            let mut at = Duration::ZERO;
            for n in 0..3000 {
                let change = match n % 7 {
                    0 => f64::NAN,
                    1 => f64::INFINITY,
                    _ => 3.0 * noise(n) * f64::from(u8::from(noise(n / 50) > 0.5)),
                };
                let interval = policy.next(&found(at, change));
                assert!(bounds.min <= interval && interval <= bounds.max, "{kind}: {interval:?}");
                // Sometimes the poll comes at another time than requested.
                at += interval.mul_f64(if n % 11 == 0 { 1.7 } else { 1.0 });
            }
        }
    }
}

#[test]
fn a_replay_counts_polls_matches_and_gaps() {
    let truth = Truth { base: SECOND, values: vec![1.0, 1.0, 2.0, f64::NAN, 2.5, 2.5] };
    let mut fixed = PolicyConfig { min_seconds: Some(2.0), ..PolicyConfig::new(PolicyKind::Fixed) }
        .build()
        .expect("good");
    let replayed = replay(&truth, 0.5, &mut *fixed, &mut LastValue::default());
    assert_eq!((replayed.polls, replayed.ticks), (3, 5));
    assert_eq!((replayed.cost, replayed.accuracy, replayed.accuracy_within), (0.5, 1.0, 1.0));
    let mut fixed = PolicyConfig { min_seconds: Some(9.0), ..PolicyConfig::new(PolicyKind::Fixed) }
        .build()
        .expect("good");
    let replayed = replay(&truth, 1.0, &mut *fixed, &mut LastValue::default());
    assert_eq!((replayed.accuracy, replayed.accuracy_within), (0.4, 0.6));
    // Errors of 0, 0, 1, 1.5 and 1.5, in standard deviations of 0.678.
    assert!((replayed.mean_error - 0.8 / 0.678_233).abs() < 1e-5, "{replayed:?}");
}

#[test]
fn a_trace_becomes_a_value_a_tick_and_its_gaps_stay_gaps() {
    let text = "time_seconds,value\n0,1\n1.1,2\n1.9,3\n5,4\n";
    let truth = Truth::from_trace(&Trace::parse(text).expect("a trace"), SECOND);
    let known: Vec<_> = truth.values.iter().map(|v| Some(*v).filter(|v| v.is_finite())).collect();
    assert_eq!(known, [Some(1.0), Some(2.0), Some(3.0), None, None, Some(4.0)]);
}

#[test]
fn the_workloads_have_the_shape_of_the_papers() {
    let changes = |truth: &Truth| -> Vec<(usize, f64)> {
        let steps = truth.values.windows(2).enumerate();
        steps.filter(|(_, w)| w[0] != w[1]).map(|(n, w)| (n + 1, w[0] - w[1])).collect()
    };
    let regular = changes(&hacc::regular(HALF_HOUR));
    assert!(regular.iter().all(|(second, bytes)| second % 5 == 0 && *bytes == 38_000.0));
    let irregular = changes(&hacc::irregular(HALF_HOUR, 7));
    assert_eq!(irregular, changes(&hacc::irregular(HALF_HOUR, 7)), "a seed is a sequence");
    assert_ne!(irregular, changes(&hacc::irregular(HALF_HOUR, 8)));
    assert!(irregular.iter().all(|(_, bytes)| (19_000.0..=38_000.0).contains(bytes)));
    assert!(irregular.windows(2).all(|w| (5..=21).contains(&(w[1].0 - w[0].0))));
}

#[test]
fn a_hundred_jittering_facts_are_no_surprise_together() {
    let mut surprise = Surprise::new(SECOND);
    let mut totals = [0.0; 50];
    for index in 0..totals.len() {
        surprise.add_fact(2 * index, Kind::Gauge, ANY);
        surprise.add_fact(2 * index + 1, Kind::Counter, ANY);
    }
    let mut surprised = 0;
    for second in 0..3000u64 {
        surprise.begin(SECOND * second as u32);
        for (index, total) in totals.iter_mut().enumerate() {
            // Heavy tails: about one deviation in a hundred is ten times the usual.
            let wild = |salt: u64| {
                let n = noise(second * 1000 + index as u64 * 2 + salt);
                (n - 0.5) / (1.01 - n)
            };
            surprise.fact(2 * index, 1e3 + wild(0));
            *total += (5.0 + wild(1)).max(0.0);
            surprise.fact(2 * index + 1, *total);
        }
        surprised += usize::from(second >= 1500 && surprise.finish().change >= 1.0);
    }
    assert!(surprised < 150, "{surprised} of 1500 polls");
}
