//! Damaged files of history.

use ratatui::text::{Line, Span};
use skopos_model::Value;
use skopos_model::schema::self_history as schema;

use super::parts::{LABEL, labelled};
use crate::data::Data;
use crate::text;
use crate::theme::Theme;

/// The line of the overview: the number of files that were moved aside, and the last damage; `None` without any.
pub(super) fn line(data: &Data, theme: Theme, width: usize) -> Option<Line<'static>> {
    let history = data.instances(&schema::FAMILY).next()?;
    let files = history.value(&schema::QUARANTINED).filter(|files| *files > 0.0)?;
    let last = history.fact(&schema::DAMAGE).and_then(|fact| match fact.value.as_ref()? {
        Value::Structured(text) => text.as_json().as_str().map(str::to_owned),
        _ => None,
    });
    let count = format!("! {files} damaged");
    let room = width.saturating_sub(LABEL + text::width(&count) + 2);
    let last = last.map(|last| format!("  {}", text::cut(&last, room, theme.ellipsis())));
    let spans = vec![
        Span::styled(count, theme.warning()),
        Span::styled(last.unwrap_or_default(), theme.strong()),
    ];
    Some(labelled(theme, "history", history.is_stale(), spans))
}
