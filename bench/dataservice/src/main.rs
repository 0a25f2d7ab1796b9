//! `skopos-dataservice`: the service, its cases, and measurements of the overhead of watching it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    skopos_dataservice::program::run(std::env::args_os(), None)
}
