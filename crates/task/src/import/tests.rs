use skopos_model::SplitMix64;
use skopos_model::task::{Completeness, ExitType, RESOURCES};

use super::*;

const SIGNAL: &str = include_str!("../../tests/data/import/resource_monitor-signal.json");
const LIMIT: &str = include_str!("../../tests/data/import/resource_monitor-limit.json");
const MEMORY: &str = include_str!("../../tests/data/import/resource_monitor-memory.json");
const CATEGORY: &str = include_str!("../../tests/data/import/resource_monitor-category.json");
const COMPACT: &str = include_str!("../../tests/data/import/resource_monitor-compact.json");
const PLAIN: &str = include_str!("../../tests/data/import/kickstart-plain.yml");
const TRACED: &str = include_str!("../../tests/data/import/kickstart-traced.yml");
const OLD: &str = include_str!("../../tests/data/import/kickstart-old.xml");
const ALL: [&str; 8] = [SIGNAL, LIMIT, MEMORY, CATEGORY, COMPACT, PLAIN, TRACED, OLD];

const MIB: f64 = 1024.0 * 1024.0;

fn one(text: &str) -> Summary {
    let mut all = import(text).unwrap_or_else(|e| panic!("{e}: {text}"));
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn value(summary: &Summary, name: &str) -> Option<f64> {
    summary.resources[name].value
}

#[test]
fn resource_monitor_as_it_writes() {
    let category = one(CATEGORY);
    assert_eq!((category.task.class.as_str(), category.level), ("sim", 0));
    assert_eq!(category.task.monitor, "resource_monitor 8.0.0");
    assert_eq!((category.ended.exit_type, category.ended.status), (ExitType::Normal, Some(0)));
    assert_eq!(value(&category, "wall_seconds"), Some(3.60139));
    assert_eq!(value(&category, "resident_bytes_max"), Some(8.0 * MIB));
    assert_eq!(value(&category, "written_bytes"), Some(20.0 * MIB));
    assert_eq!(category.resources["resident_bytes_max"].completeness, Completeness::Sampled);
    // Values that the tool reports wrongly.
    for name in ["gpus", "processes_max", "voluntary_switches", "pss_bytes_max"] {
        assert_eq!(value(&category, name), None, "{name}");
        assert!(category.resources[name].reason.is_some(), "{name}");
    }
    assert_eq!(one(COMPACT).task.class, "true");
    assert_eq!(
        (one(SIGNAL).ended.exit_type, one(SIGNAL).ended.signal),
        (ExitType::Signal, Some(11))
    );
}

#[test]
fn limits_of_resource_monitor() {
    let limit = one(LIMIT);
    assert_eq!((limit.ended.exit_type, limit.ended.signal), (ExitType::Limit, Some(15)));
    assert_eq!(limit.ended.limits, ["wall: 5.0 s > 2.0 s"]);
    assert_eq!(
        (limit.limits_set[0].name.as_str(), limit.limits_set[0].most),
        ("wall_seconds", 2.0)
    );
    assert_eq!(one(MEMORY).ended.limits, ["memory: 390 MiB > 100 MiB"]);
}

#[test]
fn several_in_one_file() {
    assert_eq!(import(&format!("{SIGNAL}\n{COMPACT}")).expect("two").len(), 2);
    assert_eq!(import(&format!("[{SIGNAL},{COMPACT}]")).expect("two").len(), 2);
    assert_eq!(import(&format!("{PLAIN}{TRACED}")).expect("two").len(), 2);
    assert_eq!(import(&format!("{OLD}{OLD}")).expect("two").len(), 2);
}

#[test]
fn kickstart_as_it_writes() {
    let plain = one(PLAIN);
    assert_eq!(plain.task.class, "sim::preprocess:1.0");
    assert_eq!(plain.task.command, ["/opt/sim/bin/preprocess", "-i", "say \"a: b\""]);
    assert_eq!(plain.task.folder, "/scratch/run: 1");
    assert_eq!((plain.host.node.as_str(), plain.host.cores), ("node-17", 24));
    assert_eq!(plain.host.memory_bytes, 16 << 30);
    // 2026-03-01 17:00:00 UTC.
    assert!((plain.start_seconds - 1_772_384_400.502).abs() < 1e-6, "{}", plain.start_seconds);
    assert_eq!(value(&plain, "wall_seconds"), Some(30.308));
    assert_eq!(value(&plain, "cpu_seconds"), Some(20.026 + 0.013));
    assert_eq!(value(&plain, "resident_bytes_max"), Some(7208.0 * 1024.0));
    assert_eq!(value(&plain, "device_read_bytes"), Some(4096.0));
    assert_eq!((value(&plain, "processes_total"), value(&plain, "read_bytes")), (None, None));
    assert_eq!(plain.ended.status, Some(0));
}

#[test]
fn traced_threads_are_not_processes_and_children_count_once() {
    let traced = one(TRACED);
    assert_eq!((traced.ended.exit_type, traced.ended.signal), (ExitType::Signal, Some(9)));
    let total = &traced.resources["processes_total"];
    assert_eq!((total.value, total.completeness), (Some(2.0), Completeness::AtLeast));
    assert_eq!(value(&traced, "resident_bytes_max"), Some(50_000.0 * 1024.0));
    // 5,000 include the child's 4,000.
    assert_eq!(value(&traced, "read_bytes"), Some(5000.0));
    let seen: Vec<_> =
        traced.processes.iter().map(|p| (p.pid, p.command.as_str(), p.read_bytes)).collect();
    assert_eq!(seen, [(11, "/bin/sh", None), (12, "/opt/sim: the program", Some(4000))]);
    assert_eq!(traced.disturbed.len(), 1);
    let times: Vec<_> = traced.processes.iter().map(|p| p.start_seconds).collect();
    assert_eq!(times, [0.0, 0.5]);
}

#[test]
fn kickstart_of_old() {
    let old = one(OLD);
    assert_eq!((old.task.class.as_str(), old.ended.status), ("sim & co", Some(3)));
    assert_eq!(old.task.command, ["/opt/bin/table", ".", "a < b"]);
    assert_eq!(value(&old, "wall_seconds"), Some(0.919));
    assert_eq!(value(&old, "cpu_seconds"), Some(0.107 + 0.042));
    assert_eq!(value(&old, "read_bytes"), Some(123.0));
    assert_eq!(old.resources["read_bytes"].completeness, Completeness::All);
    assert_eq!((old.host.node.as_str(), old.task.folder.as_str()), ("viz", "/scratch/run"));
    assert_eq!((value(&old, "processes_total"), old.processes.len()), (Some(1.0), 1));
}

#[test]
fn a_text_without_a_report_is_refused() {
    for text in
        ["", "{", "[]", "{}", "- a: 1", "<a/>", "\u{0}", "<invocation", "- invocation: True"]
    {
        assert!(import(text).is_err(), "{text}");
    }
    // Without its end, a number may be cut off.
    let cut = PLAIN.find("usage").expect("a place");
    assert!(matches!(import(&PLAIN[..cut]), Err(ImportError::Truncated(1))));
    let cut = OLD.find("<status").expect("a place");
    assert!(matches!(import(&OLD[..cut]), Err(ImportError::Truncated(1))));
}

/// Checks that an import fails, or returns reports that have all resources and only finite numbers.
fn check(text: &str) {
    let Ok(all) = import(text) else { return };
    for summary in all {
        assert!(summary.start_seconds.is_finite() && summary.end_seconds.is_finite(), "{text}");
        assert_eq!(summary.resources.len(), RESOURCES.len());
        for (name, reading) in &summary.resources {
            assert!(reading.value.is_none_or(|v| v.is_finite() && v >= 0.0), "{name}: {text}");
            assert_eq!(reading.value.is_none(), reading.completeness == Completeness::None);
        }
        let json = serde_json::to_string(&summary).expect("JSON");
        let back: Summary = serde_json::from_str(&json).expect("a summary");
        assert_eq!(back.resources.len(), RESOURCES.len());
        crate::page(&summary, &[]);
    }
}

#[test]
fn a_text_cut_anywhere_does_not_panic() {
    for text in ALL {
        for (at, _) in text.char_indices() {
            check(&text[..at]);
        }
    }
}

#[test]
fn a_text_changed_anywhere_does_not_panic() {
    const PARTS: [&str; 22] = [
        "",
        "-",
        "\"",
        "<",
        ">",
        "</",
        "/>",
        "&#xD800;",
        "&",
        ":",
        "\n",
        "    ",
        "- ",
        "|",
        "{",
        "]",
        "1e999",
        "-1",
        "99999999999999999999",
        "NaN",
        "é",
        "\u{0}",
    ];
    let mut random = SplitMix64::new(7);
    for round in 0..4000 {
        let mut text = ALL[round % ALL.len()].to_owned();
        for _ in 0..=random.below(4) {
            let mut begin = random.below(text.len());
            let mut end = (begin + random.below(6)).min(text.len());
            while !text.is_char_boundary(begin) {
                begin -= 1;
            }
            while !text.is_char_boundary(end) {
                end += 1;
            }
            text.replace_range(begin..end, PARTS[random.below(PARTS.len())]);
        }
        check(&text);
    }
}

/// An algorithm of quadratic time would not finish here.
#[test]
fn long_repetitive_texts_are_refused() {
    let deep: String = (0..3000).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
    for text in [
        format!("- invocation: True\n{deep}"),
        "<invocation>".to_owned() + &"<a>".repeat(200_000),
        "<invocation>".to_owned() + &"</a>".repeat(200_000),
        "<invocation a='".to_owned() + &"&".repeat(200_000) + "'/>",
        "[".repeat(100_000),
    ] {
        assert!(import(&text).is_err(), "{}", &text[..20]);
    }
}
