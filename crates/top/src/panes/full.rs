//! File systems that are nearly full, or that will be soon at the present growth.

use std::time::Duration;

use ratatui::text::{Line, Span};
use skopos_model::Topic;

use super::files;
use super::parts::{LABEL, labelled};
use crate::data::{Data, History};
use crate::draw::fitting;
use crate::text;
use crate::theme::Theme;

/// A file system is nearly full above this share.
const NEARLY_FULL: f64 = 0.9;

/// A file system with less time left is shown: a day is enough to act.
const SHORT_TIME: Duration = Duration::from_secs(24 * 3600);

/// The least history from which the time left is computed: shorter growth is a burst.
const LEAST_HISTORY: Duration = Duration::from_secs(30);

/// The most file systems whose history is read at each refresh.
const MAX_HISTORIES: usize = 16;

/// A file system that needs attention.
#[derive(Debug, PartialEq)]
struct Full {
    name: String,
    used_ratio: f64,
    available_bytes: Option<f64>,
    left: Option<Duration>,
    is_stale: bool,
}

/// The file systems that can be written, their use and the topic of their available bytes.
fn writable(data: &Data) -> impl Iterator<Item = (Full, Option<Topic>)> {
    [&files::LOCAL, &files::REMOTE].into_iter().flat_map(move |names| {
        data.instances(names.family).filter_map(move |instance| {
            if instance.value(names.readonly) == Some(1.0) {
                return None;
            }
            let full = Full {
                name: files::name(data, names, &instance),
                used_ratio: instance.value(names.used_ratio)?,
                available_bytes: instance.value(names.available),
                left: None,
                is_stale: instance.is_stale(),
            };
            Some((full, instance.topic(names.available)))
        })
    })
}

/// The file systems that are nearly full or have little time left, the most urgent first.
fn urgent(data: &Data) -> Vec<Full> {
    let with_time = writable(data).map(|(full, topic)| {
        let history = topic.and_then(|topic| data.histories.get(&topic));
        let left = history.zip(full.available_bytes).and_then(|(h, bytes)| time_left(h, bytes));
        Full { left: left.filter(|left| *left < SHORT_TIME), ..full }
    });
    let is_urgent = |full: &Full| full.used_ratio > NEARLY_FULL || full.left.is_some();
    let mut urgent: Vec<Full> = with_time.filter(is_urgent).collect();
    let time = |full: &Full| full.left.unwrap_or(Duration::MAX);
    urgent
        .sort_by(|a, b| time(a).cmp(&time(b)).then_with(|| b.used_ratio.total_cmp(&a.used_ratio)));
    urgent
}

/// The time after which no bytes are left, if they decrease as over the history in memory.
fn time_left(history: &History, available_bytes: f64) -> Option<Duration> {
    let mut known = history.samples.iter().filter(|sample| sample.1.is_finite());
    let (first, last) = (known.clone().next()?, known.next_back()?);
    let seconds = (last.0 - first.0) as f64 / 1e9;
    let written = first.1 - last.1;
    if seconds < LEAST_HISTORY.as_secs_f64() || written <= 0.0 {
        return None;
    }
    Duration::try_from_secs_f64(available_bytes * seconds / written).ok()
}

/// The line of the overview: the urgent file systems that fit; `None` without any.
pub(super) fn line(data: &Data, theme: Theme, width: usize) -> Option<Line<'static>> {
    let urgent = urgent(data);
    let stale = urgent.first()?.is_stale;
    let room = width.saturating_sub(LABEL);
    let mut groups = urgent.iter().map(|full| {
        let mut numbers = format!(" {}", text::share(Some(full.used_ratio)));
        if full.available_bytes.is_some() {
            numbers += &format!(", {} left", text::bytes(full.available_bytes));
        }
        if let Some(left) = full.left {
            numbers += &format!(", full in {}", text::age(left));
        }
        let name_room = room.saturating_sub(text::width(&numbers) + 2);
        let name = text::cut(&full.name, name_room, theme.ellipsis());
        vec![
            Span::styled(format!("! {name}"), theme.warning()),
            Span::styled(format!("{numbers}  "), theme.strong()),
        ]
    });
    // The first one is shown in any case, and the blanks after the last may be cut.
    let mut spans = groups.next()?;
    let used: usize = spans.iter().map(Span::width).sum();
    spans.extend(fitting(groups, (room + 2).saturating_sub(used)));
    Some(labelled(theme, "full", stale, spans))
}

/// The topics from which the time left is computed.
pub(super) fn histories(data: &Data) -> Vec<Topic> {
    let mut fullest: Vec<(Full, Option<Topic>)> = writable(data).collect();
    fullest.sort_by(|a, b| b.0.used_ratio.total_cmp(&a.0.used_ratio));
    fullest.into_iter().filter_map(|(_, topic)| topic).take(MAX_HISTORIES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_from_the_decrease() {
        let check = |samples: &[(i64, f64)], available, expected: Option<u64>| {
            let samples = samples.iter().map(|(s, value)| (s * 1_000_000_000, *value)).collect();
            let left = time_left(&History { samples }, available);
            assert_eq!(left, expected.map(Duration::from_secs));
        };
        check(&[(0, 2000.0), (50, 1800.0), (100, 1000.0)], 1000.0, Some(100));
        check(&[(0, 2000.0), (100, 1000.0), (110, f64::NAN)], 1000.0, Some(100));
        // Too short, growing, unchanged, unknown.
        check(&[(0, 2000.0), (10, 1000.0)], 1000.0, None);
        check(&[(0, 1000.0), (100, 2000.0)], 2000.0, None);
        check(&[(0, 1000.0)], 1000.0, None);
        check(&[], 1000.0, None);
    }
}
