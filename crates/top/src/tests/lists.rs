//! Lists of cores are shown as cores.

use skopos_model::{Origin, Sample, Structured};

use super::*;
use crate::members;
use crate::window::Window;

fn list(values: &str) -> Value {
    Value::Structured(Structured::from_json(values).expect("a list"))
}

fn list_fact(metric: &Metric, values: &str) -> Fact {
    let topic = metric.topic(NODE, "per_cpu:256").expect("a topic");
    fact(topic.as_str(), metric.unit, metric.kind, list(values))
}

#[test]
fn the_cores_of_lists_are_shown_as_cores() {
    let facts = vec![
        list_fact(&cpu::BUSY_RATIO, "[0.25,null,0.75]"),
        list_fact(&cpu::USER_SECONDS_TOTAL, "[10.5,20,7]"),
        of(&cpu::BUSY_RATIO, "total", 0.5),
        of(&cpu::USER_SECONDS_TOTAL, "total", 0.5),
    ];
    let mut data = data_of(facts);
    let second = Duration::from_secs(1);
    let samples = || {
        let at = |ago, values| Sample {
            time: NOW.saturating_sub(second * ago),
            value: list(values),
            origin: Origin::Measured,
        };
        // The last core was offline.
        Some(vec![at(1, "[10,20]"), at(0, "[10.5,20,7]")])
    };
    for _ in 0..2 {
        let members = data
            .facts
            .iter()
            .filter_map(|fact| members::of_list(fact, samples, &Window::of(fact, Some(second))));
        let members = members.flatten().collect();
        data.set_members(members);
    }
    data.mark_stale();
    let mut app = App::new(None);
    press(&mut app, &data, &[Key::Char('2')]);
    let shown = screen(&mut app, &data, (100, 40), THEME);
    has(&shown, &["256 25.0", "257 ", "258 75.0", "total 50.0"]);
    let names: Vec<&str> = data.instances(&cpu::FAMILY).map(|core| core.name).collect();
    assert_eq!(names, ["256", "257", "258", "total"]);
    let rate = |core| data.instance(&cpu::FAMILY, core).expect(core).rate(&cpu::USER_SECONDS_TOTAL);
    assert_eq!((rate("256"), rate("257"), rate("258")), (Some(0.5), Some(0.0), None));
    let shown = data.instance(&cpu::FAMILY, "258").expect("it is there");
    assert_eq!((shown.value(&cpu::BUSY_RATIO), shown.is_stale()), (Some(0.75), false));
}

#[test]
fn a_value_that_is_read_rarely_is_not_stale_before_its_time() {
    let interval = of(&self_sensor::INTERVAL_SECONDS, "tcp", 1.0);
    let facts =
        vec![of(&tcp::LISTEN_DROPS_TOTAL, "", 1.0), of(&tcp::ESTABLISHED, "", 1.0), interval];
    let mut data = data_of(facts);
    later(&mut data, Duration::from_secs(5));
    data.mark_stale();
    let stale = |metric: &Metric| {
        data.instance(&tcp::FAMILY, "").and_then(|node| node.fact(metric)).expect("a fact").stale
    };
    assert_eq!((stale(&tcp::LISTEN_DROPS_TOTAL), stale(&tcp::ESTABLISHED)), (false, true));
}
