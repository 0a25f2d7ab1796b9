//! `--limit`: parses and checks the limits of a task.

use skopos_model::nearest_name;
use skopos_model::task::{Limit, LimitError, Limits, RESOURCES, Resource, amount};

use skopos_term::Failure;

/// Resources that can be limited because their value is known while the task runs.
const LIMITED: [&str; 13] = [
    "wall_seconds",
    "cpu_seconds",
    "cores",
    "processes_max",
    "threads_max",
    "resident_bytes_max",
    "pss_bytes_max",
    "virtual_bytes_max",
    "swap_bytes_max",
    "read_bytes",
    "written_bytes",
    "files",
    "footprint_bytes",
];

/// Resources that are counted in whole pages.
const IN_PAGES: [&str; 3] = ["resident_bytes_max", "pss_bytes_max", "virtual_bytes_max"];

/// Resources of which every task has at least one.
const AT_LEAST_ONE: [&str; 2] = ["processes_max", "threads_max"];

/// A size without a unit up to this number was meant in GiB, a larger one in MiB.
const GIBIBYTES: f64 = 64.0;

/// The word in `--limit` that asks for an estimate.
pub(super) const AUTO: &str = "auto";

/// Returns the limits without the word.
fn without(text: &str) -> Option<String> {
    let rest: Vec<&str> = text.split(',').filter(|part| part.trim() != AUTO).collect();
    (!rest.is_empty()).then(|| rest.join(","))
}

/// The limits in all values of the option.
///
/// # Errors
/// The first wrong limit, with a hint.
pub(super) fn typed(texts: &[String]) -> Result<Limits, Failure> {
    let mut limits = Limits::default();
    for text in texts {
        let Some(text) = without(text) else { continue };
        let more = Limits::parse(&text).map_err(|e| wrong_limit(&e))?;
        for limit in more.iter() {
            if !LIMITED.contains(&limit.resource.name) {
                return Err(Failure::new(format!("`{}` cannot be limited", limit.resource.name))
                    .hint(format!("it is known only at the end; possible limits: {}", names())));
            }
            may_be_kept(limit, rustix::param::page_size() as f64)?;
            limits.add(limit).map_err(|e| wrong_limit(&e))?;
        }
    }
    Ok(limits)
}

/// Refuses a limit that would end every task at once, because it was mistyped.
fn may_be_kept(limit: Limit, page: f64) -> Result<(), Failure> {
    let Limit { resource, most } = limit;
    if IN_PAGES.contains(&resource.name) && most < page {
        let unit = if most <= GIBIBYTES { "GiB" } else { "MiB" };
        let said = format!("--limit: {limit} is less than one page ({})", amount(page, "bytes"));
        let meant = format!("did you mean `{}={most}{unit}`?", resource.short());
        return Err(Failure::new(said).hint(meant));
    }
    if AT_LEAST_ONE.contains(&resource.name) && most < 1.0 {
        return Err(Failure::new(format!("--limit: {limit} is less than the task itself"))
            .hint(format!("the least is `{}=1`", resource.short())));
    }
    Ok(())
}

pub(super) fn wrong_limit(e: &LimitError) -> Failure {
    let failure = Failure::new(format!("--limit: {e}"));
    match e {
        LimitError::Unknown(name) => {
            let names = || RESOURCES.iter().filter(|r| LIMITED.contains(&r.name));
            let names = names().flat_map(|r| [r.alias, r.name]);
            match nearest_name(name, names) {
                Some(nearest) => failure.hint(format!("did you mean `{nearest}`?")),
                None => failure.hint(format!("possible limits: {}", self::names())),
            }
        }
        _ => failure,
    }
}

/// The names of resources that can be limited, short where a short name exists.
fn names() -> String {
    let limited = RESOURCES.iter().filter(|r| LIMITED.contains(&r.name));
    limited.map(Resource::short).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_ends_every_task_at_once_is_refused_with_a_hint() {
        for (text, said) in [
            ("memory=4", Some("did you mean `memory=4GiB`?")),
            ("pss=1.5", Some("did you mean `pss=1.5GiB`?")),
            ("virtual=500", Some("did you mean `virtual=500MiB`?")),
            ("memory=4095", Some("did you mean `memory=4095MiB`?")),
            ("memory=4096", None),
            ("written_bytes=4,swap_bytes_max=1", None),
            ("processes=0.5", Some("the least is `processes=1`")),
            ("threads=1,processes=1", None),
        ] {
            let wrong = Limits::parse(text).expect("limits").iter().find_map(|limit| {
                let failure = may_be_kept(limit, 4096.0).err()?;
                Some(format!("{failure:?}"))
            });
            let is_as_expected = match (&wrong, said) {
                (Some(wrong), Some(said)) => wrong.contains(said),
                (wrong, said) => wrong.is_none() && said.is_none(),
            };
            assert!(is_as_expected, "{text}: {wrong:?}");
        }
    }
}
