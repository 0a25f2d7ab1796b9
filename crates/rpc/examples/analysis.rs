//! Measures analyses on a synthetic trace: `cargo run --release -p skopos-rpc --example analysis -- 1000000`.
//!
//! The argument is the number of records, of which each request has 16.

use std::time::Instant;

use skopos_rpc::analysis::loader::{Loader as _, MemoryLoader};
use skopos_rpc::analysis::request::list::{Filter, requests};
use skopos_rpc::analysis::trace::Trace;
use skopos_rpc::analysis::{critical, finding, profile, system};
use skopos_rpc::export::{otlp, perfetto, zipkin};
use skopos_rpc::synthetic::Service;

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

fn measure<T>(name: &str, amount: f64, work: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let result = work();
    let seconds = begin.elapsed().as_secs_f64();
    println!("{name:<16} {seconds:>8.3} s  {:>12.0} a second", amount / seconds);
    result
}

fn main() -> Result<(), skopos_rpc::Error> {
    let records: u64 =
        std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(1_000_000);
    let loader: MemoryLoader = Service { requests: records / 16, ..Service::default() }.trace();
    let before = resident_bytes();
    let trace = measure("open", records as f64, || Trace::open(&loader))?;
    let counts = trace.counts();
    let (all, spans) = (counts.records as f64, counts.origins + counts.targets);
    println!("{} records, {spans} sides, {} bytes of files", counts.records, loader.bytes());
    measure("profile", all, || profile::profile(&trace))?;
    measure("system", all, || system::system(&trace, 60))?;
    println!("streaming took {} bytes more", resident_bytes() - before);
    measure("requests", all, || requests(&trace, &Filter::default()))?;
    println!("requests took {} bytes more", resident_bytes() - before);
    measure("show", all, || skopos_rpc::analysis::request::show::show(&trace, "a"))?;
    measure("critical path", all, || critical::critical_paths(&trace, &Default::default()))?;
    measure("findings", all, || finding::judge(&trace, &Default::default()))?;
    println!("findings took {} bytes more", resident_bytes() - before);
    let sides = spans as f64;
    measure("zipkin", sides, || zipkin::zipkin(&trace, &mut std::io::sink()))?;
    measure("otlp json", sides, || otlp::otlp_json(&trace, &mut std::io::sink()))?;
    measure("otlp protobuf", sides, || otlp::otlp_protobuf(&trace, |_| Ok(())))?;
    measure("perfetto", sides, || perfetto::perfetto(&trace, &mut std::io::sink()))?;
    println!("{} bytes resident, {} of them files", resident_bytes(), loader.bytes());
    Ok(())
}
