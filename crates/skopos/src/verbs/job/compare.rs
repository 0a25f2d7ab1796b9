//! `skopos job compare A B`: two jobs side by side.

use std::collections::BTreeSet;
use std::process::ExitCode;

use serde::Serialize;
use skopos_model::task::{RESOURCES, amount};
use skopos_term::format::printable;
use skopos_term::{Failure, Global, Out, Style};

use super::hub::{Hub, Id};
use super::one::{Field, fields, is_counter};
use super::show::with_unit;

/// `docs/json/job_compare.schema.json`.
#[derive(Serialize)]
struct Compared {
    a: String,
    b: String,
    /// Fields of the metadata that differ.
    metadata: Vec<FieldPair>,
    /// Resources and means of metrics, those that differ most first.
    metrics: Vec<Pair>,
}

#[derive(Serialize)]
struct FieldPair {
    field: String,
    a: Vec<String>,
    b: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Pair {
    metric: String,
    unit: String,
    a: Option<f64>,
    b: Option<f64>,
    /// `b / a`; absent if it is not a number.
    ratio: Option<f64>,
}

impl Pair {
    fn new(metric: &str, unit: &str, a: Option<f64>, b: Option<f64>) -> Self {
        let ratio = a.zip(b).map(|(a, b)| b / a).filter(|ratio| ratio.is_finite());
        Self { metric: metric.to_owned(), unit: unit.to_owned(), a, b, ratio }
    }

    /// Returns how far the two are apart, as the logarithm of their ratio; `None` if one of them is not known.
    fn distance(&self) -> Option<f64> {
        let (a, b) = self.a.zip(self.b)?;
        if a == b {
            return Some(0.0);
        }
        let apart = (b / a).ln().abs();
        // A value and zero, or values of different signs, have no ratio.
        Some(if apart.is_finite() { apart } else { f64::INFINITY })
    }
}

/// Sorts by distance, the greatest first. A metric of which one value is not known comes last.
fn sort(pairs: &mut [Pair]) {
    pairs.sort_by(|a, b| {
        let key = |pair: &Pair| pair.distance().unwrap_or(-1.0);
        key(b).total_cmp(&key(a)).then_with(|| a.metric.cmp(&b.metric))
    });
}

pub(crate) fn run(global: &Global, a: &str, b: &str) -> Result<ExitCode, Failure> {
    let hub = Hub::open(global)?;
    let (a, b) = (hub.find(a)?, hub.find(b)?);
    let (fields_a, fields_b) = (fields(&hub, &a)?, fields(&hub, &b)?);
    let mut metrics = resources(&fields_a, &fields_b);
    metrics.extend(means(&hub, &a, &b)?);
    sort(&mut metrics);
    let metadata = differing(&fields_a, &fields_b);
    let compared = Compared { a: a.to_string(), b: b.to_string(), metadata, metrics };
    let mut out = Out::new(global.style());
    match out.style {
        Style::Json => out.json(&compared)?,
        Style::Plain => {
            for pair in &compared.metrics {
                let text = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
                let (a, b, ratio) = (text(pair.a), text(pair.b), text(pair.ratio));
                out.line(format!("{}\t{a}\t{b}\t{ratio}\t{}", printable(&pair.metric), pair.unit))?;
            }
        }
        Style::Human => human(&compared, &mut out)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn human(compared: &Compared, out: &mut Out) -> Result<(), Failure> {
    for pair in &compared.metadata {
        let all = |values: &[String]| with_unit(&pair.field, printable(&values.join(", ")));
        out.line(format!("{}: {} | {}", pair.field, all(&pair.a), all(&pair.b)))?;
    }
    let head = ["metric", &compared.a, &compared.b, "ratio"].map(str::to_owned).to_vec();
    let rows = compared.metrics.iter().map(|pair| {
        let text =
            |value: Option<f64>| value.map_or("unknown".to_owned(), |v| amount(v, &pair.unit));
        let ratio = pair.ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"));
        vec![printable(&pair.metric), text(pair.a), text(pair.b), ratio]
    });
    let rows: Vec<Vec<String>> = [head].into_iter().chain(rows).collect();
    Ok(out.table(&rows, &[1, 2, 3])?)
}

/// Returns the resources that one of the jobs has.
fn resources(a: &[Field], b: &[Field]) -> Vec<Pair> {
    let pair = |resource: &skopos_model::task::Resource| {
        let value = |all: &[Field]| {
            let is_it = |field: &&Field| {
                field.field == "used" && field.name.as_deref() == Some(resource.name)
            };
            all.iter().find(is_it)?.value.parse().ok()
        };
        Pair::new(resource.name, resource.unit, value(a), value(b))
    };
    let pairs = RESOURCES.iter().map(pair);
    pairs.filter(|pair| pair.a.is_some() || pair.b.is_some()).collect()
}

/// Returns the means of metrics over nodes and time. The mean of a counter would say when a job counted, and not how much.
fn means(hub: &Hub, a: &Id, b: &Id) -> Result<Vec<Pair>, Failure> {
    let of = |id: &Id| {
        let sql = format!(
            "SELECT metric, avg(value) AS mean FROM job_samples WHERE {} AND NOT isnan(value) \
             GROUP BY metric ORDER BY metric",
            id.condition()
        );
        hub.rows(&sql)
    };
    let (a, b) = (of(a)?, of(b)?);
    let mean = |rows: &[super::hub::Row], metric: &str| {
        let row =
            rows.iter().find(|row| row.get("metric").and_then(|m| m.as_str()) == Some(metric))?;
        row.get("mean")?.as_f64()
    };
    let names: BTreeSet<&str> =
        a.iter().chain(&b).filter_map(|row| row.get("metric")?.as_str()).collect();
    let levels = names.into_iter().filter(|metric| !is_counter(metric));
    let pairs = levels.map(|metric| {
        let name = format!("mean {metric}");
        Pair::new(&name, super::show::unit(metric), mean(&a, metric), mean(&b, metric))
    });
    Ok(pairs.collect())
}

/// Returns the fields whose values differ. Numbers of records differ anyway.
fn differing(a: &[Field], b: &[Field]) -> Vec<FieldPair> {
    let name = |field: &Field| match &field.name {
        Some(name) => format!("{} {name}", field.field),
        None => field.field.clone(),
    };
    let names: BTreeSet<String> = a.iter().chain(b).map(name).collect();
    let values = |all: &[Field], of: &str| -> Vec<String> {
        all.iter().filter(|field| name(field) == of).map(|field| field.value.clone()).collect()
    };
    let pairs = names.into_iter().map(|field| {
        let (a, b) = (values(a, &field), values(b, &field));
        FieldPair { field, a, b }
    });
    let is_told = |pair: &FieldPair| pair.field != "parts" && !pair.field.starts_with("used ");
    pairs.filter(|pair| pair.a != pair.b && is_told(pair)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_difference_comes_first() {
        let mut pairs = [
            Pair::new("same", "", Some(3.0), Some(3.0)),
            Pair::new("unknown", "", None, Some(3.0)),
            Pair::new("half", "", Some(4.0), Some(2.0)),
            Pair::new("from zero", "", Some(0.0), Some(2.0)),
            Pair::new("both zero", "", Some(0.0), Some(0.0)),
            Pair::new("three times", "", Some(1.0), Some(3.0)),
        ];
        sort(&mut pairs);
        let order: Vec<(&str, Option<f64>)> =
            pairs.iter().map(|pair| (pair.metric.as_str(), pair.ratio)).collect();
        assert_eq!(
            order,
            [
                ("from zero", None),
                ("three times", Some(3.0)),
                ("half", Some(0.5)),
                ("both zero", None),
                ("same", Some(1.0)),
                ("unknown", None),
            ]
        );
    }
}
