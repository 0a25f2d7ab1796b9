//! `skopos ls [PATTERN]`: lists topics.

use clap::Args;
use std::process::ExitCode;

use serde::Serialize;
use skopos_model::schema;
use skopos_shm::Vertex;

use skopos_term::Failure;
use skopos_term::Global;
use skopos_term::find::{no_match, open_host, resolve_all};
use skopos_term::{Out, Style};

/// `docs/json/ls.schema.json`.
#[derive(Serialize)]
struct Listing {
    topics: Vec<TopicJson>,
}

#[derive(Serialize)]
struct TopicJson {
    topic: String,
    value_type: &'static str,
    unit: String,
    kind: &'static str,
    help: Option<&'static str>,
    source: Option<&'static str>,
    group: Option<String>,
    slots: u32,
    publisher: String,
    pid: u32,
}

impl TopicJson {
    fn new(vertex: &Vertex) -> Self {
        let info = vertex.info();
        let known = schema::lookup_in_family(&info.topic);
        Self {
            topic: info.topic.to_string(),
            value_type: info.value_type.name(),
            unit: info.unit.to_string(),
            kind: info.kind.name(),
            help: known.map(|(_, metric)| metric.help),
            source: known.map(|(family, _)| family.source),
            group: (!info.group.is_empty()).then(|| info.group.clone()),
            slots: info.slots,
            publisher: vertex.segment().name().to_owned(),
            pid: vertex.segment().pid(),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Topics or patterns: `*` within a segment, `**` over segments; the node may be left out
    #[arg(default_value = "**", value_name = "PATTERN")]
    pub(crate) patterns: Vec<String>,
    /// Print help, unit, kind and source of each topic
    #[arg(long, short)]
    pub(crate) long: bool,
}

pub(crate) fn run(global: &Global, args: &LsArgs) -> Result<ExitCode, Failure> {
    let host = open_host(global)?;
    let (vertices, missing) = resolve_all(&host, &args.patterns)?;
    if let Some(text) = missing.first() {
        return Err(no_match(&host, text));
    }
    let topics: Vec<TopicJson> = vertices.iter().map(TopicJson::new).collect();
    let mut out = Out::new(global.style());
    match out.style {
        Style::Json => out.json(&Listing { topics })?,
        Style::Plain => {
            for t in &topics {
                out.line(format!("{}\t{}\t{}\t{}", t.topic, t.value_type, t.unit, t.kind))?;
            }
        }
        Style::Human if args.long => {
            for t in &topics {
                let unit = if t.unit.is_empty() { "no unit" } else { &t.unit };
                out.line(out.bold(&t.topic))?;
                out.line(format!("  {}, {unit}, {}, by {}", t.kind, t.value_type, t.publisher))?;
                if let Some(help) = t.help {
                    out.line(format!("  {help}"))?;
                }
                if let Some(source) = t.source {
                    out.line(out.dim(&format!("  from {source}")))?;
                }
            }
        }
        Style::Human => {
            for t in &topics {
                out.line(&t.topic)?;
            }
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
