//! Builds a lab from a file, runs a command in it or waits, and removes it.
//!
//! ```text
//! lab up FILE                     waits for Ctrl-C, then removes the lab
//! lab up FILE -- PROGRAM WORDS    runs a program, whose variable SKOPOS_LAB names the lab
//! lab down NAME                   removes what a killed process left
//! ```

use std::env;
use std::error::Error;
use std::fs;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use skopos_net::lab::{Lab, Topology, down};

const USAGE: &str = "usage: lab up FILE [-- PROGRAM WORDS] | lab down NAME";

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            let mut next = error.source();
            while let Some(cause) = next {
                eprintln!("  {cause}");
                next = cause.source();
            }
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<ExitCode, Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["up", file] => up(file, &[]),
        ["up", file, "--", ref program @ ..] => up(file, program),
        ["down", name] => {
            down(name)?;
            Ok(ExitCode::SUCCESS)
        }
        _ => Err(USAGE.into()),
    }
}

fn up(file: &str, program: &[&str]) -> Result<ExitCode, Box<dyn Error>> {
    // Before the lab is built, so that a signal in between is not lost.
    let (mut signal, writer) = UnixStream::pair()?;
    for number in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::low_level::pipe::register(number, writer.try_clone()?)?;
    }
    let lab = Lab::up(Topology::parse(&fs::read_to_string(file)?)?)?;
    let topology = lab.topology();
    for host in &topology.hosts {
        let (v4, v6) = lab.addresses(&host.name)?;
        println!("host {}: {v4} {v6}, namespace skopos-{}-{}", host.name, topology.name, host.name);
    }
    for disk in &topology.disks {
        println!("disk {} of {}: {}", disk.name, disk.host, lab.disk(&disk.name)?.display());
    }
    let code = match program {
        [] => {
            println!("Ctrl-C removes the lab");
            signal.read_exact(&mut [0])?;
            ExitCode::SUCCESS
        }
        [program, words @ ..] => {
            let status =
                Command::new(program).args(words).env("SKOPOS_LAB", &topology.name).status()?;
            status.code().map_or(ExitCode::FAILURE, |code| ExitCode::from(code as u8))
        }
    };
    lab.down()?;
    Ok(code)
}
