//! Lists of the values of cores.
//!
//! A machine with many cores has one fact for all of them in place of a fact of each core: the fact
//! `n01/cpu/per_cpu/busy_ratio` is a list of the ratios of the cores 0 to 255, in which a core that is
//! offline is `null`, and `n01/cpu/per_cpu:256/busy_ratio` has the next ones. Metric, unit and kind
//! are those of the members.
//!
//! ```
//! use skopos_model::core_list;
//! assert_eq!(core_list::instance(1), "per_cpu:256");
//! assert_eq!(core_list::first_core("per_cpu:256"), Some(256));
//! assert_eq!(core_list::member(&skopos_model::schema::cpu::FAMILY, 300), "300");
//! ```

use crate::schema::{Family, cpu, interrupts, lookup_in_family};
use crate::structured::Structured;
use crate::topic::Topic;

/// The instance of the first list of a metric.
pub const PER_CPU: &str = "per_cpu";

/// The most cores in a list: each may have fifteen characters of the 4,096 bytes of a structured value.
pub const CORES_IN_A_LIST: usize = 256;

/// The bound of the first core of a list, many times the cores of any machine: the instance may come
/// from another process.
const MAX_FIRST_CORE: usize = 1 << 20;

/// Returns the instance of the list with this number, from 0.
pub fn instance(list: usize) -> String {
    match list {
        0 => PER_CPU.to_owned(),
        list => format!("{PER_CPU}:{}", list * CORES_IN_A_LIST),
    }
}

/// Returns the number of the first core in the list with this instance; `None` if it is not a list.
pub fn first_core(instance: &str) -> Option<usize> {
    match instance.strip_prefix(PER_CPU)? {
        "" => Some(0),
        rest => rest.strip_prefix(':')?.parse().ok().filter(|first| *first < MAX_FIRST_CORE),
    }
}

/// Returns the instance that a core has where it has facts of its own.
pub fn member(family: &Family, core: usize) -> String {
    match family.name == interrupts::FAMILY.name {
        true => format!("cpu{core}"),
        false => core.to_string(),
    }
}

/// Returns the topic of the list that has the member with this topic, and the member's place in it; `None`
/// if no list can have it.
pub fn list_of(member: &Topic) -> Option<(Topic, usize)> {
    let (family, metric) = lookup_in_family(member)?;
    let instance = member.as_str().split('/').nth_back(1)?;
    let number = match [&cpu::FAMILY, &interrupts::FAMILY].map(|f| f.name == family.name) {
        [true, _] => instance,
        [_, true] => instance.strip_prefix("cpu")?,
        _ => return None,
    };
    let core = number.parse::<usize>().ok().filter(|core| *core < MAX_FIRST_CORE)?;
    let list = metric.topic(member.node(), &self::instance(core / CORES_IN_A_LIST)).ok()?;
    Some((list, core % CORES_IN_A_LIST))
}

/// Returns the members of a list: the number of each core that has a value, and the value.
pub fn members(instance: &str, list: &Structured) -> impl Iterator<Item = (usize, f64)> {
    let first = first_core(instance);
    let values = list.as_json().as_array().into_iter().flatten();
    let cores = first.into_iter().flat_map(|first| first..).zip(values);
    cores.filter_map(|(core, value)| Some((core, value.as_f64()?)))
}

/// Returns the topic and the value of each member of the list with this topic; empty if it is not a list of
/// cores.
pub fn topics<'l>(
    topic: &'l Topic,
    list: &'l Structured,
) -> impl Iterator<Item = (Topic, f64)> + 'l {
    let instance = topic.as_str().split('/').nth_back(1).filter(|i| first_core(i).is_some());
    let known = instance.zip(lookup_in_family(topic));
    known.into_iter().flat_map(move |(instance, (family, metric))| {
        members(instance, list).filter_map(move |(core, value)| {
            Some((metric.topic(topic.node(), &member(family, core)).ok()?, value))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_leads_back_to_its_first_core() {
        for list in 0..8 {
            assert_eq!(first_core(&instance(list)), Some(list * CORES_IN_A_LIST));
        }
        for other in ["", "0", "total", "cpu0", "per_cpu0", "per_cpu:", "per_cpu:x"] {
            assert_eq!(first_core(other), None, "{other}");
        }
    }

    #[test]
    fn a_member_leads_to_its_list() {
        let of = |topic: &str| list_of(&topic.parse().expect(topic));
        let list = |topic: &str, place| Some((topic.parse().expect(topic), place));
        assert_eq!(of("n/cpu/17/busy_ratio"), list("n/cpu/per_cpu/busy_ratio", 17));
        assert_eq!(
            of("n/interrupts/cpu300/handled_total"),
            list("n/interrupts/per_cpu:256/handled_total", 44)
        );
        for other in ["n/cpu/total/busy_ratio", "n/block/17/read_bytes_total", "n/cpu/17/x", "n"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn members_have_topics_of_cores() {
        let list = Structured::from_json("[1,null,0.5]").expect("a list");
        let of = |topic: &str| {
            let topic: Topic = topic.parse().expect(topic);
            let members = topics(&topic, &list).map(|(topic, value)| format!("{topic} {value}"));
            members.collect::<Vec<_>>()
        };
        assert_eq!(
            of("n/cpu/per_cpu/busy_ratio"),
            ["n/cpu/0/busy_ratio 1", "n/cpu/2/busy_ratio 0.5"]
        );
        assert_eq!(of("n/cpu/total/busy_ratio"), Vec::<String>::new());
        assert_eq!(of("n/app/per_cpu/x"), Vec::<String>::new());
    }

    #[test]
    fn a_core_without_a_value_is_not_a_member() {
        let list = Structured::from_json("[0.5,null,1]").expect("a list");
        let of = |instance| members(instance, &list).collect::<Vec<_>>();
        assert_eq!(of("per_cpu"), [(0, 0.5), (2, 1.0)]);
        assert_eq!(of("per_cpu:256"), [(256, 0.5), (258, 1.0)]);
        assert_eq!(of("total"), []);
        assert_eq!(member(&cpu::FAMILY, 7) + &member(&interrupts::FAMILY, 7), "7cpu7");
    }
}
