//! Histograms: as one word, as lines of a terminal, and as SVG.

use std::fmt::Write as _;

use skopos_model::task::{Resource, amount};
use skopos_store::archive::Usage;
use skopos_store::stats::Histogram;

/// Eighths of a character cell, from the bottom.
const UP: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Eighths of a character cell, from the left.
const RIGHT: [char; 9] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];

/// The longest bar of a terminal, in cells.
const BAR_CELLS: u64 = 48;

/// The size of a panel of the SVG, and the margins of its plot, in pixels.
const PANEL: (f64, f64) = (320.0, 200.0);
const MARGIN: (f64, f64, f64, f64) = (14.0, 44.0, 14.0, 26.0);

/// Number of panels in a row.
const COLUMNS: usize = 3;

/// Draws a character for each interval. An interval with samples is never blank.
pub(super) fn line(histogram: &Histogram) -> String {
    let most = histogram.bins().map(|b| b.2).max().unwrap_or(0);
    histogram.bins().map(|(_, _, count)| UP[eighths(count, most, 8)]).collect()
}

/// Draws a line for each interval, with its start and its count.
pub(super) fn bars(histogram: &Histogram, unit: &str) -> Vec<String> {
    let most = histogram.bins().map(|b| b.2).max().unwrap_or(0);
    let bins: Vec<_> = histogram.bins().collect();
    let starts: Vec<String> = bins.iter().map(|(start, ..)| amount(*start, unit)).collect();
    let width = starts.iter().map(|s| s.chars().count()).max().unwrap_or(0);
    let line = |(start, (_, _, count)): (&String, &(f64, f64, u64))| {
        let length = eighths(*count, most, 8 * BAR_CELLS);
        let mut bar = "█".repeat(length / 8);
        bar.extend(Some(RIGHT[length % 8]).filter(|part| *part != ' '));
        let pad = " ".repeat(width.saturating_sub(start.chars().count()));
        format!("  {pad}{start} {bar} {count}")
    };
    starts.iter().zip(&bins).map(line).collect()
}

/// Scales `count` of `most` to parts of `full`; at least one part if `count` is not zero.
fn eighths(count: u64, most: u64, full: u64) -> usize {
    let parts = (u128::from(count) * u128::from(full)).div_ceil(u128::from(most.max(1)));
    usize::try_from(parts).unwrap_or(0)
}

/// Draws a panel for each resource that varies; if no resource varies, a panel for each resource.
pub(super) fn svg<'a>(
    class: &str,
    resources: impl Iterator<Item = (&'static Resource, &'a Usage)>,
) -> String {
    let there = |used: &Usage| used.distribution.moments.count() > 0;
    let panels: Vec<_> = resources.filter(|(_, used)| there(used)).collect();
    let rows = panels.len().div_ceil(COLUMNS).max(1);
    let columns = panels.len().clamp(1, COLUMNS);
    let (width, height) = (PANEL.0 * columns as f64, PANEL.1 * rows as f64 + 30.0);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"14\" y=\"20\" font-size=\"15\" font-weight=\"bold\">{}</text>\n",
        escaped(class)
    );
    for (at, (resource, used)) in panels.into_iter().enumerate() {
        let x = PANEL.0 * (at % COLUMNS) as f64;
        let y = 30.0 + PANEL.1 * (at / COLUMNS) as f64;
        let _ = writeln!(text, "<g transform=\"translate({x} {y})\">");
        panel(&mut text, resource, used);
        text += "</g>\n";
    }
    text + "</svg>\n"
}

fn panel(text: &mut String, resource: &Resource, used: &Usage) {
    let (left, top, right, bottom) = MARGIN;
    let (width, height) = (PANEL.0 - left - right, PANEL.1 - top - bottom);
    let moments = used.distribution.moments;
    let of = |value: Option<f64>| value.map_or("?".to_owned(), |v| amount(v, resource.unit));
    let plain = |value: Option<f64>| value.map_or("?".to_owned(), |v| format!("{v:.2}"));
    let _ = writeln!(
        text,
        "<text x=\"{left}\" y=\"14\" font-weight=\"bold\">{}</text>\n\
         <text x=\"{left}\" y=\"28\" fill=\"#555555\">n {}, mean {}, deviation {}</text>\n\
         <text x=\"{left}\" y=\"40\" fill=\"#555555\">skewness {}, excess kurtosis {}</text>",
        escaped(resource.name),
        moments.count(),
        escaped(&of(moments.mean())),
        escaped(&of(moments.deviation())),
        plain(moments.skewness()),
        plain(moments.kurtosis())
    );
    let shape = used.distribution.shape();
    let bins: Vec<_> = shape.bins().collect();
    let most = bins.iter().map(|b| b.2).max().unwrap_or(1).max(1) as f64;
    let step = width / bins.len().max(1) as f64;
    for (at, (start, end, count)) in bins.iter().enumerate() {
        let tall = *count as f64 / most * height;
        let _ = writeln!(
            text,
            "<rect x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{tall:.2}\" fill=\"#3b6ea5\">\
             <title>{} to {}: {count}</title></rect>",
            left + step * at as f64,
            top + height - tall,
            (step - 0.5).max(0.5),
            escaped(&amount(*start, resource.unit)),
            escaped(&amount(*end, resource.unit)),
        );
    }
    let (first, last) = (bins.first().map(|b| b.0), bins.last().map(|b| b.1));
    let base = top + height;
    let _ = writeln!(
        text,
        "<line x1=\"{left}\" y1=\"{base}\" x2=\"{0}\" y2=\"{base}\" stroke=\"#333333\"/>\n\
         <text x=\"{left}\" y=\"{1}\">{2}</text>\n\
         <text x=\"{0}\" y=\"{1}\" text-anchor=\"end\">{3}</text>",
        left + width,
        base + 14.0,
        escaped(&of(first)),
        escaped(&of(last)),
    );
}

fn escaped(text: &str) -> String {
    let plain = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    // XML does not allow control characters.
    plain.replace('"', "&quot;").replace(|c: char| c.is_control(), "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Histogram {
        let mut histogram = Histogram::default();
        values.iter().for_each(|v| histogram.add(*v));
        histogram
    }

    #[test]
    fn one_of_a_thousand_is_seen() {
        let mut values = vec![1.0; 1_000];
        values.push(64.5);
        let line = line(&of(&values));
        assert!(line.starts_with('█') && line.ends_with('▁'), "{line:?}");
        let bars = bars(&of(&values), "");
        assert!(
            bars[0].ends_with("█ 1000") && bars.iter().any(|b| b.ends_with("▏ 1")),
            "{bars:#?}"
        );
        assert_eq!(super::line(&Histogram::default()), "");
    }

    #[test]
    fn a_bracket_in_a_class_is_not_markup() {
        let text = svg("<b>&\u{1}", std::iter::empty());
        assert!(text.contains("&lt;b&gt;&amp;\u{fffd}</text>"), "{text}");
    }
}
