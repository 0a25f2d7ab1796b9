//! `--limit auto`: limits memory to the estimate from the archive's records of the class, and runs the task
//! once more with the maximum if the estimate was too small. The estimate is of what the limit counts: the
//! charge of the control group where the kernel enforces it, and resident memory with files of tmpfs where
//! samples do.
//!
//! A second attempt needs the same standard input: a file is read again from the position at which the
//! first attempt began, and a pipe cannot be read twice. Files that the first attempt wrote stay as they are.

use std::path::{Path, PathBuf};

use rustix::fs::{FileType, fstat};
use skopos_model::task::{Finding, Limit, Limits, amount, resource};
use skopos_store::archive::{Archive, Conditions, Error, Keeper, Records};
use skopos_store::estimate::{Minimize, estimate_from, rounded};
use skopos_task::{Order, Outcome};

use super::files;
use super::limits::{AUTO, wrong_limit};
use skopos_term::Failure;
use skopos_term::state;
use skopos_term::tell;

use crate::verbs;

/// The resource that is limited.
const MEMORY: &str = "resident_bytes_max";

/// The fewest records for a limit. Among eleven similar tasks, the last exceeds the ten before with a
/// probability of one in eleven.
const MIN_RECORDS: usize = 10;

/// The largest share of records that may need more: a task that runs twice repeats its external effects.
const MAX_RISK: f64 = 0.1;

/// The mechanism that has the kernel enforce limits.
const CGROUP: &str = "cgroup";

/// The folder of the first attempt's report, inside the folder of the second.
const FIRST: &str = "attempt-1";

/// The plan for a second attempt, if the first limit was too small.
pub(super) struct Auto {
    /// In bytes.
    maximum: f64,
    input: Input,
}

/// The possibility to read standard input again.
enum Input {
    /// Standard input is a terminal, or empty.
    Same,
    /// Standard input is a file, read from this position on.
    From(u64),
    /// Standard input is a pipe or a socket, so the data that was read is gone.
    Gone,
}

/// Adds the estimate to the order, if `--limit auto` is among the values `typed`. `archive` replaces
/// the default archive.
///
/// # Errors
/// The archive exists and cannot be read.
pub(super) fn plan(
    typed: &[String],
    archive: Option<PathBuf>,
    order: &mut Order,
) -> Result<Option<Auto>, Failure> {
    let mut words = typed.iter().flat_map(|text| text.split(','));
    if !words.any(|word| word.trim() == AUTO) || order.limits.of(MEMORY).is_some() {
        return Ok(None);
    }
    if order.attach.is_some() {
        return Err(Failure::new(
            "--limit auto may run a task twice, and --attach does not start a task",
        )
        .hint("name the limit: `skopos estimate CLASS` prints the estimate"));
    }
    let class = class(order);
    let Some(memory) = resource(MEMORY) else { return Ok(None) };
    let Some(path) = archive.or_else(state::archive) else {
        tell("skopos: --limit auto: the place of the archive is unknown, so memory is not limited");
        return Ok(None);
    };
    let kept_by = if is_kept_by_kernel(order) { Keeper::Kernel } else { Keeper::Samples };
    let Records { records, evidence, .. } = match Archive::open(&path) {
        Err(Error::Missing(_)) => Records::default(),
        opened => {
            let conditions = Conditions::default();
            let found = opened.and_then(|a| a.memory_records(&class, kept_by, &conditions, None));
            found.map_err(|e| verbs::archive::failure(&e))?
        }
    };
    let Some(chosen) =
        estimate_from(&evidence, Minimize::Waste, MAX_RISK).filter(|e| e.count >= MIN_RECORDS)
    else {
        tell(format!(
            "skopos: --limit auto: {} records of `{class}` in {}, and {MIN_RECORDS} are needed: \
             memory is not limited",
            records.len(),
            path.display()
        ));
        return Ok(None);
    };
    let first = rounded(chosen.allocation);
    let seen = rounded(chosen.maximum);
    // The second limit exceeds the first even if all tasks so far used the same.
    let maximum = if seen > first { seen } else { 2.0 * first };
    let limit = Limit { resource: memory, most: first };
    order.limits.add(limit).map_err(|e| wrong_limit(&e))?;
    Ok(Some(Auto { maximum, input: Input::here() }))
}

/// True if the kernel will enforce a limit on memory.
fn is_kept_by_kernel(order: &Order) -> bool {
    let is_allowed = order.only.as_ref().is_none_or(|only| only.iter().any(|name| name == CGROUP));
    is_allowed && skopos_task::kernel_keeps_memory()
}

impl Input {
    fn here() -> Self {
        let kind = fstat(std::io::stdin()).map(|s| FileType::from_raw_mode(s.st_mode));
        match kind {
            Ok(FileType::RegularFile) => match rustix::fs::tell(std::io::stdin()) {
                Ok(at) => Self::From(at),
                Err(_) => Self::Gone,
            },
            Ok(FileType::CharacterDevice) | Err(_) => Self::Same,
            Ok(_) => Self::Gone,
        }
    }

    /// Returns true if a second attempt can read the same input.
    fn is_back(&self) -> bool {
        match self {
            Self::Same => true,
            Self::From(at) => {
                rustix::fs::seek(std::io::stdin(), rustix::fs::SeekFrom::Start(*at)).is_ok()
            }
            Self::Gone => false,
        }
    }
}

impl Auto {
    /// Returns the order of the second attempt, if the first ended for lack of memory.
    pub(super) fn again(&self, order: &Order, outcome: &Outcome) -> Option<Order> {
        let memory = resource(MEMORY)?;
        if !outcome.crossings.iter().any(|crossing| crossing.limit.resource == memory) {
            return None;
        }
        if !self.input.is_back() {
            tell("skopos: not run again: its standard input is a pipe, and cannot be read twice");
            return None;
        }
        let mut limits = Limits::default();
        for limit in order.limits.iter() {
            let most = if limit.resource.name == MEMORY { self.maximum } else { limit.most };
            // Each limit was accepted before.
            limits.add(Limit { most, ..limit }).ok()?;
        }
        let most = amount(self.maximum, memory.unit);
        let ended = outcome.summary.ended.limits.join(", ");
        tell(format!("skopos: {ended}: once more with {most}"));
        Some(Order { limits, ..order.clone() })
    }
}

/// Writes the first attempt's report into the folder of the second.
pub(super) fn keep_first(place: Option<&Path>, outcome: &Outcome) {
    let Some(place) = place.map(|place| place.join(FIRST)) else { return };
    let written =
        std::fs::create_dir_all(&place).and_then(|()| files::write_or_error(&place, outcome));
    if let Err(e) = written {
        tell(format!("skopos: the report could not be written to {}: {e}", place.display()));
    }
}

/// Runs the second attempt, and states in its report that it is the second.
pub(super) fn second(mut outcome: Outcome, first: &Outcome) -> Outcome {
    let ended = first.summary.ended.limits.join(", ");
    outcome.summary.findings.insert(
        0,
        Finding {
            what: format!("this is the second attempt: the first was ended because of {ended}"),
            advice: "what the first one wrote is still there; `skopos estimate` shows how often a \
                     task of this class needs more"
                .to_owned(),
        },
    );
    outcome
}

/// Returns the class that the report will name.
fn class(order: &Order) -> String {
    let program = order.command.first().map(|c| c.to_string_lossy().into_owned());
    let name =
        program.and_then(|p| Some(Path::new(&p).file_name()?.to_string_lossy().into_owned()));
    order.class.clone().or(name).unwrap_or_default()
}
