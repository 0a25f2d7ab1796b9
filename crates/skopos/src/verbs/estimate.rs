//! `skopos estimate CLASS`: proposes an allocation for the next task of a class.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde::Serialize;
use skopos_model::task::{Resource, amount};
use skopos_store::archive::{Keeper, Records};
use skopos_store::estimate::{CONFIDENCE, Estimate, MAX_RISK, Minimize, estimate_from, judge_from};
use skopos_store::stats::Moments;

use crate::verbs::archive::{Place, Selection, failure, known_resource, no_class};
use skopos_term::Failure;
use skopos_term::Global;
use skopos_term::{Out, Style};

/// The resource of `--limit auto`.
const MEMORY: &str = "resident_bytes_max";

#[derive(Debug, Args)]
pub(crate) struct EstimateArgs {
    /// Class of tasks; `skopos archive ls` lists the classes
    class: String,
    /// Goal: the least resources held and not used, or the fewest tasks that run twice
    #[arg(long, value_enum, default_value_t = Goal::Waste)]
    minimize: Goal,
    /// Largest share of records that may need more than the allocation, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = MAX_RISK, value_parser = share, allow_hyphen_values = true)]
    max_risk: f64,
    /// Resource to estimate
    #[arg(long, value_name = "NAME", default_value = "memory")]
    resource: String,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    place: Place,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "a share is from 0 to 1, such as `0.1`".to_owned())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Goal {
    Waste,
    Retries,
}

impl From<Goal> for Minimize {
    fn from(goal: Goal) -> Self {
        match goal {
            Goal::Waste => Self::Waste,
            Goal::Retries => Self::Retries,
        }
    }
}

/// `docs/json/estimate.schema.json`.
#[derive(Serialize)]
struct EstimateJson<'a> {
    class: &'a str,
    resource: &'static str,
    unit: &'static str,
    minimize: Minimize,
    #[serde(flatten)]
    estimate: Estimate,
    confidence: f64,
    /// Number of records that are lower bounds.
    lower_bounds: u64,
    unfinished: u64,
    unknown: u64,
    /// Allocations of other methods from the same records.
    naive: Vec<NaiveJson>,
}

#[derive(Serialize)]
struct NaiveJson {
    choice: &'static str,
    #[serde(flatten)]
    estimate: Estimate,
}

pub(crate) fn run(global: &Global, args: &EstimateArgs) -> Result<ExitCode, Failure> {
    let conditions = args.selection.conditions()?;
    let resource = known_resource(&args.resource)?;
    let archive = args.place.open()?;
    let found = match resource.name {
        // A limit on memory counts what its keeper counts here.
        MEMORY if skopos_task::kernel_keeps_memory() => {
            archive.memory_records(&args.class, Keeper::Kernel, &conditions, None)
        }
        MEMORY => archive.memory_records(&args.class, Keeper::Samples, &conditions, None),
        _ => archive.records(&args.class, resource, &conditions, None),
    };
    let found = found.map_err(|e| failure(&e))?;
    let Some(chosen) = estimate_from(&found.evidence, args.minimize.into(), args.max_risk) else {
        if found.unfinished + found.unknown == 0 {
            return Err(no_class(&archive, &args.class));
        }
        return Err(Failure::no(format!(
            "no record of `{}` for `{}`: {} tasks did not return 0, {} were not measured",
            resource.name, args.class, found.unfinished, found.unknown
        )));
    };
    let naive = naive(&found, chosen.maximum);
    let mut out = Out::new(global.style());
    match out.style {
        Style::Json => out.json(&EstimateJson {
            class: &args.class,
            resource: resource.name,
            unit: resource.unit,
            minimize: args.minimize.into(),
            estimate: chosen,
            confidence: CONFIDENCE,
            lower_bounds: found.lower_bounds,
            unfinished: found.unfinished,
            unknown: found.unknown,
            naive: naive
                .into_iter()
                .map(|(choice, estimate)| NaiveJson { choice, estimate })
                .collect(),
        })?,
        Style::Plain => {
            let Estimate { allocation, maximum, waste, waste_share, risk, risk_bound, count } =
                chosen;
            out.line(format!(
                "{allocation}\t{maximum}\t{waste}\t{waste_share}\t{risk}\t{risk_bound}\t{count}"
            ))?;
        }
        Style::Human => human(&mut out, &args.class, resource, &chosen, &found, &naive)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the allocations of other methods, judged as the chosen one.
fn naive(found: &Records, maximum: f64) -> Vec<(&'static str, Estimate)> {
    let mut moments = Moments::default();
    found.records.iter().for_each(|r| moments.add(r.value));
    let spread = moments.deviation().unwrap_or(0.0);
    let far = moments.mean().unwrap_or(0.0) + 2.0 * spread;
    let choices = [("the maximum ever", maximum), ("mean + 2 deviations", far.min(maximum))];
    let judged = choices.into_iter().filter_map(|(choice, allocation)| {
        Some((choice, judge_from(&found.evidence, allocation, maximum)?))
    });
    judged.collect()
}

fn human(
    out: &mut Out,
    class: &str,
    resource: &Resource,
    chosen: &Estimate,
    found: &Records,
    naive: &[(&str, Estimate)],
) -> Result<(), Failure> {
    let of = |value| amount(value, resource.unit);
    let name = resource.short();
    let (first, maximum) = (of(chosen.allocation), of(chosen.maximum));
    let title = out.bold(&format!("{class}: {name}={first}"));
    out.line(match chosen.risk > 0.0 {
        true => format!("{title}, and {maximum} if that was too little"),
        false => title,
    })?;
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    out.line(format!(
        "  {} of the {} records needed more; of the next tasks at most {} will, with {} confidence",
        percent(chosen.risk),
        chosen.count,
        percent(chosen.risk_bound),
        percent(CONFIDENCE)
    ))?;
    let mut rows =
        vec![["", "first", "held and not used", "run twice"].map(str::to_owned).to_vec()];
    let row = |choice: &str, e: &Estimate| {
        vec![format!("  {choice}"), of(e.allocation), percent(e.waste_share), percent(e.risk)]
    };
    rows.push(row("this", chosen));
    rows.extend(naive.iter().map(|(choice, e)| row(choice, e)));
    out.table(&rows, &[1, 2, 3])?;
    for (count, what) in [
        (found.lower_bounds, "records are lower bounds: the tasks used more than was measured"),
        (
            found.unfinished,
            "tasks did not return 0; those that a limit ended count as needing more",
        ),
        (found.unknown, "tasks were not measured"),
    ] {
        if count > 0 {
            let note = out.dim(&format!("  {count} {what}"));
            out.line(note)?;
        }
    }
    Ok(())
}
