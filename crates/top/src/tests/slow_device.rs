//! Devices that make programs wait.

use super::*;
use skopos_model::Structured;

const TEXT: &str =
    "loop0 takes 8.2 ms an access; the device itself is slow (1.0 at once, 4.1 kB each, at /x)";

/// The insight of a node.
fn of_node(node: &str) -> Fact {
    let record = format!(r#"{{"devices": [], "truncated": 0, "text": "{TEXT}"}}"#);
    let record = Value::Structured(Structured::from_json(&record).expect("a record"));
    fact(&format!("{node}/insight/node/slow_device"), Unit::NONE, Kind::Gauge, record)
}

#[test]
fn a_slow_device_is_named_with_the_reason() {
    let mut facts = facts();
    let mut app = App::new(None);
    facts.push(of_node("n02"));
    let shown = screen(&mut app, &data_of(facts.clone()), (80, 40), THEME);
    assert!(!shown.contains("! loop0"), "the device of another node: {shown}");
    facts.push(of_node(NODE));
    let data = data_of(facts);
    let shown = screen(&mut app, &data, (80, 40), THEME);
    // The end is cut, and the reason is still there.
    has(&shown, &["disk ! loop0 takes 8.2 ms an access; the device itself is slow (1.0"]);
    press(&mut app, &data, &[Key::Char('i')]);
    has(&screen(&mut app, &data, (200, 40), THEME), &[&format!("slow_device node {TEXT}")]);
}

#[test]
fn a_slow_device_that_is_no_longer_measured_is_not_named() {
    let mut facts = facts();
    let mut old = of_node(NODE);
    old.stale = true;
    facts.push(old);
    let shown = screen(&mut App::new(None), &data_of(facts), (80, 40), THEME);
    assert!(!shown.contains("! loop0"), "{shown}");
}
