//! `task_stats` and `task_estimates`: the usage of classes of tasks in the archive, and what the next task of a class should get.

use std::path::PathBuf;
use std::sync::Arc;

use skopos_access::{Action, may};
use skopos_model::Unit;
use skopos_model::task::{RESOURCES, Resource};
use skopos_query::arrow::array::{ArrayRef, Float64Builder, Int64Builder, StringBuilder};
use skopos_query::arrow::datatypes::DataType;
use skopos_query::{BoxError, Column, Fingerprint, Rows, Scan, Table};
use skopos_store::archive::{Archive, Class, Conditions, Keeper, Records, Usage};
use skopos_store::estimate::{MAX_RISK, Minimize, estimate_from};

/// The resource of which a limit counts more than one value.
const MEMORY: &str = "resident_bytes_max";

/// A table over the classes of the archive.
#[derive(Debug)]
pub(super) struct OfClasses {
    name: &'static str,
    help: &'static str,
    columns: Vec<Column>,
    /// Makes the rows of a class.
    rows: fn(&Archive, &Class, &Scan) -> Result<Batch, BoxError>,
    /// Path of the archive, which may not exist yet.
    archive: Option<PathBuf>,
}

impl OfClasses {
    /// Returns the table `task_stats`.
    pub(super) fn stats(archive: Option<PathBuf>) -> Self {
        let number = |name, help| Column::number(name, Unit::NONE, help);
        let columns = vec![
            Column::text("class", "Class of the tasks"),
            Column::text("node", "Node that the tasks ran on"),
            Column::text("resource", "Name of the resource"),
            Column::text("unit", "Unit of the values"),
            Column::integer("tasks", "Number of tasks of which the value is known"),
            Column::integer("lower_bounds", "Number of these values that are lower bounds"),
            Column::integer("unknown", "Number of tasks of which the value is not known"),
            number("mean", "Mean of the values"),
            number("deviation", "Standard deviation"),
            number("min", "Least value"),
            number("p50", "Median"),
            number("p95", "95th percentile"),
            number("p99", "99th percentile"),
            number("max", "Greatest value"),
        ];
        let help = "Usage of a resource by the tasks of a class on a node";
        Self { name: "task_stats", help, columns, rows: stats, archive }
    }

    /// Returns the table `task_estimates`.
    pub(super) fn estimates(archive: Option<PathBuf>) -> Self {
        let number = |name, help| Column::number(name, Unit::NONE, help);
        let columns = vec![
            Column::text("class", "Class of the tasks"),
            Column::text("resource", "Name of the resource"),
            Column::text("unit", "Unit of the allocation"),
            Column::text("goal", "`waste` (the least that is held and not used) or `retries`"),
            number("allocation", "First allocation of the next task"),
            number("maximum", "Second allocation, if the first is too small"),
            number("waste", "Expected waste of a task, in the unit times seconds"),
            number("waste_share", "Expected waste as a share of all that is held"),
            number("risk", "Share of the records that need more than the allocation"),
            number("risk_bound", "Upper bound of that share, with 95 % confidence"),
            Column::integer("tasks", "Number of records"),
            Column::integer("lower_bounds", "Number of records that are lower bounds"),
            Column::integer("unfinished", "Number of tasks that did not return 0"),
            Column::integer("unknown", "Number of tasks of which the value is not known"),
        ];
        let help = "Allocation of a resource for the next task of a class";
        Self { name: "task_estimates", help, columns, rows: estimates, archive }
    }
}

impl Table for OfClasses {
    fn name(&self) -> &str {
        self.name
    }

    fn help(&self) -> &str {
        self.help
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn scan(&self, scan: &Scan) -> Result<Rows, BoxError> {
        // A report names no user: all of them belong to the owner of the hub.
        may(scan.caller(), Action::ReadJob { owner: None, project: None })?;
        let archive = self.archive.as_deref().filter(|file| file.exists());
        let Some(archive) = archive.map(Archive::read).transpose()? else {
            // No report was archived yet.
            return Ok(Rows::each([]));
        };
        let mut classes = archive.classes(&Conditions::default())?;
        if let Some(wanted) = scan.texts("class") {
            classes.retain(|class| wanted.contains(&class.name.as_str()));
        }
        let (scan, rows) = (scan.clone(), self.rows);
        let columns: Vec<DataType> = self.columns.iter().map(|c| c.data_type().clone()).collect();
        Ok(Rows::each(classes.into_iter().map(move |class| {
            let batch = rows(&archive, &class, &scan)?;
            scan.select(&batch.finish(&columns))
        })))
    }

    /// The archive does not notify readers of a new report.
    fn fingerprint(&self, _scan: &Scan) -> Fingerprint {
        Fingerprint::Unknown
    }
}

/// A value of a row.
enum Cell<'c> {
    Text(&'c str),
    Count(u64),
    Number(Option<f64>),
}

/// Rows that are being made.
#[derive(Default)]
struct Batch(Vec<Vec<Option<Stored>>>);

/// A value without its lender.
enum Stored {
    Text(String),
    Count(i64),
    Number(f64),
}

impl Batch {
    fn push<const N: usize>(&mut self, cells: [Cell<'_>; N]) {
        let stored = |cell| match cell {
            Cell::Text(text) => Some(Stored::Text(text.to_owned())),
            Cell::Count(count) => Some(Stored::Count(i64::try_from(count).unwrap_or(i64::MAX))),
            Cell::Number(number) => number.map(Stored::Number),
        };
        self.0.push(cells.into_iter().map(stored).collect());
    }

    fn finish(self, types: &[DataType]) -> Vec<ArrayRef> {
        let array = |(at, of): (usize, &DataType)| -> ArrayRef {
            let cells = self.0.iter().map(|row| row.get(at).and_then(Option::as_ref));
            match of {
                DataType::Float64 => {
                    let mut all = Float64Builder::new();
                    cells.for_each(|cell| {
                        all.append_option(match cell {
                            Some(Stored::Number(number)) => Some(*number),
                            _ => None,
                        });
                    });
                    Arc::new(all.finish())
                }
                DataType::Int64 => {
                    let mut all = Int64Builder::new();
                    cells.for_each(|cell| {
                        all.append_option(match cell {
                            Some(Stored::Count(count)) => Some(*count),
                            _ => None,
                        });
                    });
                    Arc::new(all.finish())
                }
                _ => {
                    let mut all = StringBuilder::new();
                    cells.for_each(|cell| {
                        all.append_option(match cell {
                            Some(Stored::Text(text)) => Some(text),
                            _ => None,
                        });
                    });
                    Arc::new(all.finish())
                }
            }
        };
        types.iter().enumerate().map(array).collect()
    }
}

/// Returns the resources that a statement asks about.
fn wanted(scan: &Scan) -> impl Iterator<Item = &'static Resource> {
    let named = scan.texts("resource");
    let is_named = |of: &Resource| named.as_ref().is_none_or(|named| named.contains(&of.name));
    let wanted: Vec<&'static Resource> = RESOURCES.iter().filter(|of| is_named(of)).collect();
    wanted.into_iter()
}

fn stats(archive: &Archive, class: &Class, scan: &Scan) -> Result<Batch, BoxError> {
    let mut batch = Batch::default();
    for (node, of_node) in archive.usage(&class.name, &Conditions::default())? {
        for resource in wanted(scan) {
            let Some(usage) = of_node.get(resource.name) else { continue };
            let Usage { distribution, lower_bounds, unknown } = usage;
            let moments = &distribution.moments;
            let quantile = |q| Cell::Number(distribution.quantile(q));
            batch.push([
                Cell::Text(&class.name),
                Cell::Text(&node),
                Cell::Text(resource.name),
                Cell::Text(resource.unit),
                Cell::Count(moments.count()),
                Cell::Count(*lower_bounds),
                Cell::Count(*unknown),
                Cell::Number(moments.mean()),
                Cell::Number(moments.deviation()),
                Cell::Number(moments.min()),
                quantile(0.5),
                quantile(0.95),
                quantile(0.99),
                Cell::Number(moments.max()),
            ]);
        }
    }
    Ok(batch)
}

fn estimates(archive: &Archive, class: &Class, scan: &Scan) -> Result<Batch, BoxError> {
    let (mut batch, all) = (Batch::default(), Conditions::default());
    for resource in wanted(scan) {
        let found: Records = match resource.name {
            // A limit on memory counts resident memory and files of tmpfs.
            MEMORY => archive.memory_records(&class.name, Keeper::Samples, &all, None)?,
            _ => archive.records(&class.name, resource, &all, None)?,
        };
        for (goal, minimize) in [("waste", Minimize::Waste), ("retries", Minimize::Retries)] {
            let Some(of) = estimate_from(&found.evidence, minimize, MAX_RISK) else { continue };
            batch.push([
                Cell::Text(&class.name),
                Cell::Text(resource.name),
                Cell::Text(resource.unit),
                Cell::Text(goal),
                Cell::Number(Some(of.allocation)),
                Cell::Number(Some(of.maximum)),
                Cell::Number(Some(of.waste)),
                Cell::Number(Some(of.waste_share)),
                Cell::Number(Some(of.risk)),
                Cell::Number(Some(of.risk_bound)),
                Cell::Count(of.count as u64),
                Cell::Count(found.lower_bounds),
                Cell::Count(found.unfinished),
                Cell::Count(found.unknown),
            ]);
        }
    }
    Ok(batch)
}
