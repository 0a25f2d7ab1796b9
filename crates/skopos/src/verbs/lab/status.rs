//! `skopos lab status`: lists the labs of this machine.

use std::process::ExitCode;

use skopos_net::lab::labs;
use skopos_term::{Failure, Global, Out, Style};

use super::shown::look;

pub(super) fn run(global: &Global) -> Result<ExitCode, Failure> {
    let mut out = Out::new(global.style());
    let labs = labs();
    for name in &labs {
        look(name).print(&mut out)?;
    }
    if labs.is_empty() && out.style == Style::Human {
        out.line("there is no lab; `skopos lab up --example` builds one")?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
