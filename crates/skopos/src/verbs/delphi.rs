//! `skopos delphi train|score`: trains the predictor, and measures its errors.

use clap::{Args, Subcommand};
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use serde::Serialize;
use skopos_model::{Unit, Value};
use skopos_score::delphi::{
    Errors, Evaluation, FORMAT_VERSION, Model, PARAMETERS, TRAINABLE, evaluate, restore_polls,
    train,
};
use skopos_score::trace::Trace;
use skopos_score::trace::{instant, kind_of};
use skopos_shm::Vertex;

use super::predicted;
use skopos_term::Failure;
use skopos_term::Global;
use skopos_term::find::{no_match, open_host, resolve};
use skopos_term::format;
use skopos_term::{Out, Style, tell};

/// Number of samples that a prediction needs.
const FIRST: usize = 5;

/// `docs/json/delphi.schema.json`, of `train`.
#[derive(Serialize)]
struct TrainingReport<'a> {
    seed: u64,
    parameters: usize,
    trainable: usize,
    format_version: u32,
    seconds: f64,
    /// True if the weights equal those of this program.
    built_in: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a Path>,
}

/// `docs/json/delphi.schema.json`, of `score`.
#[derive(Serialize)]
struct ScoreReport<'a> {
    topic: &'a str,
    unit: &'a str,
    predictions: usize,
    methods: Vec<MethodJson>,
    coverage: Option<f64>,
    mean_bound: Option<f64>,
    delphi_shown_ratio: f64,
}

#[derive(Serialize)]
struct MethodJson {
    method: &'static str,
    mae: f64,
    rmse: f64,
    r2: Option<f64>,
}

#[derive(Debug, Args)]
pub(crate) struct DelphiArgs {
    #[command(subcommand)]
    pub(crate) verb: DelphiVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DelphiVerb {
    /// Train the model from its seed: the same weights on every machine
    #[command(before_help = "Example: skopos delphi train --out weights.bin")]
    Train(DelphiTrainArgs),
    /// Predict past samples and compare: mean errors, R², coverage of the bound
    #[command(before_help = "Example: skopos delphi score 'block/*/written_bytes_total'")]
    Score(DelphiScoreArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DelphiTrainArgs {
    /// Seed of the synthetic data
    #[arg(long, value_name = "N", default_value_t = skopos_score::delphi::DEFAULT_SEED)]
    pub(crate) seed: u64,
    /// Write the weights to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DelphiScoreArgs {
    /// Topic or pattern, scored as far back as the rings reach; the node may be left out
    #[arg(required_unless_present = "trace")]
    pub(crate) topic: Option<String>,
    /// Score a recorded trace instead
    #[arg(long, value_name = "FILE", conflicts_with = "topic")]
    pub(crate) trace: Option<PathBuf>,
}

pub(crate) fn run(global: &Global, args: &DelphiArgs) -> Result<ExitCode, Failure> {
    match &args.verb {
        DelphiVerb::Train(args) => run_train(global, args),
        DelphiVerb::Score(args) => score(global, args),
    }
}

fn run_train(global: &Global, args: &DelphiTrainArgs) -> Result<ExitCode, Failure> {
    let started = Instant::now();
    let model = train(args.seed);
    let seconds = started.elapsed().as_secs_f64();
    if let Some(path) = &args.out {
        fs::write(path, model.to_bytes())
            .map_err(|e| Failure::new(format!("cannot write {}", path.display())).because(&e))?;
    }
    let built_in = model == *Model::built_in();
    let mut out = Out::new(global.style());
    if out.style == Style::Json {
        out.json(&TrainingReport {
            seed: args.seed,
            parameters: PARAMETERS,
            trainable: TRAINABLE,
            format_version: FORMAT_VERSION,
            seconds,
            built_in,
            file: args.out.as_deref(),
        })?;
    } else {
        out.line(format!("{model}: trained in {seconds:.2} s"))?;
        let same = if built_in { "equal" } else { "differ from" };
        out.line(format!("the weights {same} those of this program"))?;
        if let Some(path) = &args.out {
            out.line(format!("written to {}", path.display()))?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn score(global: &Global, args: &DelphiScoreArgs) -> Result<ExitCode, Failure> {
    let mut out = Out::new(global.style());
    if let Some(path) = &args.trace {
        let text = fs::read_to_string(path)
            .map_err(|e| Failure::new(format!("cannot read {}", path.display())).because(&e))?;
        let trace = Trace::parse(&text).map_err(|e| {
            Failure::new(format!("{} is not a trace", path.display()))
                .because(&e)
                .hint("a trace has the lines `# topic: …`, `# unit: …`, `time_seconds,value` and a line for each sample")
        })?;
        let samples: Vec<_> = trace.samples.iter().map(|(t, v)| (instant(*t), *v)).collect();
        let evaluation = evaluate(kind_of(&trace.topic), &samples, FIRST)
            .ok_or_else(|| too_few(&path.display().to_string(), samples.len()))?;
        print(&mut out, &trace.topic, &trace.unit, &evaluation)?;
        out.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = args.topic.as_deref().unwrap_or_default();
    let host = open_host(global)?;
    let vertices = resolve(&host, text)?;
    if vertices.is_empty() {
        return Err(no_match(&host, text));
    }
    let mut scored = 0;
    for vertex in &vertices {
        match score_vertex(vertex) {
            Ok(evaluation) => {
                let (topic, unit) = (vertex.topic().as_str(), vertex.info().unit);
                print(&mut out, topic, unit.as_str(), &evaluation)?;
                scored += 1;
            }
            Err(reason) => tell(format!("{}: {reason}", vertex.topic())),
        }
    }
    out.flush()?;
    if scored == 0 {
        return Err(Failure::no("there is nothing to score yet")
            .hint("a prediction needs six samples: wait for some changes, or score a `--trace`"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Scores the samples in the ring, with the polls that found no change.
fn score_vertex(vertex: &Vertex) -> Result<Evaluation, String> {
    let checked_at = vertex.latest().map_err(|e| e.to_string())?.checked_at;
    let mut samples = Vec::new();
    restore_polls(&predicted::measured(vertex)?, checked_at, |time, value| {
        samples.push((time, value))
    });
    evaluate(vertex.info().kind, &samples, FIRST)
        .ok_or_else(|| format!("a prediction needs six samples, and there are {}", samples.len()))
}

fn too_few(name: &str, samples: usize) -> Failure {
    let samples = format::count(samples as u64, "sample");
    Failure::no(format!("{name} has {samples}, and a prediction needs six"))
}

fn print(out: &mut Out, topic: &str, unit: &str, e: &Evaluation) -> Result<(), Failure> {
    let methods = [
        ("shown", e.shown),
        ("delphi", e.delphi),
        ("delphi as trained", e.trained),
        ("last value", e.last_value),
        ("linear", e.linear),
    ];
    match out.style {
        Style::Json => {
            let json = |(method, Errors { mae, rmse, r2 })| MethodJson { method, mae, rmse, r2 };
            out.json(&ScoreReport {
                topic,
                unit,
                predictions: e.predictions,
                methods: methods.into_iter().map(json).collect(),
                coverage: e.coverage,
                mean_bound: e.bound,
                delphi_shown_ratio: e.delphi_shown,
            })?;
        }
        Style::Plain => {
            for (method, Errors { mae, rmse, r2 }) in methods {
                let r2 = r2.map_or_else(String::new, |r2| r2.to_string());
                out.line(format!("{topic}\t{method}\t{mae}\t{rmse}\t{r2}"))?;
            }
        }
        Style::Human => print_human(out, topic, unit, e, &methods)?,
    }
    Ok(())
}

fn print_human(
    out: &mut Out,
    topic: &str,
    unit: &str,
    e: &Evaluation,
    methods: &[(&str, Errors)],
) -> Result<(), Failure> {
    let unit = Unit::new(unit).unwrap_or(Unit::NONE);
    let number = |x: f64| format::value(&Value::F64(x), unit);
    out.line(out.bold(topic))?;
    let mut rows = vec![["", "mae", "rmse", "r2"].map(str::to_owned).to_vec()];
    for (method, Errors { mae, rmse, r2 }) in methods {
        let r2 = r2.map_or_else(|| "-".to_owned(), |r2| format!("{r2:.3}"));
        rows.push(vec![(*method).to_owned(), number(*mae), number(*rmse), r2]);
    }
    out.table(&rows, &[1, 2, 3])?;
    let bound = match (e.coverage, e.bound) {
        (Some(coverage), Some(bound)) => {
            format!("{:.0} % within the bound, {} on average", 100.0 * coverage, number(bound))
        }
        _ => "too few samples for a bound".to_owned(),
    };
    let shown = 100.0 * e.delphi_shown;
    out.line(format!("{} predictions, {shown:.0} % of them Delphi's; {bound}", e.predictions))?;
    Ok(())
}
