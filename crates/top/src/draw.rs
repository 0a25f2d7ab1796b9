//! Small drawings: lines, meters, graphs. All of them are clipped to the screen.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::theme::Theme;

/// Puts a line into row `row` of `area`; does nothing if `area` does not have that row.
pub(crate) fn put(buffer: &mut Buffer, area: Rect, row: u16, line: &Line<'_>) {
    let area = area.intersection(buffer.area);
    if row < area.height && area.width > 0 {
        buffer.set_line(area.x, area.y + row, line, area.width);
    }
}

/// Puts a line at the right end of row `row`.
pub(crate) fn put_right(buffer: &mut Buffer, area: Rect, row: u16, line: &Line<'_>) {
    let width = u16::try_from(line.width()).unwrap_or(u16::MAX).min(area.width);
    let x = area.x + area.width - width;
    put(buffer, Rect { x, width, ..area }, row, line);
}

/// The first groups of spans that fit into `width` as a whole, so that no word is cut.
pub(crate) fn fitting(
    groups: impl IntoIterator<Item = Vec<Span<'static>>>,
    width: usize,
) -> Vec<Span<'static>> {
    let (mut spans, mut left) = (Vec::new(), width);
    for group in groups {
        let needed: usize = group.iter().map(Span::width).sum();
        if needed > left {
            break;
        }
        left -= needed;
        spans.extend(group);
    }
    spans
}

/// A bar of `width` columns, filled to `ratio`.
pub(crate) fn meter(theme: Theme, width: usize, ratio: f64) -> Vec<Span<'static>> {
    let full = cells(ratio, width);
    vec![
        Span::styled(theme.part_glyphs()[0].to_string().repeat(full), theme.level(ratio)),
        Span::styled(theme.trough().to_string().repeat(width - full), theme.quiet()),
    ]
}

/// A bar of several shares in a row, which differ in colour and glyph.
pub(crate) fn parts_meter(theme: Theme, width: usize, ratios: &[f64]) -> Vec<Span<'static>> {
    let glyphs = theme.part_glyphs();
    let (mut spans, mut sum, mut used) = (Vec::new(), 0.0, 0);
    for (index, ratio) in ratios.iter().enumerate() {
        // Computed from the sum, so that rounding errors do not add up.
        sum += ratio.max(0.0);
        let until = cells(sum, width).max(used);
        let glyph = glyphs[index % glyphs.len()].to_string();
        spans.push(Span::styled(glyph.repeat(until - used), theme.part(index)));
        used = until;
    }
    spans.push(Span::styled(theme.trough().to_string().repeat(width - used), theme.quiet()));
    spans
}

/// Number of `width` columns that a share fills; 0 only for a share of 0.
fn cells(ratio: f64, width: usize) -> usize {
    if !ratio.is_finite() || ratio <= 0.0 {
        return 0;
    }
    let cells = (ratio * width as f64).round() as usize;
    // A share that the number beside it shows is visible here too.
    cells.max(usize::from(ratio >= 0.005)).min(width)
}

/// A character for each share, as high as the share.
pub(crate) fn bars(theme: Theme, ratios: impl Iterator<Item = Option<f64>>) -> Vec<Span<'static>> {
    let steps = theme.steps();
    let bar = |ratio: Option<f64>| match ratio {
        None => Span::raw("?"),
        Some(ratio) => {
            let top = steps.len() - 1;
            // An idle core has the lowest step: a blank would look like a missing core.
            let step = ((ratio * top as f64).round() as usize).clamp(1, top);
            Span::styled(steps[step].to_string(), theme.level(ratio))
        }
    };
    ratios.map(bar).collect()
}

/// Draws `values`, a column each and the newest last, on a scale from `bottom` to `top`.
pub(crate) fn graph(
    buffer: &mut Buffer,
    area: Rect,
    theme: Theme,
    values: &[Option<f64>],
    (bottom, top): (f64, f64),
) {
    let steps = theme.steps();
    let per_row = steps.len() - 1;
    let height = usize::from(area.height);
    let skip = values.len().saturating_sub(area.width.into());
    let shown = &values[skip..];
    let left = usize::from(area.width).saturating_sub(shown.len());
    for row in 0..height {
        let mut text = " ".repeat(left);
        for value in shown {
            let Some(value) = value.filter(|v| v.is_finite()) else {
                text.push(' ');
                continue;
            };
            let share = if top > bottom { (value - bottom) / (top - bottom) } else { 0.0 };
            let level = (share.clamp(0.0, 1.0) * (height * per_row) as f64).round() as usize;
            // A known value is visible even if it is zero: only unknown values are blank.
            let level = level.max(1);
            let below = (height - 1 - row) * per_row;
            text.push(steps[level.saturating_sub(below).min(per_row)]);
        }
        put(buffer, area, row as u16, &Line::styled(text, theme.graph()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASCII: Theme = Theme { colour: false, unicode: false };

    fn text(spans: Vec<Span<'static>>) -> String {
        spans.iter().map(|s| s.content.as_ref()).collect()
    }

    #[test]
    fn meters_fill_by_share() {
        let check = |ratio, expected: &str| assert_eq!(text(meter(ASCII, 4, ratio)), expected);
        check(0.0, "....");
        check(0.01, "|...");
        check(0.5, "||..");
        check(1.7, "||||");
        check(f64::NAN, "....");
        check(-1.0, "....");
    }

    #[test]
    fn parts_follow_one_another() {
        let shown = text(parts_meter(ASCII, 10, &[0.25, 0.25, 0.0, 0.2]));
        assert_eq!(shown, "|||##::...");
        assert_eq!(text(parts_meter(ASCII, 4, &[0.9, 0.9])), "||||");
    }

    #[test]
    fn a_graph_grows_upwards() {
        let area = Rect::new(0, 0, 4, 2);
        let mut buffer = Buffer::empty(area);
        graph(&mut buffer, area, ASCII, &[None, Some(0.0), Some(0.5), Some(1.0)], (0.0, 1.0));
        let row = |y: u16| (0..4).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        assert_eq!((row(0), row(1)), ("   #".to_owned(), " .##".to_owned()));
    }
}
