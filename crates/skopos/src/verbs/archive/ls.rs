//! `skopos archive ls`: lists the classes of tasks.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use skopos_model::duration;

use super::place::{Place, Selection, failure};
use skopos_term::Failure;
use skopos_term::Global;
use skopos_term::{Out, Style};

#[derive(Debug, Args)]
pub(super) struct LsArgs {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    place: Place,
}

/// `docs/json/archive_ls.schema.json`, a list of these.
#[derive(Serialize)]
struct ClassJson<'a> {
    class: &'a str,
    tasks: u64,
    hosts: u64,
    from_seconds: f64,
    to_seconds: f64,
}

pub(super) fn run(global: &Global, args: &LsArgs) -> Result<ExitCode, Failure> {
    let conditions = args.selection.conditions()?;
    let classes = args.place.open()?.classes(&conditions).map_err(|e| failure(&e))?;
    let mut out = Out::new(global.style());
    match out.style {
        Style::Json => {
            let rows = classes.iter().map(|c| ClassJson {
                class: &c.name,
                tasks: c.tasks,
                hosts: c.hosts,
                from_seconds: c.from_seconds,
                to_seconds: c.to_seconds,
            });
            out.json(&rows.collect::<Vec<_>>())?;
        }
        Style::Plain => {
            for c in &classes {
                let (from, to) = (c.from_seconds, c.to_seconds);
                out.line(format!("{}\t{}\t{}\t{from}\t{to}", c.name, c.tasks, c.hosts))?;
            }
        }
        Style::Human => {
            let span = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default();
            let mut rows = vec![["class", "tasks", "hosts", "within"].map(str::to_owned).to_vec()];
            rows.extend(classes.iter().map(|c| {
                let within = duration::human(span(c.to_seconds - c.from_seconds));
                vec![c.name.clone(), c.tasks.to_string(), c.hosts.to_string(), within]
            }));
            out.table(&rows, &[1, 2])?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
