//! The report of a parallel job, joined from those of its ranks.
//!
//! Counters are added. Peaks are added too, because ranks run at the same time. Each rank had its
//! peak at a time of its own: together they held at least as much as the greatest peak, which gives
//! the bound. A value of the machine or of a folder, which ranks share, counts once.

use std::collections::{BTreeMap, BTreeSet};

use skopos_model::task::{
    Combine, Completeness, Ended, ExitType, Finding, Host, Identity, Job, MechanismUse, Missing,
    Overhead, RESOURCES, RankUse, Reading, Resource, Summary,
};

use super::findings;

/// The most ranks that a report lists, or names as missing: as many as a person scrolls through.
const MAX_LISTED: usize = 1000;

/// The most nodes that are named individually.
const MAX_NODES: usize = 8;

/// The multiple of the average above which the processor time of a rank stands out.
const UNEVEN: f64 = 1.5;

/// Shorter jobs are over before they can be uneven.
const SHORT_SECONDS: f64 = 1.0;

/// Joins the reports of ranks of one job; `None` if there are no reports. The order of the reports
/// does not matter.
pub fn join(mut ranks: Vec<Summary>) -> Option<Summary> {
    let number = |summary: &Summary| summary.task.rank.as_ref().map_or(0, |rank| rank.rank);
    ranks.sort_by_key(number);
    ranks.dedup_by_key(|summary| number(summary));
    let first = ranks.first()?;
    let job_rank = first.task.rank.clone()?;
    let present: BTreeSet<u32> = ranks.iter().map(number).collect();
    // The size comes from the environment; a wrong size must not cost memory.
    let missing =
        (0..job_rank.size).filter(|rank| !present.contains(rank)).take(MAX_LISTED).collect();
    let missing_total = job_rank.size as usize - present.range(..job_rank.size).count();
    let listed = ranks.iter().take(MAX_LISTED).map(rank_use).collect();
    let job = Job {
        id: job_rank.job,
        launcher: job_rank.launcher,
        ranks_total: job_rank.size,
        ranks: listed,
        ranks_left_out: ranks.len().saturating_sub(MAX_LISTED) as u64,
        missing,
        missing_total: missing_total as u64,
    };
    let mut summary = Summary {
        version: first.version,
        task: Identity { rank: None, ..first.task.clone() },
        host: host(&ranks),
        start_seconds: ranks.iter().map(|r| r.start_seconds).fold(f64::INFINITY, f64::min),
        end_seconds: ranks.iter().map(|r| r.end_seconds).fold(0.0, f64::max),
        ended: ended(&ranks, number),
        limits_set: first.limits_set.clone(),
        level: ranks.iter().map(|r| r.level).min().unwrap_or(0),
        resources: RESOURCES
            .iter()
            .map(|r| (r.name.to_owned(), reading(r, &ranks, missing_total)))
            .collect(),
        mechanisms: mechanisms(&ranks),
        overhead: Overhead {
            cpu_seconds: ranks.iter().map(|r| r.overhead.cpu_seconds).sum(),
            resident_bytes_max: ranks.iter().map(|r| r.overhead.resident_bytes_max).sum(),
            stops: ranks.iter().map(|r| r.overhead.stops).sum(),
        },
        disturbed: ranks
            .iter()
            .flat_map(|r| r.disturbed.iter().map(|what| format!("{}: {what}", r.host.node)))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .take(MAX_LISTED)
            .collect(),
        findings: Vec::new(),
        processes: Vec::new(),
        processes_left_out: ranks
            .iter()
            .map(|r| r.processes.len() as u64 + r.processes_left_out)
            .sum(),
        nested: Vec::new(),
        nested_left_out: ranks.iter().map(|r| r.nested.len() as u64 + r.nested_left_out).sum(),
        job: Some(job),
    };
    cores(&mut summary);
    summary.findings = rank_findings(&summary, &ranks);
    summary.findings.extend(findings::findings(&summary));
    Some(summary)
}

fn value(summary: &Summary, name: &str) -> Option<f64> {
    summary.resources.get(name)?.value
}

fn rank_use(summary: &Summary) -> RankUse {
    RankUse {
        rank: summary.task.rank.as_ref().map_or(0, |rank| rank.rank),
        node: summary.host.node.clone(),
        exit_type: summary.ended.exit_type,
        status: summary.ended.status,
        signal: summary.ended.signal,
        start_seconds: summary.start_seconds,
        wall_seconds: value(summary, "wall_seconds"),
        cpu_seconds: value(summary, "cpu_seconds"),
        resident_bytes_max: value(summary, "resident_bytes_max"),
        read_bytes: value(summary, "read_bytes"),
        written_bytes: value(summary, "written_bytes"),
    }
}

/// Combines the machines, each once.
fn host(ranks: &[Summary]) -> Host {
    let nodes: BTreeMap<&str, &Host> =
        ranks.iter().map(|r| (r.host.node.as_str(), &r.host)).collect();
    let mut names: Vec<String> = nodes.keys().take(MAX_NODES).map(ToString::to_string).collect();
    if nodes.len() > MAX_NODES {
        names.push(format!("{} more", nodes.len() - MAX_NODES));
    }
    let kernels: BTreeSet<&str> = nodes.values().map(|host| host.kernel.as_str()).collect();
    Host {
        node: names.join(","),
        kernel: kernels.into_iter().take(MAX_NODES).collect::<Vec<_>>().join(","),
        cores: nodes.values().map(|host| host.cores).sum(),
        memory_bytes: nodes.values().map(|host| host.memory_bytes).sum(),
    }
}

/// Ranks ends of tasks by severity: a job is as good as its worst rank.
fn severity(ended: &Ended) -> u8 {
    match (ended.exit_type, ended.status) {
        (ExitType::Normal, Some(0)) => 0,
        (ExitType::Running, _) => 1,
        (ExitType::Unknown, _) => 2,
        (ExitType::Normal, _) => 3,
        (ExitType::Signal, _) => 4,
        (ExitType::Limit, _) => 5,
    }
}

fn ended(ranks: &[Summary], number: impl Fn(&Summary) -> u32) -> Ended {
    // The first of equals.
    let worst = ranks.iter().rev().max_by_key(|r| severity(&r.ended));
    let Some(worst) = worst else {
        let exit_type = ExitType::Unknown;
        return Ended { exit_type, status: None, signal: None, limits: Vec::new(), guilty: None };
    };
    let named = |r: &Summary, what: &str| format!("{what} (rank {})", number(r));
    let limits = ranks.iter().flat_map(|r| r.ended.limits.iter().map(move |l| (r, l)));
    Ended {
        limits: limits.map(|(r, limit)| named(r, limit)).take(MAX_LISTED).collect(),
        guilty: worst.ended.guilty.as_ref().map(|who| named(worst, who)),
        ..worst.ended.clone()
    }
}

/// Returns the reading of a resource for the whole job.
fn reading(resource: &Resource, ranks: &[Summary], missing: usize) -> Reading {
    let readings: Vec<(&str, &Reading)> = ranks
        .iter()
        .filter_map(|r| Some((r.host.node.as_str(), r.resources.get(resource.name)?)))
        .collect();
    let known: Vec<(&str, &Reading, f64)> =
        readings.iter().filter_map(|(node, r)| Some((*node, *r, r.value?))).collect();
    if known.is_empty() {
        let reason = readings.first().and_then(|(_, r)| r.reason.clone());
        return Reading::unknown(
            resource.unit,
            reason.unwrap_or_else(|| "no rank measured it".into()),
        );
    }
    let (value, error_bound, shared) = match resource.name {
        "wall_seconds" => {
            let longest = known.iter().max_by(|a, b| a.2.total_cmp(&b.2));
            (longest.map_or(0.0, |k| k.2), longest.and_then(|k| k.1.error_bound), None)
        }
        "energy_joules" => {
            let mut nodes: BTreeMap<&str, f64> = BTreeMap::new();
            for (node, _, value) in &known {
                let most = nodes.entry(node).or_default();
                *most = most.max(*value);
            }
            (nodes.values().sum(), None, Some("for each node, the greatest value of its ranks"))
        }
        "files" | "footprint_bytes" => {
            let most = known.iter().map(|k| k.2).fold(0.0, f64::max);
            (
                most,
                None,
                Some("the greatest value of a rank, since ranks may watch the same folders"),
            )
        }
        "opened_files" => {
            let (sum, bound) = sum_of_peaks(&known);
            (sum, bound, Some("a file that several ranks opened counts once for each"))
        }
        _ if resource.combine == Combine::Max => {
            let (sum, bound) = sum_of_peaks(&known);
            (sum, bound, Some("the sum of the ranks' peaks, each at its own time"))
        }
        _ => {
            let bounds: Option<f64> = known.iter().map(|(_, r, _)| r.error_bound).sum();
            (known.iter().map(|k| k.2).sum(), bounds, None)
        }
    };
    let unknown = ranks.len() - known.len();
    let is_partial = missing + unknown > 0;
    let least = known.iter().map(|(_, r, _)| r.completeness).min().unwrap_or(Completeness::None);
    let completeness = if is_partial { least.min(Completeness::AtLeast) } else { least };
    let absent = (missing > 0).then(|| format!("{missing} ranks have no report"));
    let unmeasured = (unknown > 0).then(|| format!("{unknown} ranks did not measure it"));
    let own = known.iter().find_map(|(_, r, _)| r.reason.clone());
    let reasons: Vec<String> =
        [absent, unmeasured, shared.map(str::to_owned), own].into_iter().flatten().collect();
    let methods: BTreeSet<&str> = known.iter().map(|(_, r, _)| r.method.as_str()).collect();
    Reading {
        value: Some(value),
        unit: resource.unit.to_owned(),
        method: methods.into_iter().collect::<Vec<_>>().join(","),
        completeness,
        error_bound: error_bound.filter(|_| !is_partial),
        reason: (!reasons.is_empty()).then(|| reasons.join("; ")),
        missing: missing_parts(&known, is_partial),
    }
}

/// Returns the parts that are missing in any rank.
fn missing_parts(known: &[(&str, &Reading, f64)], is_partial: bool) -> Vec<Missing> {
    let all = known.iter().flat_map(|(_, r, _)| r.missing.iter().copied());
    let all: BTreeSet<Missing> = all.chain(is_partial.then_some(Missing::Other)).collect();
    all.into_iter().collect()
}

/// Returns the sum of peaks at different times, and the error bound: the truth is at least the
/// greatest certain peak.
fn sum_of_peaks(known: &[(&str, &Reading, f64)]) -> (f64, Option<f64>) {
    let sum: f64 = known.iter().map(|k| k.2).sum();
    let lower_bound = |(_, r, value): &(&str, &Reading, f64)| Some(value - r.error_bound?);
    let lower_bounds: Option<Vec<f64>> = known.iter().map(lower_bound).collect();
    (sum, lower_bounds.map(|all| sum - all.into_iter().fold(0.0, f64::max)))
}

/// Divides the processor time by the time of the longest rank.
fn cores(summary: &mut Summary) {
    let part = |name: &str| summary.resources.get(name).and_then(|r| Some((r.value?, r.clone())));
    let (Some((cpu, of_cpu)), Some((wall, of_wall))) = (part("cpu_seconds"), part("wall_seconds"))
    else {
        return;
    };
    let Some(cores) = summary.resources.get_mut("cores").filter(|_| wall > 0.0) else { return };
    let bound = of_cpu.error_bound.zip(of_wall.error_bound);
    *cores = Reading {
        value: Some(cpu / wall),
        unit: cores.unit.clone(),
        method: of_wall.method,
        completeness: of_cpu.completeness,
        error_bound: bound.map(|(cpu_off, wall_off)| (cpu_off + wall_off * cpu / wall) / wall),
        reason: of_cpu.reason,
        missing: of_cpu.missing,
    };
}

/// Returns the mechanisms of all ranks; a mechanism is used if any rank used it.
fn mechanisms(ranks: &[Summary]) -> Vec<MechanismUse> {
    let mut all: Vec<MechanismUse> = Vec::new();
    for one in ranks.iter().flat_map(|r| &r.mechanisms) {
        match all.iter_mut().find(|known| known.name == one.name) {
            Some(known) if one.used && !known.used => *known = one.clone(),
            Some(_) => {}
            None => all.push(one.clone()),
        }
    }
    all
}

/// Finds ranks that stand out from the others.
fn rank_findings(summary: &Summary, ranks: &[Summary]) -> Vec<Finding> {
    let Some(job) = &summary.job else { return Vec::new() };
    let mut findings = Vec::new();
    let name = |r: &Summary| r.task.rank.as_ref().map_or(0, |rank| rank.rank);
    let failed = ranks.iter().filter(|r| severity(&r.ended) > 2);
    if let Some(first) = failed.min_by(|a, b| a.end_seconds.total_cmp(&b.end_seconds)) {
        findings.push(Finding {
            what: format!("rank {} on {} was the first to fail", name(first), first.host.node),
            advice: "look there first: the others may have been ended because of it".to_owned(),
        });
    }
    if job.missing_total > 0 {
        let some: Vec<String> = job.missing.iter().take(MAX_NODES).map(u32::to_string).collect();
        let more = if job.missing_total > some.len() as u64 { ", …" } else { "" };
        findings.push(Finding {
            what: format!(
                "{} of {} ranks have no report: {}{more}",
                job.missing_total,
                job.ranks_total,
                some.join(", ")
            ),
            advice:
                "they are still running, or their monitors were killed; all ranks must share this \
                     folder"
                    .to_owned(),
        });
    }
    let cpu = |r: &&Summary| value(r, "cpu_seconds").unwrap_or(0.0);
    let mean = ranks.iter().map(|r| cpu(&r)).sum::<f64>() / ranks.len().max(1) as f64;
    let most = ranks.iter().max_by(|a, b| cpu(a).total_cmp(&cpu(b)));
    if let Some(most) = most.filter(|r| ranks.len() > 1 && cpu(r) > UNEVEN * mean)
        && mean >= SHORT_SECONDS
    {
        findings.push(Finding {
            what: format!(
                "rank {} used {:.1} times the processor time of the average rank",
                name(most),
                cpu(&most) / mean
            ),
            advice: "the others wait for it: divide the work more evenly".to_owned(),
        });
    }
    findings
}

#[cfg(test)]
mod tests {
    use skopos_model::task::Rank;

    use super::*;

    fn ranked(rank: u32, node: &str, values: &[(&str, f64, Option<f64>)]) -> Summary {
        let text = include_str!("../../tests/data/rank.json");
        let mut summary: Summary = serde_json::from_str(text).expect("a report");
        summary.task.rank =
            Some(Rank { job: "77".into(), rank, size: 3, launcher: "slurm".into() });
        summary.host.node = node.to_owned();
        for (name, value, error_bound) in values {
            let reading = Reading {
                value: Some(*value),
                unit: String::new(),
                method: "wait4".into(),
                completeness: Completeness::All,
                error_bound: *error_bound,
                reason: None,
                missing: Vec::new(),
            };
            summary.resources.insert((*name).to_owned(), reading);
        }
        summary
    }

    #[test]
    fn counters_add_up_peaks_are_bounded_and_shared_values_count_once() {
        let rank = |rank, node, scale: f64| {
            ranked(
                rank,
                node,
                &[
                    ("wall_seconds", 10.0 * scale, Some(0.001)),
                    ("cpu_seconds", 5.0 * scale, Some(0.1)),
                    ("resident_bytes_max", 100.0 * scale, Some(10.0)),
                    ("energy_joules", 7.0 * scale, None),
                    ("files", 4.0 * scale, None),
                ],
            )
        };
        let ranks = vec![rank(2, "b", 1.0), rank(0, "a", 1.0), rank(1, "a", 2.0)];
        let joined = join(ranks.clone()).expect("a job");
        let got = |name: &str| {
            let r = &joined.resources[name];
            (r.value.expect("known"), r.error_bound.map(|b| (b * 1000.0).round() / 1000.0))
        };
        assert_eq!(got("wall_seconds"), (20.0, Some(0.001)));
        assert_eq!(got("cpu_seconds"), (20.0, Some(0.3)));
        assert_eq!(got("resident_bytes_max"), (400.0, Some(210.0)), "at least 190 at one time");
        assert_eq!(got("energy_joules"), (21.0, None), "14 on a, 7 on b");
        assert_eq!(got("files"), (8.0, None));
        assert_eq!(got("cores").0, 1.0);
        assert_eq!(joined.resources["cpu_seconds"].completeness, Completeness::All);
        let job = joined.job.as_ref().expect("a job");
        assert_eq!((job.ranks_total, job.ranks.len(), &*job.missing), (3, 3, &[][..]));
        assert_eq!((&*joined.host.node, joined.task.rank.as_ref()), ("a,b", None));
        let other_way = join(ranks.into_iter().rev().collect());
        assert_eq!(other_way.as_ref(), Some(&joined), "in any order");
    }

    #[test]
    fn many_ranks_without_a_report_are_counted_and_some_are_named() {
        let mut one = ranked(7, "a", &[("cpu_seconds", 5.0, Some(0.1))]);
        // The launcher's environment may contain any size.
        if let Some(rank) = &mut one.task.rank {
            rank.size = 4_000_000_000;
        }
        let joined = join(vec![one]).expect("a job");
        let job = joined.job.as_ref().expect("a job");
        assert_eq!((job.ranks_total, job.missing_total), (4_000_000_000, 3_999_999_999));
        assert_eq!((job.missing.len(), job.missing.contains(&7)), (MAX_LISTED, false));
        let findings: Vec<&str> = joined.findings.iter().map(|f| f.what.as_str()).collect();
        let counted = "3999999999 of 4000000000 ranks have no report: 0, 1, ";
        assert!(findings.iter().any(|what| what.starts_with(counted)), "{findings:?}");
        let cpu = &joined.resources["cpu_seconds"];
        assert!(cpu.reason.as_ref().is_some_and(|r| r.contains("3999999999 ranks")), "{cpu:?}");
    }

    #[test]
    fn a_missing_rank_is_named_and_the_job_ends_like_its_worst_rank() {
        let values = [("cpu_seconds", 5.0, Some(0.1))];
        let (mut good, mut bad) = (ranked(0, "a", &values), ranked(2, "b", &values));
        good.ended.status = Some(0);
        (bad.ended.exit_type, bad.ended.status, bad.ended.signal) =
            (ExitType::Signal, None, Some(11));
        let joined = join(vec![good, bad]).expect("a job");
        let job = joined.job.as_ref().expect("a job");
        assert_eq!((&*job.missing, job.missing_total), (&[1][..], 1));
        assert_eq!((joined.ended.exit_type, joined.ended.signal), (ExitType::Signal, Some(11)));
        let cpu = &joined.resources["cpu_seconds"];
        assert_eq!((cpu.completeness, cpu.error_bound), (Completeness::AtLeast, None));
        assert!(cpu.reason.as_ref().is_some_and(|r| r.contains("1 ranks have no report")));
        let findings: Vec<&str> = joined.findings.iter().map(|f| f.what.as_str()).collect();
        assert!(findings.contains(&"rank 2 on b was the first to fail"), "{findings:?}");
        assert!(findings.iter().any(|what| what.starts_with("1 of 3 ranks have no report: 1")));
        assert_eq!(join(Vec::new()), None);
    }
}
