//! `skopos lab down`: removes a lab.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::Signal;
use skopos_net::lab::{down, labs, state_folder};
use skopos_term::{Failure, Global, Out};

use super::claim::{Claim, Holder, is_claimed};
use super::place::{failed, need_root};

/// Time for the process of a lab to remove it: it waits for agents and disks.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug, Args)]
pub(crate) struct DownArgs {
    /// The lab; all labs of this machine unless named
    name: Option<String>,
}

pub(super) fn run(global: &Global, args: &DownArgs) -> Result<ExitCode, Failure> {
    need_root("to remove a lab")?;
    let names = match &args.name {
        Some(name) => {
            check(name)?;
            vec![name.clone()]
        }
        None => labs(),
    };
    let mut out = Out::new(global.style());
    for name in &names {
        // A lab that is being built may have a claim alone.
        let was_there = labs().contains(name) || state_folder(name).exists() || is_claimed(name);
        end_holder(name)?;
        // No `lab up` of this name begins before all is gone.
        let _claim = Claim::take(name)?;
        down(name).map_err(|e| {
            failed(&e)
                .hint("a program that keeps a file of its disk open holds a lab: end it first")
        })?;
        if !global.json {
            out.line(match was_there {
                true => format!("the lab `{name}` is removed"),
                false => format!("there is no lab `{name}`"),
            })?;
        }
    }
    if names.is_empty() && !global.json {
        out.line("there is no lab")?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses a name that no lab can have: it becomes a part of paths.
fn check(name: &str) -> Result<(), Failure> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if !name.is_empty() && name.chars().all(good) {
        return Ok(());
    }
    Err(Failure::new(format!("`{name}` is not the name of a lab"))
        .hint("`skopos lab status` lists the labs of this machine"))
}

/// Has the process that holds a lab remove it.
fn end_holder(name: &str) -> Result<(), Failure> {
    let since = Instant::now();
    let mut told = None;
    while is_claimed(name) {
        if told.is_none()
            && let Some(holder) = Holder::of(name)
        {
            holder.signal(Signal::TERM);
            told = Some(holder.pid);
        }
        if since.elapsed() >= PATIENCE {
            let by = told.map_or_else(|| "a process".to_owned(), |pid| format!("process {pid}"));
            let failure = Failure::new(format!("{by} holds the lab `{name}` and does not end"));
            return Err(match told {
                Some(pid) => failure.hint(format!("kill -9 {pid}; skopos lab down {name}")),
                None => failure.hint(format!("try again: skopos lab down {name}")),
            });
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}
