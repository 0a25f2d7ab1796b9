//! Plots of resources over time, each with its limit as a line.

use skopos_model::task::{Summary, amount};

use super::html::Html;
use super::numbers;
use crate::report::series::{COLUMNS, Row};

/// A plot of one column of the series.
struct Plot {
    column: &'static str,
    title: &'static str,
    /// The resource that has the limit and the peak.
    resource: &'static str,
    unit: &'static str,
}

const fn plot(
    column: &'static str,
    title: &'static str,
    resource: &'static str,
    unit: &'static str,
) -> Plot {
    Plot { column, title, resource, unit }
}

/// The plots, the most important first.
static PLOTS: [Plot; 11] = [
    plot("resident_bytes", "Resident memory", "resident_bytes_max", "bytes"),
    plot("pss_bytes", "Memory, shared pages divided", "pss_bytes_max", "bytes"),
    plot("cpu_seconds", "Processor time so far", "cpu_seconds", "seconds"),
    plot("processes", "Processes", "processes_max", ""),
    plot("threads", "Threads", "threads_max", ""),
    plot("read_bytes", "Bytes read so far", "read_bytes", "bytes"),
    plot("written_bytes", "Bytes written so far", "written_bytes", "bytes"),
    plot("files", "Files in the watched folders", "files", ""),
    plot("footprint_bytes", "Space of the watched folders", "footprint_bytes", "bytes"),
    plot("swap_bytes", "Memory in swap", "swap_bytes_max", "bytes"),
    plot("virtual_bytes", "Address space", "virtual_bytes_max", "bytes"),
];

/// The most points of a line: twice the pixels of the plot, so that more would not be visible.
pub(super) const MAX_POINTS: usize = 1000;

/// The size of the drawing and the area of the data, in units of the drawing.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 170.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 470.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 146.0;

/// The largest ratio of a limit to the data at which the limit is on the scale. A higher limit
/// would flatten the data, and is named at the upper edge.
const LIMIT_IN_VIEW: f64 = 4.0;

/// A point: seconds since the start, and the value; `None` is a gap.
pub(super) type Point = (f64, Option<f64>);

pub(super) fn section(html: &mut Html, summary: &Summary, series: &[Row]) {
    html.raw("<section>\n<h2>Over time</h2>\n");
    let mut drawn = 0_usize;
    let mut plots = Html::default();
    for plot in &PLOTS {
        let points = points(plot.column, series);
        let known = points.iter().filter(|(_, value)| value.is_some()).count();
        let is_flat_zero = points.iter().all(|(_, value)| value.is_none_or(|v| v == 0.0));
        let is_limited = numbers::limit(summary, plot.resource).is_some();
        if known == 0 || is_flat_zero && !is_limited {
            continue;
        }
        figure(&mut plots, plot, summary, &reduce(&points));
        drawn += 1;
    }
    if drawn == 0 {
        html.raw("<p>The task ended before the first sample.</p>\n</section>\n");
        return;
    }
    html.raw("<p class=\"soft\">")
        .count(series.len() as u64)
        .raw(" samples. Between two of them the task ");
    html.raw("may have used more: a dotted line is a peak that another mechanism measured, ");
    html.raw("a dashed line a limit.</p>\n<div class=\"plots\">\n").add(plots);
    html.raw("</div>\n</section>\n");
}

fn points(column: &str, series: &[Row]) -> Vec<Point> {
    let Some(at) = COLUMNS.iter().position(|name| *name == column) else { return Vec::new() };
    let point = |row: &Row| Some(((*row.values().first()?)?, row.values().get(at).copied()?));
    let finite = |(time, value): Point| (time, value.filter(|v| v.is_finite()));
    series.iter().filter_map(point).map(finite).collect()
}

/// Returns at most [`MAX_POINTS`] points: the least and the greatest value of each group of rows,
/// in their order. So a peak of one row is visible however long the run is.
pub(super) fn reduce(points: &[Point]) -> Vec<Point> {
    if points.len() <= MAX_POINTS {
        return points.to_vec();
    }
    let per_bucket = points.len().div_ceil(MAX_POINTS / 2);
    let mut reduced = Vec::with_capacity(MAX_POINTS);
    for bucket in points.chunks(per_bucket) {
        let valued = || bucket.iter().enumerate().filter_map(|(n, p)| Some((n, p.1?)));
        let least = valued().min_by(|a, b| a.1.total_cmp(&b.1));
        let most = valued().max_by(|a, b| a.1.total_cmp(&b.1));
        match (least, most) {
            (Some((a, _)), Some((b, _))) if a != b => {
                reduced.extend([bucket[a.min(b)], bucket[a.max(b)]]);
            }
            (Some((a, _)), _) => reduced.push(bucket[a]),
            _ => reduced.extend(bucket.first()),
        }
    }
    reduced
}

/// Converts values to coordinates.
struct Scale {
    seconds: f64,
    most: f64,
}

impl Scale {
    fn x(&self, seconds: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * (seconds / self.seconds).clamp(0.0, 1.0)
    }

    fn y(&self, value: f64) -> f64 {
        BOTTOM - (BOTTOM - TOP) * (value / self.most).clamp(0.0, 1.0)
    }
}

fn figure(html: &mut Html, plot: &Plot, summary: &Summary, points: &[Point]) {
    let shown = points.iter().filter_map(|(_, value)| *value).fold(0.0, f64::max);
    let peak = summary.resources.get(plot.resource).and_then(|r| r.value).filter(|p| *p > shown);
    let greatest = peak.unwrap_or(shown);
    let limit = numbers::limit(summary, plot.resource).map(|limit| limit.most);
    let in_view = limit.filter(|most| *most <= LIMIT_IN_VIEW * greatest || greatest == 0.0);
    let last = points.last().map_or(0.0, |(seconds, _)| *seconds);
    let wall = summary.resources.get("wall_seconds").and_then(|r| r.value).unwrap_or(0.0);
    let scale = Scale {
        seconds: last.max(wall).max(1e-3),
        most: round_up(greatest.max(in_view.unwrap_or(0.0)), plot.unit),
    };
    html.raw("<figure>\n<h3>").raw(plot.title).raw("</h3>\n<svg viewBox=\"0 0 ");
    html.number(WIDTH).raw(" ").number(HEIGHT).raw("\" role=\"img\">\n<title>").raw(plot.title);
    html.raw(": at most ").text(&amount(greatest, plot.unit));
    if let Some(limit) = limit {
        html.raw(", limited to ").text(&amount(limit, plot.unit));
    }
    html.raw("</title>\n");
    axes(html, &scale, plot.unit);
    line(html, &scale, points);
    if let Some(peak) = peak {
        level(html, "peak", scale.y(peak), &format!("peak {}", amount(peak, plot.unit)));
    }
    match (limit, in_view) {
        (_, Some(limit)) => {
            level(html, "limit", scale.y(limit), &format!("limit {}", amount(limit, plot.unit)));
        }
        (Some(limit), None) => {
            let name = format!("limit {}, far above this scale", amount(limit, plot.unit));
            level(html, "limit", TOP, &name);
        }
        _ => {}
    }
    wall_limit(html, &scale, summary);
    html.raw("</svg>\n</figure>\n");
}

fn axes(html: &mut Html, scale: &Scale, unit: &str) {
    html.raw("<path class=\"axis\" d=\"M").number(LEFT).raw(" ").number(TOP).raw("V");
    html.number(BOTTOM).raw("H").number(RIGHT).raw("\"/>\n");
    for part in [0.0, 0.5, 1.0] {
        let (value, seconds) = (scale.most * part, scale.seconds * part);
        html.raw("<text text-anchor=\"end\" x=\"").number(LEFT - 6.0).raw("\" y=\"");
        html.number(scale.y(value) + 4.0).raw("\">").text(&amount(value, unit)).raw("</text>\n");
        html.raw("<text text-anchor=\"");
        html.raw(if part == 1.0 { "end" } else { "middle" }).raw("\" x=\"");
        html.number(scale.x(seconds)).raw("\" y=\"").number(BOTTOM + 16.0).raw("\">");
        let time = if part == 0.0 { "0".to_owned() } else { amount(seconds, "seconds") };
        html.text(&time).raw("</text>\n");
    }
}

fn line(html: &mut Html, scale: &Scale, points: &[Point]) {
    let mut stretches: Vec<Vec<(f64, f64)>> = vec![Vec::new()];
    for (seconds, value) in points {
        match (value, stretches.last_mut()) {
            (Some(value), Some(stretch)) => stretch.push((scale.x(*seconds), scale.y(*value))),
            _ => stretches.push(Vec::new()),
        }
    }
    for stretch in stretches.iter().filter(|stretch| !stretch.is_empty()) {
        if let [(x, y)] = stretch.as_slice() {
            html.raw("<circle class=\"dot\" r=\"2.5\" cx=\"").number(*x).raw("\" cy=\"");
            html.number(*y).raw("\"/>\n");
            continue;
        }
        html.raw("<polyline class=\"data\" points=\"");
        for (x, y) in stretch {
            html.number(*x).raw(",").number(*y).raw(" ");
        }
        html.raw("\"/>\n");
    }
}

/// Draws a line over the whole width with a name: that of a limit at the right end and that of a
/// peak at the left, since they may be close. `class` and `class-name` are styles.
fn level(html: &mut Html, class: &'static str, y: f64, name: &str) {
    html.raw("<path class=\"").raw(class).raw("\" d=\"M").number(LEFT).raw(" ").number(y);
    let is_peak = class == "peak";
    html.raw("H").number(RIGHT).raw("\"/>\n<text class=\"").raw(class).raw("-name\" x=\"");
    html.number(if is_peak { LEFT + 6.0 } else { RIGHT }).raw("\" y=\"");
    html.number(if y < TOP + 12.0 { y + 12.0 } else { y - 4.0 }).raw("\" text-anchor=\"");
    html.raw(if is_peak { "start" } else { "end" }).raw("\">").text(name).raw("</text>\n");
}

/// Draws the limit on time if the run came near it.
fn wall_limit(html: &mut Html, scale: &Scale, summary: &Summary) {
    let limit = numbers::limit(summary, "wall_seconds").map(|limit| limit.most);
    let Some(limit) = limit.filter(|limit| *limit <= scale.seconds) else { return };
    html.raw("<path class=\"limit\" d=\"M").number(scale.x(limit)).raw(" ").number(TOP).raw("V");
    html.number(BOTTOM).raw("\"><title>limit on time: ").text(&amount(limit, "seconds"));
    html.raw("</title></path>\n");
}

/// Returns the end of the scale: the next of 1, 1.2, 1.5, 2, … 10 times a power, so that half of it
/// is readable. Bytes use powers of 1024.
fn round_up(value: f64, unit: &str) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let base: f64 = if unit == "bytes" { 1024.0 } else { 1000.0 };
    let mut step = base.powf((value.ln() / base.ln()).floor());
    while value / step >= 10.0 {
        step *= 10.0;
    }
    const STEPS: [f64; 11] = [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    STEPS.iter().map(|n| n * step).find(|end| *end >= value).unwrap_or(value)
}
