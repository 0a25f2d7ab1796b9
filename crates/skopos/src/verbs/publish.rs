//! `skopos publish TOPIC VALUE`: publishes a fact of the user.

use clap::Args;
use std::process::ExitCode;

use serde::Serialize;
use skopos_model::ValueType;

use skopos_agent::control::{self, Answer, NOT_FINITE_HINT, Request, not_finite};
use skopos_term::Failure;
use skopos_term::Global;
use skopos_term::{Out, Style};

/// `docs/json/publish.schema.json`.
#[derive(Serialize)]
struct Response {
    topic: String,
    removed: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PublishArgs {
    /// Topic; the name of this node is added in front if it is missing
    pub(crate) topic: String,
    /// Number, or a list, a record or a text in JSON
    #[arg(allow_hyphen_values = true, required_unless_present = "remove")]
    pub(crate) value: Option<String>,
    /// Type: f64, i64, u64 or structured [default: f64 for a number, else structured]
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) value_type: Option<String>,
    /// Unit of the value, such as bytes or seconds
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) unit: String,
    /// Kind: counter, gauge or state
    #[arg(long, default_value = "gauge")]
    pub(crate) kind: String,
    /// Remove the topic
    #[arg(long, conflicts_with = "value")]
    pub(crate) remove: bool,
}

pub(crate) fn run(global: &Global, args: &PublishArgs) -> Result<ExitCode, Failure> {
    let dir = global.dir.clone().unwrap_or_else(skopos_shm::runtime_dir);
    let topic = args.topic.clone();
    let request = match &args.value {
        None => Request::Remove { topic },
        Some(value) => {
            let value_type = value_type(args.value_type.as_deref(), value)?;
            // Checked before the request, so that the errors are the same without an agent.
            let parsed = value_type.parse_value(value).map_err(wrong_value)?;
            if let Some(why) = not_finite(&parsed) {
                return Err(Failure::new(why).hint(NOT_FINITE_HINT));
            }
            Request::Publish {
                topic,
                value: value.clone(),
                value_type: value_type.name().to_owned(),
                unit: args.unit.clone(),
                kind: args.kind.clone(),
            }
        }
    };
    let Answer::Done { topic } = control::ask(&dir, &request)? else {
        return Err(Failure::new("the response of the agent does not fit the request"));
    };
    let mut out = Out::new(global.style());
    match out.style {
        Style::Json => out.json(&Response { topic, removed: args.remove })?,
        Style::Plain => out.line(topic)?,
        Style::Human if args.remove => out.line(format!("removed {topic}"))?,
        Style::Human => out.line(format!("published {topic}"))?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the requested type, else `f64` for a number and structured for other values. `1` is not an
/// integer, because the next value of the same topic may be `1.5`.
fn value_type(asked: Option<&str>, value: &str) -> Result<ValueType, Failure> {
    match asked {
        Some(name) => name.parse().map_err(|e: skopos_model::Error| {
            Failure::new(e.to_string())
                .hint("leave --type out for a double, a list, a record or a text")
        }),
        None if value.parse::<f64>().is_ok() => Ok(ValueType::F64),
        None => Ok(ValueType::Structured),
    }
}

fn wrong_value(e: skopos_model::Error) -> Failure {
    Failure::new(e.to_string()).hint(
        "a value is a number, or JSON of a list, a record or a text: 17, '[1, 2]', '{\"a\": 1}', '\"ready\"'",
    )
}
