//! Each rule on a job with the fault, on jobs without it, and on jobs that lack its input.

use proptest::prelude::*;
use serde_json::json;
use skopos_model::job::{JobEnd, JobStart, JobState};
use skopos_model::task::{Completeness, RESOURCES, Rank, Reading, SUMMARY_VERSION, Summary};

use super::*;

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;
const MIB: f64 = 1024.0 * 1024.0;

/// A report of a task that took `wall` seconds, with these resources.
fn report(wall: f64, resources: &[(&str, f64)]) -> Summary {
    let mut summary: Summary = serde_json::from_value(json!({
        "version": SUMMARY_VERSION,
        "task": {"class": "a", "command": ["a"], "folder": "/", "monitor": "skopos"},
        "host": {"node": "n01", "kernel": "6", "cores": 8, "memory_bytes": 1},
        "start_seconds": 1000.0, "end_seconds": 1000.0,
        "ended": {"exit_type": "normal", "status": 0, "signal": null, "limits": [], "guilty": null},
        "level": 2, "resources": {}, "mechanisms": [],
        "overhead": {"cpu_seconds": 0.0, "resident_bytes_max": 1, "stops": 0},
        "disturbed": [], "findings": [], "processes": [], "processes_left_out": 0
    }))
    .expect("a report");
    summary.end_seconds = 1000.0 + wall;
    for (name, value) in [("wall_seconds", wall)].iter().chain(resources) {
        let unit = skopos_model::task::resource(name).map_or("", |r| r.unit);
        let reading = Reading {
            value: Some(*value),
            completeness: Completeness::All,
            method: "wait4".to_owned(),
            reason: None,
            ..Reading::unknown(unit, "")
        };
        summary.resources.insert((*name).to_owned(), reading);
    }
    summary
}

fn ended(state: JobState) -> Option<JobEnd> {
    Some(JobEnd { state, end_seconds: Some(1100.0), ..JobEnd::default() })
}

/// A job of a minute and 40 seconds that requested and used these resources.
fn job(requested: &[(&str, f64)], used: &[(&str, f64)]) -> JobView {
    let requested = requested.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let start = JobStart {
        user: "ann".to_owned(),
        application: "a".to_owned(),
        requested,
        start_seconds: Some(1000.0),
        ..JobStart::default()
    };
    let (end, reports) = (ended(JobState::Completed), vec![report(100.0, used)]);
    JobView { start: Some(start), end, reports, series: Vec::new() }
}

/// Ranks on nodes, each with its wall time and processor time.
fn ranks(all: &[(&str, f64, f64)]) -> JobView {
    let mut view = job(&[], &[]);
    view.reports = (0..)
        .zip(all)
        .map(|(rank, (node, wall, cpu))| {
            let mut report = report(*wall, &[("cpu_seconds", *cpu)]);
            report.host.node = (*node).to_owned();
            let (job, launcher) = ("7".to_owned(), "slurm".to_owned());
            report.task.rank = Some(Rank { job, rank, size: all.len() as u32, launcher });
            report
        })
        .collect();
    view
}

fn series(node: &str, metric: &str, value: impl Fn(f64) -> f64) -> Series {
    let times = (0..=100).map(f64::from);
    Series::new(node, metric, times.map(|at| (at, value(at))))
}

fn with_series(all: impl IntoIterator<Item = Series>) -> JobView {
    JobView { series: all.into_iter().collect(), ..job(&[], &[]) }
}

fn judged(view: &JobView, finding: &str) -> Verdict {
    let rule = RULES.iter().find(|rule| rule.name == finding).expect("a rule");
    rule.judge(view)
}

/// Checks a verdict: `found` with a part of the text, `absent`, or `unknown` with a part of the reason.
fn check(finding: &str, view: &JobView, verdict: &str, part: &str) {
    let came = judged(view, finding);
    let text = match &came {
        Verdict::Found(found) => {
            assert!(!found.evidence.is_empty(), "{finding}: a finding stands on numbers");
            found.what.clone()
        }
        Verdict::Absent => String::new(),
        Verdict::Unknown(reason) => reason.clone(),
    };
    assert_eq!(came.name(), verdict, "{finding}: {text}");
    assert!(text.contains(part), "{finding}: {text}");
}

#[test]
fn idle_cores() {
    let of = |cores, used: &[(&str, f64)]| job(&[("cores", cores)], used);
    check("idle_cores", &of(8.0, &[("cpu_seconds", 100.0)]), "found", "1.00 of 8 requested cores");
    check("idle_cores", &of(2.0, &[("cpu_seconds", 100.0)]), "found", "1.00 of 2");
    check("idle_cores", &of(2.0, &[("cpu_seconds", 190.0)]), "absent", "");
    check("idle_cores", &of(1.0, &[("cpu_seconds", 40.0)]), "absent", "");
    // Its threads were ready, and the machine had no processor for them.
    let waits = [("cpu_seconds", 100.0), ("cpu_delay_seconds", 90.0)];
    check("idle_cores", &of(2.0, &waits), "absent", "");
    check("idle_cores", &job(&[], &waits), "unknown", "did not request `cores`");
    check("idle_cores", &of(2.0, &[]), "unknown", "`cpu_seconds` is not known");
    let mut part = of(8.0, &[("cpu_seconds", 100.0)]);
    part.reports[0].resources.get_mut("cpu_seconds").expect("known").completeness =
        Completeness::AtLeast;
    check("idle_cores", &part, "unknown", "lower bound");
    let mut short = of(8.0, &[("cpu_seconds", 1.0)]);
    short.reports[0].end_seconds = 1001.0;
    check("idle_cores", &short, "unknown", "less than 2 s");
}

#[test]
fn memory_request() {
    let of = |asked: f64, used: f64| {
        job(&[("resident_bytes_max", asked)], &[("resident_bytes_max", used)])
    };
    check("memory_request", &of(8.0 * GIB, GIB), "found", "1 GiB of 8 GiB requested");
    check("memory_request", &of(8.0 * GIB, 3.0 * GIB), "absent", "");
    check("memory_request", &of(0.25 * GIB, 1e6), "absent", "");
    check("memory_request", &job(&[], &[("resident_bytes_max", 1.0)]), "unknown", "request");
    let mut running = of(8.0 * GIB, GIB);
    running.end = None;
    check("memory_request", &running, "unknown", "not ended");
    let mut files = of(8.0 * GIB, GIB);
    files.reports[0] =
        report(100.0, &[("resident_bytes_max", GIB), ("tmpfs_bytes_max", 4.0 * GIB)]);
    check("memory_request", &files, "absent", "");
    // Steps of 1 GiB that run together, and one after the other.
    let mut steps = of(8.0 * GIB, GIB);
    steps.reports = vec![steps.reports[0].clone(); 4];
    check("memory_request", &steps, "absent", "");
    for (at, step) in steps.reports.iter_mut().enumerate() {
        step.start_seconds += 200.0 * at as f64;
        step.end_seconds += 200.0 * at as f64;
    }
    check("memory_request", &steps, "found", "1 GiB of 8 GiB requested");
}

#[test]
fn memory_leak() {
    let of = |value: &dyn Fn(f64) -> f64| with_series([series("", "resident_bytes", value)]);
    check("memory_leak", &of(&|at| 50.0 * MIB + 2.0 * MIB * at), "found", "120 MiB in a minute");
    let wave = |at: f64| 500.0 * MIB + 100.0 * MIB * (at / 5.0).sin();
    // Loads and then works; is constant; goes up and down; makes one step; grows by less than noise.
    check("memory_leak", &of(&|at| 20.0 * MIB * at.min(30.0)), "absent", "");
    check("memory_leak", &of(&|_| GIB), "absent", "");
    check("memory_leak", &of(&wave), "absent", "");
    check("memory_leak", &of(&|at| if at > 60.0 { GIB } else { 0.2 * GIB }), "absent", "");
    check("memory_leak", &of(&|at| GIB + at), "absent", "");
    check("memory_leak", &of(&|at| 10.0 * GIB + MIB * at), "absent", "");
    // Grows by much in relation to little.
    check("memory_leak", &of(&|at| 5.0 * MIB + 0.2 * MIB * at), "absent", "");
    // Grows in the mean, and goes down as often as up.
    let unsteady = |at: f64| {
        500.0 * MIB + 2.0 * MIB * at + if (at + 12.0) % 16.0 < 8.0 { 60.0 * MIB } else { 0.0 }
    };
    check("memory_leak", &of(&unsteady), "absent", "");
    // Levels off like a cache that fills up, fast and slowly.
    check("memory_leak", &of(&|at| GIB * (1.0 - (-at / 20.0).exp())), "absent", "");
    check("memory_leak", &of(&|at| GIB * (1.0 - (-at / 15.0).exp())), "absent", "");
    check("memory_leak", &job(&[], &[]), "unknown", "no series");
    let few = Series::new("", "resident_bytes", (0..10).map(f64::from).map(|at| (at, at * GIB)));
    check("memory_leak", &with_series([few]), "unknown", "long enough");
}

#[test]
fn tiny_io() {
    let of = |calls, bytes| job(&[], &[("write_calls", calls), ("written_bytes", bytes)]);
    let reads = |view: JobView| {
        let mut view = view;
        let more = report(100.0, &[("read_calls", 10.0), ("read_bytes", 10.0)]);
        view.reports[0].resources.extend(more.resources);
        view
    };
    check("tiny_io", &of(1e6, 16e6), "found", "1000000 writes move 16 B each");
    check("tiny_io", &reads(of(1e6, 1e6 * 65536.0)), "absent", "");
    check("tiny_io", &reads(of(1e4, 1e5)), "absent", "");
    // Many calls, and few in a second.
    check("tiny_io", &reads(of(1e5, 1e6)), "absent", "");
    check("tiny_io", &of(1e4, 1e5), "unknown", "`read_calls` is not known");
    check("tiny_io", &job(&[], &[]), "unknown", "is not known");
}

#[test]
fn imbalance() {
    let of = |cpu: [f64; 4]| ranks(&cpu.map(|cpu| ("n01", 100.0, cpu)));
    check("imbalance", &of([100.0, 20.0, 20.0, 20.0]), "found", "rank 0 has 2.5 times");
    check("imbalance", &of([100.0, 95.0, 90.0, 99.0]), "absent", "");
    check("imbalance", &of([0.5, 0.0, 0.0, 0.0]), "absent", "");
    check("imbalance", &job(&[], &[]), "unknown", "no two ranks");
    let busy = |node: &str, busy: f64| series(node, "cpu/total/busy_ratio", move |_| busy);
    let nodes = |all: [f64; 2]| with_series([busy("n01", all[0]), busy("n02", all[1])]);
    check("imbalance", &nodes([0.9, 0.1]), "found", "node n01");
    check("imbalance", &nodes([0.9, 0.8]), "absent", "");
    check("imbalance", &with_series([busy("n01", 0.9)]), "unknown", "no two");
}

#[test]
fn cpu_throttled() {
    let of = |seconds| job(&[], &[("throttled_seconds", seconds)]);
    check("cpu_throttled", &of(60.0), "found", "for 60 % of its time");
    check("cpu_throttled", &of(3.0), "absent", "");
    check("cpu_throttled", &job(&[], &[]), "unknown", "not known");
    // Ranks share the group of their job, and each reports its time.
    let mut of_ranks = of(6.0);
    of_ranks.reports = vec![report(100.0, &[("throttled_seconds", 6.0)]); 16];
    check("cpu_throttled", &of_ranks, "absent", "");
    let metric = "cgroup/job_7/cpu_throttled_seconds_total";
    let of = |rate: f64| with_series([series("n01", metric, move |at| 50.0 + rate * at)]);
    check("cpu_throttled", &of(0.3), "found", "30 %");
    check("cpu_throttled", &of(0.01), "absent", "");
}

#[test]
fn slow_node() {
    let of = |nodes: [f64; 4]| {
        let names = ["n01", "n02", "n03", "n04"];
        let all: Vec<_> =
            names.into_iter().zip(nodes).flat_map(|(n, w)| [(n, w, 90.0); 2]).collect();
        ranks(&all)
    };
    check("slow_node", &of([100.0, 101.0, 99.0, 160.0]), "found", "on n04 take 1.60 times");
    check("slow_node", &of([100.0, 101.0, 99.0, 104.0]), "absent", "");
    // Nodes that differ all over.
    check("slow_node", &of([100.0, 130.0, 70.0, 160.0]), "absent", "");
    check(
        "slow_node",
        &ranks(&[("n01", 100.0, 9.0), ("n02", 50.0, 9.0)]),
        "unknown",
        "three nodes",
    );
    // The slow node explains the imbalance.
    let slow = ranks(&[("a", 9.0, 10.0), ("b", 9.0, 10.0), ("c", 9.0, 10.0), ("d", 9.0, 30.0)]);
    check("slow_node", &slow, "found", "on d");
    check("imbalance", &slow, "absent", "");
}

#[test]
fn ends() {
    let of = |state| JobView { end: ended(state), ..job(&[("wall_seconds", 100.0)], &[]) };
    let mut limited = of(JobState::Failed);
    let report = &mut limited.reports[0];
    report.ended.exit_type = skopos_model::task::ExitType::Limit;
    report.ended.limits = vec!["processes: 12 > 10".to_owned()];
    report.limits_set = vec![skopos_model::task::LimitSet {
        name: "processes_max".to_owned(),
        most: 10.0,
        unit: String::new(),
    }];
    check("limit", &limited, "found", "processes: 12 > 10");
    check("wall_time", &limited, "absent", "");
    let mut memory = of(JobState::OutOfMemory);
    memory.start.as_mut().expect("a start").requested.insert("resident_bytes_max".to_owned(), GIB);
    check("limit", &memory, "found", "memory, of which it requested 1 GiB");
    check("limit", &of(JobState::Failed), "absent", "");
    check("limit", &of(JobState::Timeout), "absent", "");
    check("wall_time", &of(JobState::Timeout), "found", "after 1 m 40 s");
    check("wall_time", &of(JobState::Completed), "absent", "");
    for finding in ["limit", "wall_time"] {
        check(finding, &of(JobState::Unknown), "unknown", "not known how");
        check(finding, &JobView { end: None, ..job(&[], &[]) }, "unknown", "not ended");
    }
}

#[test]
fn gpu_idle() {
    let asked = [("gpus", 2.0)];
    check("gpu_idle", &job(&asked, &[("gpus", 0.0)]), "found", "no process");
    check("gpu_idle", &job(&asked, &[("gpus", 2.0)]), "unknown", "how busy");
    check("gpu_idle", &job(&asked, &[]), "unknown", "`gpus` is not known");
    check("gpu_idle", &job(&[], &[]), "unknown", "did not request");
    let of = |busy: f64| {
        let series = [series("n01", "gpu/0/utilization_ratio", move |_| busy)];
        JobView { series: series.to_vec(), ..job(&asked, &[]) }
    };
    check("gpu_idle", &of(0.02), "found", "2.0 % busy");
    check("gpu_idle", &of(0.7), "absent", "");
}

#[test]
fn swapping() {
    let of = |swap: f64| job(&[], &[("swap_bytes_max", swap), ("resident_bytes_max", GIB)]);
    check("swapping", &of(GIB), "found", "1 GiB of the job's memory");
    check("swapping", &of(1e6), "absent", "");
    let small = [("swap_bytes_max", 30.0 * MIB), ("resident_bytes_max", 100.0 * MIB)];
    check("swapping", &job(&[], &small), "absent", "");
    let waits = |cpu| job(&[], &[("memory_delay_seconds", 40.0), ("cpu_seconds", cpu)]);
    check("swapping", &waits(100.0), "found", "waited for memory");
    // Sixty threads that work all the time, and wait for memory for less than a second each.
    check("swapping", &waits(6_000.0), "unknown", "`swap_bytes_max` is not known");
    check(
        "swapping",
        &with_series([series("n01", "swap/sda2/in_bytes_total", |at| at * 50e6)]),
        "found",
        "read",
    );
    check(
        "swapping",
        &with_series([series("n01", "swap/sda2/in_bytes_total", |_| 7.0)]),
        "absent",
        "",
    );
    check("swapping", &job(&[], &[]), "unknown", "`swap_bytes_max` is not known");
}

#[test]
fn metadata_storm() {
    let of = |files, bytes| {
        job(&[], &[("opened_files", files), ("read_bytes", bytes), ("written_bytes", 0.0)])
    };
    check("metadata_storm", &of(50_000.0, 5e6), "found", "50000 files are opened for 100 B");
    check("metadata_storm", &of(500.0, 5e6), "absent", "");
    check("metadata_storm", &of(5_000.0, 5e6), "absent", "");
    check("metadata_storm", &of(50_000.0, 50_000.0 * 1e6), "absent", "");
    // The monitor had no room for all files: there may be so many more that each has fewer bytes.
    let mut part = of(16_380.0, 16_380.0 * 80e3);
    part.reports[0].resources.get_mut("opened_files").expect("known").completeness =
        Completeness::AtLeast;
    check("metadata_storm", &part, "unknown", "not all opened files");
    check("metadata_storm", &job(&[], &[]), "unknown", "`opened_files` is not known");
}

#[test]
fn a_job_is_compared_with_earlier_ones_of_its_class() {
    let earlier = |count: usize| -> Vec<Earlier> {
        let of = |at: usize| {
            let noise = 1.0 + 0.02 * (at % 5) as f64;
            [("wall_seconds", 100.0 * noise), ("resident_bytes_max", GIB * noise)]
                .map(|(name, value)| (name.to_owned(), value))
                .into()
        };
        (0..count).map(of).collect()
    };
    let of = |bytes| job(&[], &[("resident_bytes_max", bytes)]);
    let check = |view: &JobView, count, verdict: &str, part: &str| {
        let came = judge_class(view, &earlier(count));
        let text = format!("{came:?}");
        assert!(came.name() == verdict && text.contains(part), "{text}");
    };
    check(&of(4.0 * GIB), 20, "found", "`resident_bytes_max` is 4 GiB, and 1.04 GiB in the median");
    check(&of(0.3 * GIB), 20, "found", "resident_bytes_max");
    check(&of(1.1 * GIB), 20, "absent", "");
    check(&of(4.0 * GIB), MIN_EARLIER - 1, "unknown", "fewer than 8");
    // Earlier jobs that differ among each other by as much.
    let varied = |at: i32| [("resident_bytes_max".to_owned(), GIB * f64::from(1 + at % 5))].into();
    let varied: Vec<Earlier> = (0..20).map(varied).collect();
    assert_eq!(judge_class(&of(6.0 * GIB), &varied), Verdict::Absent);
    check(&JobView { end: None, ..of(4.0 * GIB) }, 20, "unknown", "not ended");
    check(&JobView { start: None, ..of(4.0 * GIB) }, 20, "unknown", "user and the application");
}

/// The page of the reference has a row of each rule, in the order of the code, and no other.
#[test]
fn the_reference_has_each_rule_as_the_code_has_it() {
    let page = include_str!("../../../../docs/reference/findings.md");
    let row = |rule: &Rule| {
        let Rule { name, condition, inputs, advice, .. } = rule;
        format!("| `{name}` | {condition} | {inputs} | {advice} |")
    };
    let expected: Vec<String> = RULES.iter().copied().chain([&CLASS]).map(row).collect();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(rows, expected);
}

#[test]
fn every_rule_is_documented_once() {
    let all = judge(&JobView::default(), &[]);
    assert_eq!(all.len(), RULES.len() + 1);
    for (at, rule) in RULES.iter().copied().chain([&CLASS]).enumerate() {
        assert_eq!(all[at].finding, rule.name);
        assert!(!rule.condition.is_empty() && !rule.inputs.is_empty() && !rule.advice.is_empty());
        let others = all.iter().filter(|judged| judged.finding == rule.name);
        assert_eq!(others.count(), 1);
        // Nothing is known of this job.
        assert_eq!(all[at].verdict.name(), "unknown", "{}", rule.name);
    }
}

fn number() -> impl Strategy<Value = f64> {
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN, 0.0, -1.0, 1e-300];
    prop_oneof![3 => prop::sample::select(odd.to_vec()), 5 => 0.0..1e12, 3 => 0.0..100.0]
}

fn resources() -> impl Strategy<Value = Vec<(&'static str, f64)>> {
    let names: Vec<&str> = RESOURCES.iter().map(|resource| resource.name).collect();
    prop::collection::vec((prop::sample::select(names), number()), 0..20)
}

fn a_series() -> impl Strategy<Value = Series> {
    let metrics = vec![
        "resident_bytes",
        "cpu/total/busy_ratio",
        "gpu/0/busy_ratio",
        "swap/a/in_bytes_total",
        "cgroup/a/cpu_throttled_seconds_total",
        "swap_bytes",
    ];
    let points = prop::collection::vec((number(), number()), 0..40);
    (prop::sample::select(vec!["n01", "n02", "n03"]), prop::sample::select(metrics), points)
        .prop_map(|(node, metric, points)| Series::new(node, metric, points))
}

fn a_view() -> impl Strategy<Value = JobView> {
    let reports = prop::collection::vec((number(), resources(), prop::option::of(0_u32..4)), 0..6);
    let states = prop::sample::select(JobState::ALL.to_vec());
    let series = prop::collection::vec(a_series(), 0..4);
    (resources(), reports, states, series, any::<bool>()).prop_map(
        |(requested, reports, state, series, has_end)| {
            let mut view = job(&requested, &[]);
            view.reports = reports
                .into_iter()
                .map(|(wall, used, rank)| {
                    let mut report = report(wall, &used);
                    report.task.rank = rank.map(|rank| {
                        let (job, launcher) = ("7".to_owned(), "pmi".to_owned());
                        Rank { job, rank, size: 4, launcher }
                    });
                    report.host.node = format!("n{}", rank.unwrap_or_default());
                    report
                })
                .collect();
            view.end = ended(state).filter(|_| has_end);
            view.series = series;
            view
        },
    )
}

proptest! {
    #[test]
    fn no_rule_panics_or_returns_a_number_that_is_not_finite(
        view in a_view(),
        earlier in prop::collection::vec(resources(), 0..12),
    ) {
        let earlier: Vec<Earlier> = earlier
            .into_iter()
            .map(|all| all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
            .collect();
        for judged in judge(&view, &earlier) {
            if let Verdict::Found(found) = judged.verdict {
                prop_assert!(found.evidence.iter().all(|e| e.value.is_finite()), "{found:?}");
                let odd = found.what.contains("NaN") || found.what.contains("inf");
                prop_assert!(!odd, "{}", found.what);
            }
        }
    }
}

#[test]
fn a_helper_that_reports_is_not_the_whole_job() {
    let mut view = job(&[("cores", 4.0)], &[("cpu_seconds", 1.0)]);
    check("idle_cores", &view, "found", "");
    // The batch system counted the main program, too.
    if let Some(end) = &mut view.end {
        end.used.insert("cpu_seconds".to_owned(), 390.0);
    }
    check("idle_cores", &view, "absent", "");
}

#[test]
fn ranks_of_a_shorter_step_do_not_replace_those_of_a_longer_one() {
    let mut view = ranks(&[("n01", 100.0, 95.0), ("n02", 100.0, 94.0), ("n03", 100.0, 96.0)]);
    let second = ranks(&[("n01", 5.0, 0.1)]);
    view.reports.extend(second.reports);
    check("imbalance", &view, "absent", "");
}
