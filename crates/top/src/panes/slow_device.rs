//! Devices that make programs wait: the insight `slow_device`.

use ratatui::text::{Line, Span};
use skopos_model::schema::insight;

use super::parts::{LABEL, labelled};
use super::paths::field;
use crate::data::{Data, Fact};
use crate::text;
use crate::theme::Theme;

/// The sign before the text.
const SIGN: &str = "! ";

/// Returns the record as a text for people; `None` for other facts.
pub(super) fn told(fact: &Fact) -> Option<&str> {
    field(fact, "text").filter(|_| fact.topic.metric() == insight::SLOW_DEVICE.name)
}

/// The line of the overview: the slow devices of the node; `None` without any.
pub(super) fn line(data: &Data, theme: Theme, width: usize) -> Option<Line<'static>> {
    let is_own = |fact: &&Fact| fact.topic.node() == data.node && !fact.stale;
    let text = data.insights().filter(is_own).find_map(told)?;
    let room = width.saturating_sub(LABEL + SIGN.len());
    let text = text::cut(text, room, theme.ellipsis());
    let spans = [Span::styled(SIGN, theme.warning()), Span::styled(text, theme.strong())];
    Some(labelled(theme, "disk", false, spans))
}
