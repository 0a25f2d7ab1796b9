//! Counterfactual replay of recordings.

use proptest::prelude::*;
use skopos_model::SplitMix64;
use skopos_steer::Error;
use skopos_steer::rank::replay::{Header, Record, Replayed, VERSION, replay};
use skopos_steer::rank::{Method, Metric, Profile};

fn profile() -> Profile {
    let metric = Metric::new("seconds", 1e-4);
    Profile { hysteresis: 0.0, ..Profile::new("new", Method::Given, vec![metric]) }
}

fn header() -> String {
    let metrics = vec!["other".to_owned(), "seconds".to_owned()];
    format!("{}\n", serde_json::to_string(&Header { version: VERSION, metrics }).expect("json"))
}

/// Requests that two candidates served in turns; a request costs the value of its candidate.
fn recording(requests: usize) -> String {
    let mut random = SplitMix64::new(8);
    let mut text = header();
    for at in 0..requests {
        let seconds = [0.001 * random.between(0.9, 1.1), 0.003 * random.between(0.9, 1.1)];
        let chosen = random.below(2);
        let record = Record {
            at: at as i64 * 1_000_000,
            candidates: vec!["fast".into(), "slow".into()],
            values: seconds.map(|s| vec![None, Some(s)]).to_vec(),
            chosen,
            probability: 0.5,
            cost: seconds[chosen],
        };
        text += &serde_json::to_string(&record).expect("json");
        text += "\n";
    }
    text
}

fn replayed(text: &str) -> Replayed {
    replay(text, profile(), 1).expect("a replay")
}

#[test]
fn the_estimate_is_the_cost_that_the_new_weights_have() {
    let replayed = replayed(&recording(2000));
    assert!((replayed.recorded_cost - 0.002).abs() < 1e-4);
    // The slow candidate is about 2.8 times as bad, so it has an eighth to a ninth of the requests.
    let estimated = replayed.estimated_cost.expect("an estimate");
    let (low, high) = replayed.interval.expect("an interval");
    assert!((0.00118..0.00132).contains(&estimated), "{estimated}");
    assert!(low < estimated && estimated < high && high - low < 1e-4);
    assert!((900..1100).contains(&replayed.chosen_otherwise));
    assert!(replayed.effective > 900.0 && replayed.cut == 0 && !replayed.torn);
}

#[test]
fn a_torn_recording_is_read_up_to_the_tear() {
    let text = recording(20);
    let whole = replayed(&text);
    let torn = replayed(&text[..text.len() - 30]);
    assert_eq!((whole.requests, torn.requests, torn.torn), (20, 19, true));
    let nothing = replayed(&header());
    assert_eq!((nothing.requests, nothing.estimated_cost), (0, None));
    assert!(matches!(replay("", profile(), 1), Err(Error::Recording { line: 1, .. })));
}

#[test]
fn recordings_that_are_not_valid_name_their_line() {
    let good = recording(2);
    let refused = |from: &str, to: &str| {
        replay(&good.replacen(from, to, 1), profile(), 1).expect_err("an error").to_string()
    };
    assert!(refused("\"version\":1", "\"version\":9").contains("version 9"));
    assert!(refused("\"seconds\"", "\"minutes\"").contains("`seconds` is not recorded, but [\""));
    assert!(refused("\"probability\":0.5", "\"probability\":0.0").starts_with("line 2"));
    assert!(refused("\"fast\",", "").contains("differ in number"));
    assert!(refused("\"at\":1000000", "\"at\":\"x\"").starts_with("line 3"));
}

proptest! {
    #[test]
    fn any_text_is_an_answer_or_an_error(text in "\\PC{0,200}", cut in 0..400_usize) {
        let _ = replay(&text, profile(), 1);
        let mut recording = recording(2);
        recording.truncate(cut);
        let _ = replay(&(recording + &text + "\n"), profile(), 1);
    }
}
