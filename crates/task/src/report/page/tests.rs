use std::time::Duration;

use skopos_model::task::{
    Completeness, Finding, LimitSet, MechanismUse, Process, Reading, SUMMARY_VERSION,
};

use super::*;
use crate::mechanism::Sample;

const HOSTILE: &str = "sh -c \"<script>alert('x')</script> & \"";

fn process(pid: i32, parent: i32, command: &str) -> Process {
    let command = command.to_owned();
    Process { pid, parent, command, end_seconds: Some(2.0), ..Process::default() }
}

fn reading(value: f64, unit: &str, completeness: Completeness) -> Reading {
    Reading {
        missing: Vec::new(),
        value: Some(value),
        unit: unit.to_owned(),
        method: "ptrace".to_owned(),
        completeness,
        error_bound: Some(0.0),
        reason: None,
    }
}

fn summary() -> Summary {
    let json = serde_json::json!({
        "version": SUMMARY_VERSION,
        "task": { "class": HOSTILE, "command": ["sh", "-c", HOSTILE], "folder": HOSTILE,
            "monitor": "skopos 0" },
        "host": { "node": HOSTILE, "kernel": "6", "cores": 2, "memory_bytes": 1 },
        "start_seconds": 951_782_400.0, "end_seconds": 951_782_402.0,
        "ended": { "exit_type": "normal", "status": 0, "signal": null, "limits": [],
            "guilty": HOSTILE },
        "level": 2, "resources": {}, "mechanisms": [],
        "overhead": { "cpu_seconds": 0.01, "resident_bytes_max": 1024, "stops": 3 },
        "disturbed": [HOSTILE], "findings": [], "processes": [], "processes_left_out": 7,
    });
    let mut summary: Summary = serde_json::from_value(json).expect("a summary");
    let all = Completeness::All;
    let readings = [
        ("wall_seconds", reading(2.0, "seconds", all)),
        ("resident_bytes_max", reading(3.0 * 1024.0, "bytes", Completeness::AtLeast)),
        ("read_bytes", reading(10.0, "bytes", Completeness::Sampled)),
        ("energy_joules", Reading::unknown("joules", HOSTILE)),
    ];
    summary.resources.extend(readings.map(|(name, reading)| (name.to_owned(), reading)));
    let limit =
        |name: &str, most, unit: &str| LimitSet { name: name.into(), most, unit: unit.into() };
    summary.limits_set =
        vec![limit("resident_bytes_max", 2048.0, "bytes"), limit("read_bytes", 1e12, "bytes")];
    summary.findings = vec![Finding { what: HOSTILE.into(), advice: HOSTILE.into() }];
    let why = HOSTILE.into();
    summary.mechanisms = vec![MechanismUse { name: "bpf".into(), used: false, why }];
    summary.processes = vec![process(1, 0, HOSTILE), process(2, 1, "b"), process(3, 1, "d")];
    summary.processes.push(process(4, 2, "c"));
    summary
}

fn row(seconds: f64, resident: Option<u64>) -> Row {
    let now = Sample { resident_bytes: resident, read_bytes: Some(9), ..Sample::default() };
    Row::new(Duration::from_secs_f64(seconds), &now)
}

fn drawn() -> String {
    page(&summary(), &[row(0.1, Some(1024)), row(0.2, None), row(1.0, Some(2)), row(2.0, Some(3))])
}

/// Checks that every `<` begins an element of ours, every quote ends an attribute of ours, and
/// every element is closed, as a browser would parse it. Returns the names of the elements.
fn elements(page: &str) -> Vec<&str> {
    let mut open: Vec<&str> = Vec::new();
    let mut seen = Vec::new();
    for part in page.split('<').skip(1) {
        let (tag, _) = part.split_once('>').expect("an element ends");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        let name = tag.split([' ', '/']).find(|word| !word.is_empty()).expect("a name");
        seen.push(name);
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{tag}");
        } else if !tag.ends_with('/') && !["!doctype", "meta", "br"].contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
    seen
}

#[test]
fn text_of_the_task_never_becomes_markup() {
    let page = drawn();
    let seen = elements(&page);
    assert!(!seen.contains(&"script"));
    assert!(page.matches("&lt;script&gt;alert(&#39;x&#39;)").count() >= 9, "it is shown as text");
    for loads in ["http:", "https:", "url(", "@import", " src=", " href=", "<link"] {
        assert!(!page.contains(loads), "{loads}");
    }
}

#[test]
fn the_page_is_accessible() {
    let page = drawn();
    let count = |what| page.matches(what).count();
    assert_eq!(count("<h1>"), 1);
    assert_eq!(count("<svg"), count("role=\"img\""));
    assert_eq!(count("<svg"), page.split("<svg").skip(1).filter(|s| s.contains("<title>")).count());
    assert_eq!(count("<table>"), count("<thead>"));
    assert_eq!(count("<th>"), 0, "each has a scope");
    let at = |what: &str| page.find(what).unwrap_or_else(|| panic!("{what}"));
    assert!(at("Findings") < at("Resources"), "findings come first");
    for text in ["prefers-color-scheme", "@media print", "lang=\"en\"", "2000-02-29 00:00:00 UTC"] {
        at(text);
    }
}

#[test]
fn numbers_show_their_accuracy_and_limits_are_drawn() {
    let page = drawn();
    for text in ["≥ 3 KiB", "at least", "sampled", "exact", "limit 2 KiB", "peak 3 KiB"] {
        assert!(page.contains(text), "{text}");
    }
    assert!(page.contains("far above this scale"), "a limit of 1 TB over 9 bytes");
    assert!(page.contains("class=\"v over\""), "3 KiB of 2 KiB");
    // A row without a value is a gap: a point before it, a line after it.
    assert!(page.contains("<circle class=\"dot\""));
    assert!(page.contains("7 more are left out"));
}

#[test]
fn children_are_listed_below_their_parents() {
    let page = drawn();
    let at = |what: &str| page.find(&format!("<code>{what}</code>")).expect("a process");
    assert!(at("b") < at("c") && at("c") < at("d"));
    let indents: Vec<&str> = page.split("padding-left:").skip(1).map(|s| &s[..4]).collect();
    assert_eq!(indents, ["0rem", "1.1r", "2.2r", "1.1r"]);
}

#[test]
fn a_long_series_keeps_its_peaks() {
    let mut points: Vec<plot::Point> = (0..20_000).map(|n| (f64::from(n), Some(5.0))).collect();
    points[12_345].1 = Some(77.0);
    points[12_346].1 = Some(1.0);
    points[0].1 = None;
    let reduced = plot::reduce(&points);
    assert!(reduced.len() <= plot::MAX_POINTS, "{}", reduced.len());
    let values = || reduced.iter().filter_map(|p| p.1);
    assert_eq!((values().fold(0.0, f64::max), values().fold(9.0, f64::min)), (77.0, 1.0));
    assert!(reduced.is_sorted_by(|a, b| a.0 < b.0), "in the order of time");
    assert_eq!(plot::reduce(&points[..10]), points[..10]);
}

#[test]
fn unusual_reports_have_pages_too() {
    let mut odd = summary();
    odd.resources.clear();
    odd.start_seconds = f64::INFINITY;
    odd.end_seconds = -1.0;
    odd.processes = (0..5000).map(|n| process(n + 1, n, "deep")).collect();
    odd.processes[4999].start_seconds = f64::NAN;
    odd.processes[4998].start_seconds = -1e300;
    odd.processes[4997].end_seconds = Some(1e300);
    odd.processes[0].parent = 1;
    odd.ended.status = None;
    elements(&page(&odd, &[]));
    elements(&page(&odd, &[row(0.0, Some(u64::MAX)), row(0.0, Some(0))]));
}

#[test]
fn a_process_may_start_at_any_time_of_the_task() {
    let mut many = summary();
    many.processes = (0..=1000)
        .map(|n| {
            let start_seconds = f64::from(n) * (many.end_seconds - many.start_seconds) / 1000.0;
            Process { start_seconds, end_seconds: Some(start_seconds), ..process(n + 2, 1, "late") }
        })
        .collect();
    elements(&page(&many, &[]));
}
