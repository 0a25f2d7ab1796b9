//! Everything about one job, as `show` and `export` need it.

use serde::Serialize;
use serde_json::{Map, Value as Json};
use skopos_model::task::{RESOURCES, amount};
use skopos_term::Failure;

use super::found::{Finding, findings};
use super::hub::{Hub, Id, Row, quoted};
use crate::verbs::spark::Cells;

/// Number of points of a series that is shown: the cells of its line.
pub(super) const POINTS: usize = 48;

/// The most series that are shown. `skopos sql` shows all.
const MAX_SERIES: usize = 40;

/// A job.
#[derive(Serialize)]
pub(super) struct OneJob {
    pub(super) job: String,
    pub(super) generation: u32,
    /// Columns of the table `jobs` that are not resources.
    pub(super) metadata: Map<String, Json>,
    /// Rows of the table `job_metadata`.
    pub(super) fields: Vec<Field>,
    pub(super) findings: Vec<Finding>,
    /// The resources that are known, by name.
    pub(super) used: Map<String, Json>,
    pub(super) series: Vec<Line>,
    /// Number of series that are not in the list.
    pub(super) series_left_out: usize,
}

/// A field of the metadata.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Field {
    pub(super) field: String,
    pub(super) name: Option<String>,
    pub(super) value: String,
}

/// A series in a fixed number of points.
#[derive(Serialize)]
pub(super) struct Line {
    pub(super) node: String,
    pub(super) schema: String,
    pub(super) metric: String,
    /// True if the points are the growth of a counter in a second.
    pub(super) is_rate: bool,
    pub(super) points: Cells,
}

impl OneJob {
    /// Asks the hub about a job.
    pub(super) fn ask(hub: &Hub, id: &Id) -> Result<Self, Failure> {
        let row = hub.rows(&format!("SELECT * FROM jobs WHERE {}", id.condition()))?;
        let Some(row) = row.into_iter().next() else {
            return Err(Failure::no(format!("there is no job `{id}`")));
        };
        let is_resource = |name: &str| RESOURCES.iter().any(|resource| resource.name == name);
        let mut metadata: Map<_, _> =
            row.into_iter().filter(|(name, _)| !is_resource(name)).collect();
        // The list of jobs is a second behind the records of a job, and its fields are not.
        let (used, fields): (Vec<Field>, Vec<Field>) =
            fields(hub, id)?.into_iter().partition(|field| field.field == "used");
        let number = |field: Field| Some((field.name?, field.value.parse::<f64>().ok()?.into()));
        let used = used.into_iter().filter_map(number).collect();
        let (state, fields): (Vec<Field>, Vec<Field>) =
            fields.into_iter().partition(|field| field.field == "state");
        metadata.extend(state.into_iter().map(|field| (field.field, field.value.into())));
        let (series, series_left_out) = lines(hub, id)?;
        let (job, generation) = (id.job.clone(), id.generation);
        let findings = findings(hub, id)?;
        Ok(Self { job, generation, metadata, fields, findings, used, series, series_left_out })
    }

    /// Returns the resources that the job used, in the order of reports: name, value and text.
    pub(super) fn resources(&self) -> impl Iterator<Item = (&'static str, f64, String)> {
        RESOURCES.iter().filter_map(|resource| {
            let value = self.used.get(resource.name)?.as_f64()?;
            Some((resource.name, value, amount(value, resource.unit)))
        })
    }
}

/// Returns the fields of a job's metadata.
pub(super) fn fields(hub: &Hub, id: &Id) -> Result<Vec<Field>, Failure> {
    let sql = format!("SELECT field, name, value FROM job_metadata WHERE {}", id.condition());
    let text = |row: &Row, name: &str| Some(row.get(name)?.as_str()?.to_owned());
    let field = |row: &Row| {
        let (field, value) = (text(row, "field")?, text(row, "value")?);
        Some(Field { field, name: text(row, "name"), value })
    };
    Ok(hub.rows(&sql)?.iter().filter_map(field).collect())
}

/// Returns true if the values of a metric are sums since its beginning.
pub(super) fn is_counter(metric: &str) -> bool {
    let name = metric.rsplit('/').next().unwrap_or(metric);
    name.ends_with("_total") || ["cpu_seconds", "read_bytes", "written_bytes"].contains(&name)
}

/// Returns the series of a job, each in [`POINTS`] stretches of time, and the number of further ones.
fn lines(hub: &Hub, id: &Id) -> Result<(Vec<Line>, usize), Failure> {
    let of = id.condition();
    let span = format!(
        "SELECT min(CAST(time AS BIGINT)) AS low, max(CAST(time AS BIGINT)) AS high \
         FROM job_samples WHERE {of}"
    );
    let span = hub.rows(&span)?;
    let bound = |name| span.first().and_then(|row: &Row| row.get(name)?.as_i64());
    let (Some(low), Some(high)) = (bound("low"), bound("high")) else {
        return Ok((Vec::new(), 0));
    };
    let width = (high.saturating_sub(low) / POINTS as i64).saturating_add(1);
    let names = format!(
        "SELECT node, schema, metric, count(value) AS n FROM job_samples WHERE {of} \
         AND NOT isnan(value) GROUP BY node, schema, metric ORDER BY node, schema, metric"
    );
    let names = hub.rows(&names)?;
    let text =
        |row: &Row, name: &str| row.get(name).and_then(Json::as_str).unwrap_or_default().to_owned();
    let mut lines = Vec::new();
    for row in names.iter().take(MAX_SERIES) {
        let (node, schema, metric) = (text(row, "node"), text(row, "schema"), text(row, "metric"));
        let is_rate = is_counter(&metric);
        let value = if is_rate { "max(value)" } else { "avg(value)" };
        let points = format!(
            "SELECT (CAST(time AS BIGINT) - {low}) / {width} AS at, {value} AS value \
             FROM job_samples WHERE {of} AND node = {} AND schema = {} AND metric = {} \
             AND NOT isnan(value) GROUP BY 1 ORDER BY 1",
            quoted(&node),
            quoted(&schema),
            quoted(&metric)
        );
        let mut points_of = Cells::new(POINTS);
        for point in hub.rows(&points)? {
            let at = point.get("at").and_then(Json::as_u64).and_then(|at| usize::try_from(at).ok());
            points_of.set(at, point.get("value").and_then(Json::as_f64));
        }
        let points = if is_rate { points_of.rates(width as f64 / 1e9) } else { points_of };
        lines.push(Line { node, schema, metric, is_rate, points });
    }
    Ok((lines, names.len().saturating_sub(MAX_SERIES)))
}
