//! A waterfall of a request as lines of text for a terminal.

use super::show::Request;

/// The narrowest picture of the bars. Below it, times cannot be told apart.
const MIN_BARS: usize = 10;

/// A line of a waterfall.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct WaterfallLine {
    /// Position of the call in [`Request::calls`].
    pub call: usize,
    /// The indented name, cut to its column.
    pub name: String,
    /// The bar: `-` outside of the target, `.` in its queue, `#` in its handler, `=` where only one side is known.
    pub bar: String,
}

/// Draws the calls of a request in `width` columns: names on the left, bars on the right.
pub fn waterfall(request: &Request, width: usize) -> Vec<WaterfallLine> {
    let width = width.max(2 * MIN_BARS);
    let deepest = request.calls.iter().map(|call| 2 * call.depth + call.name.chars().count());
    let names = deepest.max().unwrap_or(0).min(width / 2);
    let bars = width - names - 1;
    let scale = |ns: u64| {
        let whole = u128::from(request.duration_ns.max(1));
        (u128::from(ns.min(request.duration_ns)) * bars as u128 / whole) as usize
    };
    let line = |(at, call): (usize, &super::show::ShownCall)| {
        let first = scale(call.start_ns).min(bars - 1);
        let last = scale(call.start_ns + call.duration_ns).clamp(first + 1, bars);
        let mut bar = vec![' '; bars];
        let outside = if call.arrived_ns.is_some() { '-' } else { '=' };
        bar[first..last].fill(outside);
        let mut fill = |from: Option<u64>, to: Option<u64>, mark| {
            let (Some(from), Some(to)) = (from, to) else { return };
            let from = scale(from).clamp(first, last - 1);
            bar[from..scale(to).clamp(from, last)].fill(mark);
        };
        fill(call.arrived_ns, call.begun_ns, '.');
        fill(call.begun_ns, call.ended_ns, '#');
        let name: String = format!("{:indent$}{}", "", call.name, indent = 2 * call.depth);
        WaterfallLine {
            call: at,
            name: format!("{:names$}", name.chars().take(names).collect::<String>()),
            bar: bar.into_iter().collect::<String>().trim_end().to_owned(),
        }
    };
    request.calls.iter().enumerate().map(line).collect()
}
