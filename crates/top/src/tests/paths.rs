//! Paths of packets that the network makes slow.

use super::*;
use skopos_model::Structured;

/// An insight of the path between two addresses.
fn of_path(name: &str, record: &str) -> Fact {
    let record = Value::Structured(Structured::from_json(record).expect("a record"));
    let topic = format!("{NODE}/insight/10.77.0.1-10.77.0.2/{name}");
    fact(&topic, Unit::NONE, Kind::State, record)
}

#[test]
fn a_path_that_the_network_makes_slow_is_named_with_its_fullest_queue() {
    let mut facts = facts();
    let mut app = App::new(None);
    let verdict = |verdict: &str| {
        let reasons = r#""network": "54.80 % of packets were lost", "host": "tasks stalled for cpu in 9 % of the time""#;
        of_path("slow_pair", &format!(r#"{{"verdict": "{verdict}", {reasons}}}"#))
    };
    facts.push(verdict("host"));
    let shown = screen(&mut app, &data_of(facts.clone()), (160, 40), THEME);
    assert!(!shown.contains("! 10.77.0.1"), "{shown}");
    facts.pop();
    facts.push(verdict("network"));
    let shown = screen(&mut app, &data_of(facts.clone()), (160, 40), THEME);
    has(&shown, &["path ! 10.77.0.1-10.77.0.2 54.80 % of packets were lost"]);
    facts.push(of_path("congestion_point", r#"{"text": "node 4 port 2 holds 995 kB"}"#));
    let data = data_of(facts);
    let shown = screen(&mut app, &data, (160, 40), THEME);
    has(&shown, &["path ! 10.77.0.1-10.77.0.2 node 4 port 2 holds 995 kB"]);
    press(&mut app, &data, &[Key::Char('i')]);
    let shown = screen(&mut app, &data, (140, 40), THEME);
    has(
        &shown,
        &[
            "congestion_point 10.77.0.1-10.77.0.2 node 4 port 2 holds 995 kB",
            "slow_pair 10.77.0.1-10.77.0.2 network: 54.80 % of packets were lost; tasks stalled",
        ],
    );
}
