//! `skopos rank replay`: recorded requests under another profile.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use skopos_agent::config::{Config, parse};
use skopos_model::{duration, nearest_name};
use skopos_steer::Error;
use skopos_steer::rank::Profile;
use skopos_steer::rank::replay::{Replayed, replay};
use skopos_term::{Failure, Global, Out, Style};

/// The longest recording: four times the default size of a file.
const MAX_BYTES: u64 = 512 << 20;

/// The hint for a recording that cannot be read.
const RECORDED_BY: &str = "`record` in `[[rank]]` names the file of an agent";

/// The longest file of a profile.
const MAX_PROFILE_BYTES: u64 = 1 << 20;

/// The seed of the order of candidates with equal scores.
const SEED: u64 = 1;

/// Effective requests below which the interval means little.
const ENOUGH: f64 = 30.0;

#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// Recording of an agent: the file of `record` in `[[rank]]`
    #[arg(long, value_name = "FILE")]
    recorded: PathBuf,
    /// Profile: a TOML file, or the name of a profile in the configuration
    #[arg(long)]
    profile: String,
    /// Configuration with the profile [default: as of `skopos agent`]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// `docs/json/rank_replay.schema.json`.
#[derive(Serialize)]
struct ReplayJson<'a> {
    profile: &'a str,
    requests: usize,
    recorded_seconds: f64,
    estimated_seconds: Option<f64>,
    interval_seconds: Option<[f64; 2]>,
    chosen_otherwise: usize,
    effective: f64,
    cut: usize,
    torn: bool,
}

pub(super) fn run(global: &Global, args: &ReplayArgs) -> Result<ExitCode, Failure> {
    let profile = profile(args)?;
    let name = profile.name.clone();
    profile.check().map_err(|e| failed(&args.profile, &e))?;
    let recording = read(&args.recorded, MAX_BYTES, RECORDED_BY)?;
    let recorded = args.recorded.display().to_string();
    let replayed = replay(&recording, profile, SEED).map_err(|e| failed(&recorded, &e))?;
    if replayed.requests == 0 {
        return Err(Failure::no(format!("{recorded} has no whole request"))
            .hint("an agent records the outcomes that clients report"));
    }
    let mut out = Out::new(global.style());
    let Replayed { requests, chosen_otherwise, effective, cut, torn, .. } = replayed;
    let (recorded, estimated) = (replayed.recorded_cost, replayed.estimated_cost);
    match out.style {
        Style::Json => out.json(&ReplayJson {
            profile: &name,
            requests,
            recorded_seconds: recorded,
            estimated_seconds: estimated,
            interval_seconds: replayed.interval.map(|(low, high)| [low, high]),
            chosen_otherwise,
            effective,
            cut,
            torn,
        })?,
        Style::Plain => {
            let estimated = estimated.map_or_else(|| "-".to_owned(), |cost| cost.to_string());
            out.line(format!("{requests}\t{recorded}\t{estimated}\t{chosen_otherwise}"))?;
        }
        Style::Human => human(&mut out, &name, &replayed)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn human(out: &mut Out, name: &str, replayed: &Replayed) -> Result<(), Failure> {
    let requests = replayed.requests;
    let torn = if replayed.torn { "; the last line is incomplete and left out" } else { "" };
    out.line(format!("{requests} requests{torn}"))?;
    out.line(format!("recorded: {} in the mean", seconds(replayed.recorded_cost)))?;
    match (replayed.estimated_cost, replayed.interval) {
        (Some(cost), Some((low, high))) => out.line(format!(
            "with `{name}`: {}, between {} and {} with 95 %",
            seconds(cost),
            seconds(low),
            seconds(high)
        ))?,
        _ => {
            out.line(format!("with `{name}`: not known, because it chooses none of the choices"))?
        }
    }
    let otherwise = replayed.chosen_otherwise;
    out.line(format!("`{name}` puts another candidate first in {otherwise} of {requests}"))?;
    if replayed.effective < ENOUGH {
        let effective = replayed.effective;
        out.line(format!("few requests are like those of `{name}` ({effective:.0}): record more"))?;
    }
    if replayed.cut > 0 {
        out.line(format!("{} requests count less than their ratio says", replayed.cut))?;
    }
    Ok(())
}

fn seconds(seconds: f64) -> String {
    duration::human(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// Describes an error of a recording or of a profile.
fn failed(place: &str, e: &Error) -> Failure {
    let failure = Failure::new(place).because(e);
    match e.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// Reads the profile from its file, or from the configuration.
fn profile(args: &ReplayArgs) -> Result<Profile, Failure> {
    let path = Path::new(&args.profile);
    if path.exists() {
        let text = read(path, MAX_PROFILE_BYTES, "it has the entries of `[rank.profile]`")?;
        return parse(&text, Some(path));
    }
    let config = Config::load(args.config.as_deref())?;
    let names = || config.rank.iter().map(|rank| rank.profile.name.as_str());
    match config.rank.iter().find(|rank| rank.profile.name == args.profile) {
        Some(rank) => Ok(rank.profile.clone()),
        None => {
            let failure = Failure::new(format!(
                "`{}` is neither a file nor a profile of the configuration",
                args.profile
            ));
            Err(match nearest_name(args.profile.as_str(), names()) {
                Some(nearest) => failure.hint(format!("did you mean `{nearest}`?")),
                None => failure
                    .hint("a profile is a table `[rank.profile]`, or a file with its entries"),
            })
        }
    }
}

/// Reads a text file of limited length.
fn read(path: &Path, max_bytes: u64, hint: &str) -> Result<String, Failure> {
    let failed = |e: &io::Error| {
        Failure::new(format!("cannot read {}", path.display())).because(e).hint(hint)
    };
    let mut text = String::new();
    let file = File::open(path).map_err(|e| failed(&e))?;
    file.take(max_bytes + 1).read_to_string(&mut text).map_err(|e| failed(&e))?;
    if text.len() as u64 > max_bytes {
        return Err(Failure::new(format!("{} has more than {max_bytes} bytes", path.display()))
            .hint("replay a part of it: the first line and some of the others"));
    }
    Ok(text)
}
