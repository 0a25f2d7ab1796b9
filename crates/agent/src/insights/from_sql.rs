//! Insights that the configuration gives in SQL.

use skopos_model::{Kind, Topic, Unit, ValueType};
use skopos_score::Insight;
use skopos_score::graph::InsightSpec;
use skopos_score::insight::DEFINITIONS;
use skopos_score::insight::sql::SqlInsight;

use crate::config::{InsightConfig, Place};
use skopos_term::Failure;

/// Whether an insight is a hub's to compute: because its configuration says so, because it is asked for
/// every so often, or because it needs an engine. Agent and hub may read one file, and each insight in it
/// is computed by one of the two.
pub fn is_for_hub(configured: &InsightConfig) -> bool {
    match configured.place {
        Some(Place::Hub) => true,
        Some(Place::Agent) => false,
        None => configured.every.is_some() || SqlInsight::needs_engine(&configured.sql),
    }
}

/// What the graph needs to know of a configured insight, and what computes it.
///
/// # Errors
/// Its name is no topic, or one of a built-in insight; its statement is not understood, or needs an engine.
pub(crate) fn compile(
    node: &str,
    configured: &InsightConfig,
) -> Result<(InsightSpec, Box<dyn Insight>), Failure> {
    let InsightConfig { name, sql, unit: declared, every, .. } = configured;
    let wrong = || format!("insight `{name}`");
    if every.is_some() {
        let told = format!("{}: an agent computes it at every change, and never `every`", wrong());
        return Err(
            Failure::new(told).hint("leave out `every`, or `where`: then a hub computes it")
        );
    }
    let topic = Topic::new(&format!("{node}/insight/{name}"))
        .map_err(|e| Failure::new(wrong()).because(&e))?;
    // Devices and mounts come and go, so any subject may be one some day.
    if let Some((subject, metric)) = name.split_once('/')
        && DEFINITIONS.iter().any(|built_in| built_in.metric.name == metric)
    {
        let told =
            format!("{}: `{metric}` is built in, for whatever `{subject}` there is", wrong());
        let hint = format!("choose another name, as `{subject}/own-{metric}`");
        return Err(Failure::new(told).hint(hint));
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
