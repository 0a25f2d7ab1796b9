//! `skopos archive stats CLASS`: prints statistics of the tasks of a class.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use skopos_model::nearest_name;
use skopos_model::task::{RESOURCES, Resource, amount, resource};
use skopos_store::archive::Usage;
use skopos_store::stats::RELATIVE_ERROR;

use super::place::{Place, Selection, failure, no_class};
use super::plot;
use skopos_term::Failure;
use skopos_term::Global;
use skopos_term::{Out, Style, tell};

/// The quantiles that are shown.
const QUANTILES: [f64; 7] = [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99];

#[derive(Debug, Args)]
pub(super) struct StatsArgs {
    /// Class of tasks; `skopos archive ls` lists the classes
    class: String,
    /// Show only this resource, with its whole histogram
    #[arg(long, value_name = "NAME")]
    resource: Option<String>,
    /// Show each host too
    #[arg(long)]
    hosts: bool,
    /// Write the histograms to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    place: Place,
}

/// `docs/json/archive_stats.schema.json`.
#[derive(Serialize)]
struct StatsJson<'a> {
    class: &'a str,
    quantile_relative_error: f64,
    groups: Vec<GroupJson<'a>>,
}

#[derive(Serialize)]
struct GroupJson<'a> {
    /// `null` for all hosts together.
    host: Option<&'a str>,
    resources: BTreeMap<&'static str, UsedJson>,
}

#[derive(Serialize)]
struct UsedJson {
    unit: &'static str,
    count: u64,
    unknown: u64,
    lower_bounds: u64,
    min: Option<f64>,
    max: Option<f64>,
    mean: Option<f64>,
    deviation: Option<f64>,
    skewness: Option<f64>,
    kurtosis_excess: Option<f64>,
    quantiles: Vec<(f64, f64)>,
    histogram: Vec<(f64, f64, u64)>,
}

/// The resources that tasks used, on one host or on all.
struct Group {
    host: Option<String>,
    used: BTreeMap<String, Usage>,
}

impl Group {
    /// The resources in the order of reports.
    fn resources(&self) -> impl Iterator<Item = (&'static Resource, &Usage)> {
        RESOURCES.iter().filter_map(|r| Some((r, self.used.get(r.name)?)))
    }
}

pub(super) fn run(global: &Global, args: &StatsArgs) -> Result<ExitCode, Failure> {
    let conditions = args.selection.conditions()?;
    let only = args.resource.as_deref().map(known).transpose()?;
    let archive = args.place.open()?;
    let hosts = archive.usage(&args.class, &conditions).map_err(|e| failure(&e))?;
    if hosts.is_empty() {
        return Err(no_class(&archive, &args.class));
    }
    let groups = groups(hosts, only, args.hosts);
    let mut out = Out::new(global.style());
    match out.style {
        Style::Json => {
            let groups = groups.iter().map(|g| GroupJson {
                host: g.host.as_deref(),
                resources: g.resources().map(|(r, used)| (r.name, json(r, used))).collect(),
            });
            out.json(&StatsJson {
                class: &args.class,
                quantile_relative_error: RELATIVE_ERROR,
                groups: groups.collect(),
            })?;
        }
        Style::Plain => plain(&mut out, &groups)?,
        Style::Human => human(&mut out, &args.class, &groups, only)?,
    }
    out.flush()?;
    if let (Some(path), Some(group)) = (&args.svg, groups.first()) {
        fs::write(path, plot::svg(&args.class, group.resources()))
            .map_err(|e| Failure::new(format!("cannot write {}", path.display())).because(&e))?;
        if out.style == Style::Human {
            tell(format!("the histograms are in {}", path.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Finds the resource of this name; the failure hints at the most similar one.
pub(crate) fn known(name: &str) -> Result<&'static Resource, Failure> {
    resource(name).ok_or_else(|| {
        let failure = Failure::new(format!("--resource: there is no resource `{name}`"));
        let names = RESOURCES.iter().flat_map(|r| [r.alias, r.name]);
        match nearest_name(name, names) {
            Some(nearest) => failure.hint(format!("did you mean `{nearest}`?")),
            None => failure.hint("for example `memory`, `cpu`, `wall` or `disk`"),
        }
    })
}

/// Merges all hosts, and adds each host if asked for.
fn groups(
    hosts: BTreeMap<String, BTreeMap<String, Usage>>,
    only: Option<&Resource>,
    each: bool,
) -> Vec<Group> {
    let mut all: BTreeMap<String, Usage> = BTreeMap::new();
    let mut groups = Vec::new();
    for (host, mut used) in hosts {
        used.retain(|name, _| only.is_none_or(|only| only.name == name));
        for (name, part) in &used {
            all.entry(name.clone()).or_default().merge(part);
        }
        groups.push(Group { host: Some(host), used });
    }
    if !each {
        groups.clear();
    }
    groups.insert(0, Group { host: None, used: all });
    groups
}

fn json(resource: &Resource, used: &Usage) -> UsedJson {
    let Usage { distribution, lower_bounds, unknown } = used;
    let moments = distribution.moments;
    let quantiles = QUANTILES.iter().filter_map(|q| Some((*q, distribution.quantile(*q)?)));
    UsedJson {
        unit: resource.unit,
        count: moments.count(),
        unknown: *unknown,
        lower_bounds: *lower_bounds,
        min: moments.min(),
        max: moments.max(),
        mean: moments.mean(),
        deviation: moments.deviation(),
        skewness: moments.skewness(),
        kurtosis_excess: moments.kurtosis(),
        quantiles: quantiles.collect(),
        histogram: distribution.histogram.bins().collect(),
    }
}

fn plain(out: &mut Out, groups: &[Group]) -> Result<(), Failure> {
    let text = |value: Option<f64>| value.map(|v| v.to_string()).unwrap_or_default();
    for group in groups {
        for (resource, used) in group.resources() {
            let m = used.distribution.moments;
            let host = group.host.as_deref().unwrap_or("*");
            let shape = [m.mean(), m.deviation(), m.skewness(), m.kurtosis(), m.min(), m.max()];
            let shape = shape.map(text).join("\t");
            out.line(format!("{host}\t{}\t{}\t{shape}", resource.name, m.count()))?;
        }
    }
    Ok(())
}

fn human(
    out: &mut Out,
    class: &str,
    groups: &[Group],
    only: Option<&Resource>,
) -> Result<(), Failure> {
    let head = [
        "resource",
        "count",
        "mean",
        "deviation",
        "skewness",
        "kurtosis",
        "median",
        "95 %",
        "max",
        "histogram",
    ];
    for group in groups {
        let title = match &group.host {
            Some(host) => format!("{class} on {host}"),
            None => class.to_owned(),
        };
        let title = out.bold(&title);
        out.line(title)?;
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        let mut bounds = Vec::new();
        for (resource, used) in group.resources() {
            if used.distribution.moments.count() == 0 {
                continue;
            }
            rows.push(row(resource, used));
            if used.lower_bounds > 0 {
                bounds.push(resource.name);
            }
        }
        out.table(&rows, &[1, 2, 3, 4, 5, 6, 7, 8])?;
        if !bounds.is_empty() {
            let note = format!("some values are lower bounds: {}", bounds.join(", "));
            let note = out.dim(&note);
            out.line(note)?;
        }
        if let Some(only) = only {
            for (_, used) in group.resources() {
                for line in plot::bars(&used.distribution.shape(), only.unit) {
                    out.line(line)?;
                }
            }
        }
    }
    let note = "kurtosis is the excess over a normal distribution; medians and 95 % are within 1 %";
    let note = out.dim(note);
    out.line(note)?;
    Ok(())
}

fn row(resource: &Resource, used: &Usage) -> Vec<String> {
    let Usage { distribution, .. } = used;
    let m = distribution.moments;
    let of = |value: Option<f64>| value.map(|v| amount(v, resource.unit)).unwrap_or_default();
    let plain = |value: Option<f64>| value.map(|v| format!("{v:.2}")).unwrap_or_default();
    vec![
        resource.name.to_owned(),
        m.count().to_string(),
        of(m.mean()),
        of(m.deviation()),
        plain(m.skewness()),
        plain(m.kurtosis()),
        of(distribution.quantile(0.5)),
        of(distribution.quantile(0.95)),
        of(m.max()),
        plot::line(&distribution.shape()),
    ]
}
