//! Insights of the configuration, in SQL.

use skopos_model::{Kind, Topic, Unit, ValueType};
use skopos_score::Insight;
use skopos_score::graph::InsightSpec;
use skopos_score::insight::DEFINITIONS;
use skopos_score::insight::sql::SqlInsight;

use crate::config::{InsightConfig, Place};
use skopos_term::Failure;

/// Returns true if a hub computes the insight: its configuration says so, it has a time between evaluations, or
/// its statement needs a query engine. Agent and hub may read the same file, and only one of them computes each
/// insight.
pub fn is_for_hub(configured: &InsightConfig) -> bool {
    match configured.place {
        Some(Place::Hub) => true,
        Some(Place::Agent) => false,
        None => configured.every.is_some() || SqlInsight::needs_engine(&configured.sql),
    }
}

/// Compiles a configured insight for the graph.
///
/// # Errors
/// Its name is not a topic, or belongs to a built-in insight; its statement is not valid, or needs an engine.
pub(crate) fn compile(
    node: &str,
    configured: &InsightConfig,
) -> Result<(InsightSpec, Box<dyn Insight>), Failure> {
    let InsightConfig { name, sql, unit: declared, every, .. } = configured;
    let wrong = || format!("insight `{name}`");
    if every.is_some() {
        let text =
            format!("{}: an agent computes at every change, so `every` is not allowed", wrong());
        return Err(Failure::new(text)
            .hint("remove `every`; or remove `where`, then a hub computes the insight"));
    }
    let topic = Topic::new(&format!("{node}/insight/{name}"))
        .map_err(|e| Failure::new(wrong()).because(&e))?;
    // Devices and mounts can appear at any time, so every subject may become a device.
    if let Some((subject, metric)) = name.split_once('/')
        && DEFINITIONS.iter().any(|built_in| built_in.metric.name == metric)
    {
        let text = format!("{}: `{metric}` is a built-in insight, also of `{subject}`", wrong());
        let hint = format!("choose another name, such as `{subject}/own-{metric}`");
        return Err(Failure::new(text).hint(hint));
    }
    let (mut insight, inputs, mut unit) = SqlInsight::new(sql).map_err(|e| {
        let failure = Failure::new(wrong()).because(&e);
        match e.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    })?;
    if let Some(declared) = declared {
        let declared = Unit::new(declared).map_err(|e| Failure::new(wrong()).because(&e))?;
        insight = insight.with_unit(declared);
        unit = Some(declared);
    }
    let spec = InsightSpec {
        topic,
        unit: unit.unwrap_or(Unit::NONE),
        kind: Kind::Gauge,
        value_type: ValueType::F64,
        inputs,
        name: name.clone(),
        formula: sql.clone(),
    };
    Ok((spec, Box::new(insight)))
}
