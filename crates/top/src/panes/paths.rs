//! Paths of packets that the network makes slow: the insights `slow_pair` and `congestion_point` of in-band telemetry.

use ratatui::text::{Line, Span};
use serde_json::Value as Json;
use skopos_model::Value;
use skopos_model::schema::insight;

use super::parts::{LABEL, labelled};
use crate::data::{Data, Fact};
use crate::draw::fitting;
use crate::text;
use crate::theme::Theme;

/// Returns the record of an insight about a path as a text for people; `None` for other facts.
pub(super) fn told(fact: &Fact) -> Option<String> {
    let metric = fact.topic.metric();
    if metric == insight::CONGESTION_POINT.name {
        return field(fact, "text").map(str::to_owned);
    }
    let verdict = field(fact, "verdict").filter(|_| metric == insight::SLOW_PAIR.name)?;
    let reasons: Vec<&str> =
        ["network", "host"].iter().filter_map(|part| field(fact, part)).collect();
    Some(format!("{verdict}: {}", reasons.join("; ")))
}

/// Returns a field of a record that is a text.
pub(super) fn field<'a>(fact: &'a Fact, name: &str) -> Option<&'a str> {
    let Some(Value::Structured(record)) = &fact.value else { return None };
    record.as_json().get(name).and_then(Json::as_str)
}

/// The line of the overview: the paths that the network makes slow, with the fullest queue of each, as many as fit; `None`
/// without any. A host that is slow by itself is seen in its pressure.
pub(super) fn line(data: &Data, theme: Theme, width: usize) -> Option<Line<'static>> {
    let is_slow = |fact: &&Fact| {
        fact.topic.metric() == insight::SLOW_PAIR.name
            && !fact.stale
            && matches!(field(fact, "verdict"), Some("network" | "both"))
    };
    let mut groups = data.insights().filter(is_slow).map(|fact| {
        let of = |fact: &Fact| fact.topic.as_str().rsplit_once('/').map(|(of, _)| of.to_owned());
        let own = of(fact);
        let is_its = |other: &&Fact| {
            other.topic.metric() == insight::CONGESTION_POINT.name && of(other) == own
        };
        let point = data.insights().find(is_its).and_then(told);
        let reason = point.or_else(|| field(fact, "network").map(str::to_owned));
        let reason = reason.unwrap_or_else(|| "slow".to_owned());
        let path = text::unescape(own.as_deref().and_then(|o| o.rsplit('/').next()).unwrap_or(""));
        vec![
            Span::styled(format!("! {path} "), theme.warning()),
            Span::styled(format!("{reason}  "), theme.strong()),
        ]
    });
    // The first one is shown in any case, and the blanks after the last may be cut.
    let mut spans = groups.next()?;
    let used: usize = spans.iter().map(Span::width).sum();
    spans.extend(fitting(groups, (width.saturating_sub(LABEL) + 2).saturating_sub(used)));
    Some(labelled(theme, "path", false, spans))
}
