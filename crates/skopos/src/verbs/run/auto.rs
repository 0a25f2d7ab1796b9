//! `--limit auto`: memory as the archive's records of the class suggest, and once more with the
//! maximum if that was too little.
//!
//! A second attempt is made only if the first leaves nothing behind that it would need: standard input
//! is read from where it began if it is a file, and a pipe cannot be read twice. What the first attempt
//! wrote stays written.

use std::path::Path;

use rustix::fs::{FileType, fstat};
use skopos_model::task::{Finding, Limit, Limits, amount, resource};
use skopos_store::archive::{Archive, Conditions, Error};
use skopos_store::estimate::{Minimize, estimate, rounded};
use skopos_task::{Order, Outcome};

use super::RunArgs;
use skopos_term::Failure;
use skopos_term::state;
use skopos_term::tell;

use crate::verbs;

/// The word in `--limit`.
const AUTO: &str = "auto";

/// What is limited.
const MEMORY: &str = "resident_bytes_max";

/// Below this many records nothing is limited: of ten tasks that are alike the next one exceeds all
/// with a probability of one in eleven.
const MIN_RECORDS: usize = 10;

/// At most so many of the records may need more: what a task does outside of itself it does twice.
const MAX_RISK: f64 = 0.1;

/// The folder of the first attempt's report, in that of the second one.
const FIRST: &str = "attempt-1";

/// What to do if the first limit was too little.
pub(super) struct Auto {
    /// In bytes.
    maximum: f64,
    input: Input,
}

/// Whether standard input can be read again.
enum Input {
    /// A terminal, or nothing.
    Same,
    /// A file, from here on.
    From(u64),
    /// A pipe or a socket: what was read is gone.
    Gone,
}

/// The limits without the word, if any are left.
pub(super) fn without(text: &str) -> Option<String> {
    let rest: Vec<&str> = text.split(',').filter(|part| part.trim() != AUTO).collect();
    (!rest.is_empty()).then(|| rest.join(","))
}

/// Adds what the archive suggests to the order, if that is wanted.
///
/// # Errors
/// The archive is there and cannot be read.
pub(super) fn plan(args: &RunArgs, order: &mut Order) -> Result<Option<Auto>, Failure> {
    let mut words = args.limits.iter().flat_map(|text| text.split(','));
    if !words.any(|word| word.trim() == AUTO) || order.limits.of(MEMORY).is_some() {
        return Ok(None);
    }
    if order.attach.is_some() {
        return Err(Failure::new("--limit auto runs a task twice, and --attach starts none")
            .hint("name the limit: `skopos estimate CLASS` says what it would be"));
    }
    let class = class(order);
    let Some(memory) = resource(MEMORY) else { return Ok(None) };
    let Some(path) = args.archive.clone().flatten().or_else(state::archive) else {
        tell("skopos: --limit auto: nothing tells where the archive is: memory is not limited");
        return Ok(None);
    };
    let records = match Archive::open(&path) {
        Err(Error::Missing(_)) => Vec::new(),
        opened => {
            let found = opened.and_then(|a| a.records(&class, memory, &Conditions::default()));
            found.map_err(|e| verbs::archive::failure(&e))?.records
        }
    };
    let Some(chosen) =
        estimate(&records, Minimize::Waste, MAX_RISK).filter(|e| e.count >= MIN_RECORDS)
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
    // There is more to give than the first limit, also where all tasks so far used the same.
    let maximum = if seen > first { seen } else { 2.0 * first };
    let limit = Limit { resource: memory, most: first };
    order.limits.add(limit).map_err(|e| super::limits::wrong_limit(&e))?;
    Ok(Some(Auto { maximum, input: Input::here() }))
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

    /// True if a second attempt can read what the first one read.
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
    /// The order of the second attempt, if the first one ended for want of memory.
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
            // Each was added once before.
            limits.add(Limit { most, ..limit }).ok()?;
        }
        let most = amount(self.maximum, memory.unit);
        let ended = outcome.summary.ended.limits.join(", ");
        tell(format!("skopos: {ended}: once more with {most}"));
        Some(Order { limits, ..order.clone() })
    }
}

/// The first attempt's report, beside the one that is to come.
pub(super) fn keep_first(place: Option<&Path>, outcome: &Outcome) {
    let Some(place) = place.map(|place| place.join(FIRST)) else { return };
    let written = std::fs::create_dir_all(&place).and_then(|()| super::written(&place, outcome));
    if let Err(e) = written {
        tell(format!("skopos: the report could not be written to {}: {e}", place.display()));
    }
}

/// The second attempt, whose report says that it is one.
pub(super) fn second(mut outcome: Outcome, first: &Outcome) -> Outcome {
    let ended = first.summary.ended.limits.join(", ");
    outcome.summary.findings.insert(
        0,
        Finding {
            what: format!("this is the second attempt: the first one was ended for {ended}"),
            advice: "what the first one wrote is still there; `skopos estimate` shows how often a \
                     task of this class needs more"
                .to_owned(),
        },
    );
    outcome
}

/// As the report will have it.
fn class(order: &Order) -> String {
    let program = order.command.first().map(|c| c.to_string_lossy().into_owned());
    let name =
        program.and_then(|p| Some(Path::new(&p).file_name()?.to_string_lossy().into_owned()));
    order.class.clone().or(name).unwrap_or_default()
}
