//! Prints the findings of a folder of traces as JSON: `cargo run -p skopos-rpc --example findings -- FOLDER`.
//!
//! `bench/slowed/slowed.py` makes folders to try it on: a service of another project that is slowed in five ways.

use skopos_rpc::analysis::finding::{NodeFacts, judge};
use skopos_rpc::analysis::trace::Trace;
use skopos_rpc::folder::Folder;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: findings FOLDER")?;
    let loader = Folder::open(folder.as_ref())?;
    let trace = Trace::open(&loader)?;
    let findings = judge(&trace, &NodeFacts::default())?;
    println!("{}", serde_json::to_string_pretty(&findings)?);
    Ok(())
}
