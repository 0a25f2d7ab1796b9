//! Killed by a limit other than that on wall time.

use skopos_model::job::JobState;
use skopos_model::task::{ExitType, amount, resource};

use super::rule::Rule;
use super::verdict::{Evidence, Found, Judging, Severity, Verdict};
use super::view::JobView;
use super::wall_time::is_wall;

pub(super) static RULE: Rule = Rule {
    name: "limit",
    condition: "the job ended as `out_of_memory`, or a monitor ended one of its tasks for a limit other than wall time",
    inputs: "the end of the job",
    advice: "request more of the resource, or give the job less work at one time; `skopos estimate` proposes a size from earlier jobs",
    judge,
};

fn judge(view: &JobView) -> Judging {
    let state = view.ended()?;
    let reached: Vec<&str> = view
        .reports
        .iter()
        .filter(|report| report.ended.exit_type == ExitType::Limit)
        .flat_map(|report| &report.ended.limits)
        .map(String::as_str)
        .filter(|limit| !is_wall(limit))
        .collect();
    let evidence = view.reports.iter().filter(|report| report.ended.exit_type == ExitType::Limit);
    let evidence = evidence.flat_map(|report| {
        report.limits_set.iter().filter_map(|limit| {
            let short = resource(&limit.name)?.short();
            let is_it =
                report.ended.limits.iter().any(|text| text.starts_with(&format!("{short}:")));
            let used = report.resources.get(&limit.name).and_then(|reading| reading.value);
            let of_limit = Evidence::new(format!("limit on {short}"), limit.most, &limit.unit);
            let of_use = used.map(|used| Evidence::new(short, used, &limit.unit));
            is_it.then_some([Some(of_limit), of_use])
        })
    });
    let mut evidence: Vec<Evidence> = evidence.flatten().flatten().collect();
    let is_memory = state == JobState::OutOfMemory;
    if reached.is_empty() && !is_memory {
        return match state {
            JobState::Unknown => Err(Verdict::unknown("it is not known how the job ended")),
            _ => Ok(Verdict::Absent),
        };
    }
    if evidence.is_empty() && is_memory {
        let known = [("requested memory", view.requested("resident_bytes_max").ok())];
        let known = known
            .into_iter()
            .chain([("peak memory", view.used("resident_bytes_max").ok().map(|used| used.value))]);
        evidence.extend(known.filter_map(|(name, v)| Some(Evidence::new(name, v?, "bytes"))));
    }
    let why = match reached.first() {
        Some(limit) => (*limit).to_owned(),
        None => match view.requested("resident_bytes_max") {
            Ok(most) => format!("memory, of which it requested {}", amount(most, "bytes")),
            Err(_) => "memory".to_owned(),
        },
    };
    let what = format!("a limit ended the job: {why}");
    Ok(Verdict::Found(Found { severity: Severity::Serious, what, evidence }))
}
