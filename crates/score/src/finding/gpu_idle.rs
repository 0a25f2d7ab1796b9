//! GPU idle: the job requested GPUs and did not use them.

use super::numbers::{MIN_WALL_SECONDS, mean};
use super::rule::Rule;
use super::series::Series;
use super::verdict::{Evidence, Found, Judging, Severity, Verdict};
use super::view::JobView;

/// The mean utilization below which GPUs are idle. A job that loads data between its kernels reaches more.
const MIN_BUSY: f64 = 0.1;

pub(super) static RULE: Rule = Rule {
    name: "gpu_idle",
    condition: "no process had a context on a requested GPU, or the mean utilization of the job's GPUs is below 10 %",
    inputs: "requested or used `gpus`; `gpus` of the reports, or a series `gpu/NAME/utilization_ratio`, `gpu/NAME/busy_ratio` or `gpu_busy_ratio`",
    advice: "request no GPU if the program cannot use one; otherwise check that it finds the driver, and move work or data loading to the GPU",
    judge,
};

fn judge(view: &JobView) -> Judging {
    let requested = view.requested("gpus");
    let used = view.used("gpus").map(|used| used.value);
    let busy: Vec<f64> = view
        .series_of(&["busy_ratio", "utilization_ratio", "gpu_busy_ratio"])
        .filter(|series| is_of_gpu(series) && series.seconds() >= MIN_WALL_SECONDS)
        .filter_map(Series::mean)
        .collect();
    let wanted = match (&requested, &used) {
        (Ok(requested), _) => *requested,
        (Err(_), Ok(used)) if *used >= 1.0 => *used,
        (Err(_), _) if !busy.is_empty() => busy.len() as f64,
        // A job without GPUs has no idle one, but it is known only with its start.
        (Err(why), _) => return Err(why.clone()),
    };
    let requested = Evidence::new("GPUs of the job", wanted, "");
    if let Some(mean) = mean(&busy) {
        if mean >= MIN_BUSY {
            return Ok(Verdict::Absent);
        }
        let what = format!("the GPUs of the job were {:.1} % busy", 100.0 * mean);
        let evidence = vec![requested, Evidence::new("mean utilization", mean, "")];
        return Ok(Verdict::Found(Found { severity: Severity::Serious, what, evidence }));
    }
    match used? {
        used if used >= 1.0 => {
            Err(Verdict::unknown("processes used the GPUs; how busy they were is not known"))
        }
        used => Ok(Verdict::Found(Found {
            severity: Severity::Serious,
            what: "no process of the job used a GPU".to_owned(),
            evidence: vec![requested, Evidence::new("GPUs in use", used, "")],
        })),
    }
}

fn is_of_gpu(series: &Series) -> bool {
    series.metric.starts_with("gpu/") || series.name() == "gpu_busy_ratio"
}
