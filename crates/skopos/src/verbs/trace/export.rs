//! `skopos trace export`: a trace for other programs.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use skopos_rpc::Error;
use skopos_rpc::analysis::profile::profile;
use skopos_rpc::analysis::trace::Trace;
use skopos_rpc::export::Exported;
use skopos_rpc::export::folded::folded;
use skopos_rpc::export::otlp::{otlp_json, otlp_protobuf};
use skopos_rpc::export::perfetto::perfetto;
use skopos_rpc::export::zipkin::zipkin;
use skopos_rpc::folder::Folder;
use skopos_term::{Failure, Global, Out, Style, tell};

use super::place::{failed, opened};

/// Time for one batch of a thousand spans; a collector that takes longer has stopped.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The formats of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// Zipkin v2 JSON, which Zipkin, Jaeger and Tempo read
    #[default]
    Zipkin,
    /// OTLP JSON, a request on each line
    Otlp,
    /// Chrome's trace JSON, which ui.perfetto.dev opens
    Perfetto,
    /// Folded stacks, for flame graphs
    Folded,
}

pub(super) fn run(
    global: &Global,
    folder: &Folder,
    form: Form,
    out: Option<&Path>,
) -> Result<ExitCode, Failure> {
    refuse_json(global)?;
    let trace = opened(folder)?;
    let write = |sink: &mut dyn Write| match form {
        Form::Zipkin => zipkin(&trace, sink),
        Form::Otlp => otlp_json(&trace, sink),
        Form::Perfetto => perfetto(&trace, sink),
        Form::Folded => {
            let written = folded(&profile(&trace)?, sink);
            let bytes = written?;
            Ok(Exported { spans: trace.counts().origins + trace.counts().targets, bytes })
        }
    };
    match out {
        None => {
            let mut stdout = Out::new(global.style());
            write(stdout.writer()).map_err(|e| broken(&e))?;
            stdout.flush()?;
        }
        Some(path) => {
            // A trace has names of peers, and is private too.
            let mut options = File::options();
            options.write(true).create(true).truncate(true).mode(0o600);
            let file = options.open(path).map_err(|e| {
                Failure::new(format!("{}: cannot be written", path.display())).because(&e)
            })?;
            let mut file = BufWriter::new(file);
            let exported = write(&mut file).map_err(|e| broken(&e))?;
            file.flush()?;
            tell(format!("{}: {} spans, {} bytes", path.display(), exported.spans, exported.bytes));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// An export has a format of its own.
fn refuse_json(global: &Global) -> Result<(), Failure> {
    match global.style() {
        Style::Json => Err(Failure::new("an export has no form for `--json`")
            .hint("`--format otlp`, `zipkin` and `perfetto` are JSON")),
        Style::Plain | Style::Human => Ok(()),
    }
}

/// A reader that closes the pipe early is not a failure.
fn broken(error: &Error) -> Failure {
    match error {
        Error::Io { source, .. } if source.kind() == io::ErrorKind::BrokenPipe => {
            Failure::from(io::Error::from(io::ErrorKind::BrokenPipe))
        }
        other => failed(other),
    }
}

/// Sends a trace to a collector of OpenTelemetry by HTTP.
pub(super) fn send(global: &Global, folder: &Folder, url: &str) -> Result<ExitCode, Failure> {
    refuse_json(global)?;
    let trace = opened(folder)?;
    let address = match url.trim_end_matches('/') {
        whole if whole.ends_with("/v1/traces") => whole.to_owned(),
        base => format!("{base}/v1/traces"),
    };
    let exported = send_to(&trace, &address).map_err(|e| {
        let failure = Failure::new(format!("{address}: the trace cannot be sent")).because(&e);
        failure.hint("a collector takes OTLP by HTTP, usually at http://127.0.0.1:4318")
    })?;
    tell(format!("{address}: {} spans, {} bytes", exported.spans, exported.bytes));
    Ok(ExitCode::SUCCESS)
}

fn send_to(trace: &Trace<'_>, address: &str) -> Result<Exported, Error> {
    let config = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).build();
    let agent = ureq::Agent::new_with_config(config);
    otlp_protobuf(trace, |batch| {
        let request = agent.post(address).content_type("application/x-protobuf");
        request.send(batch).map(|_| ()).map_err(io::Error::other)
    })
}
