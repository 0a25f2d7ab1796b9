//! One request: its calls in happens-before order, with times on one clock.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use super::calls::Call;
use super::tree::{Node, Tree};
use crate::analysis::stream::{Reader, Side, Visit};
use crate::analysis::trace::Trace;
use crate::error::Error;
use crate::interval::Interval;

/// The most calls of a request that are shown. A request with more is a job; its profile says more than its list.
pub const MAX_CALLS: usize = 100_000;

/// A request with all its calls.
#[derive(Clone, Debug, Serialize)]
pub struct Request {
    /// The id as 32 hexadecimal digits, or 16 if only the lower half is known.
    pub id: String,
    /// Begin in ns since 1970, on the clock of the reference process.
    pub start_ns: i64,
    /// Time from the first begin to the last end in ns.
    pub duration_ns: u64,
    /// The calls, each before the calls that it caused.
    pub calls: Vec<ShownCall>,
    /// The greatest error of the corrections of the clocks of its processes in ns.
    pub clock_bound_ns: u64,
    /// Processes whose clocks no call relates to the others; their times are as they wrote them.
    pub unrelated_processes: u64,
    /// Records of a side that another record has already.
    pub duplicates: u64,
    /// Calls whose parent has no record; they stand beside the first call.
    pub orphans: u64,
    /// Sides beyond [`MAX_CALLS`] that are not shown.
    pub sides_left_out: u64,
}

/// One call of a request.
#[derive(Clone, Debug, Serialize)]
pub struct ShownCall {
    /// Id of the call as 16 hexadecimal digits.
    pub span: String,
    /// Depth: 0 for the first call.
    pub depth: usize,
    /// The name of the RPC.
    pub name: String,
    /// The process that made the call.
    pub origin: Option<String>,
    /// The process that served it, or the name by which the origin knows it.
    pub target: Option<String>,
    /// `ok`, `error`, `cancelled`, `timed_out`: the worst of both sides.
    pub status: &'static str,
    /// Begin, in ns after the begin of the request.
    pub start_ns: u64,
    /// Duration in ns.
    pub duration_ns: u64,
    /// Begin at the target, in ns after the begin of the request, if its side is known.
    pub arrived_ns: Option<u64>,
    /// Begin of the handler.
    pub begun_ns: Option<u64>,
    /// End of the handler.
    pub ended_ns: Option<u64>,
    /// Lamport clock at the end of the side that ended last.
    pub lamport: u32,
    /// Order counter of the request.
    pub order: u16,
    /// The side without a record, if there is one.
    pub missing: Option<&'static str>,
    /// True if the parent was found by the callpath, because its record names none that is known.
    pub is_adopted: bool,
    /// The intervals of both sides: name and ns.
    pub intervals: Vec<(&'static str, u64)>,
    /// Variables of both sides: name, unit and value.
    pub variables: Vec<(String, String, u64)>,
}

/// Returns the text of a request's id.
pub(crate) fn id_text(high: u64, low: u64) -> String {
    match high {
        0 => format!("{low:016x}"),
        high => format!("{high:016x}{low:016x}"),
    }
}

/// Parses an id: 32 hexadecimal digits, or the last 16 of them.
///
/// # Errors
/// The text is not an id.
pub fn parse_id(text: &str) -> Result<u64, Error> {
    let digits = text.trim();
    let low = match digits.len() {
        32 if digits.is_ascii() => &digits[16..],
        1..=16 => digits,
        _ => "",
    };
    let is_hex = !low.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let low = u64::from_str_radix(low, 16).ok().filter(|low| is_hex && *low != 0);
    low.ok_or_else(|| Error::Input {
        input: format!("`{text}`"),
        why:
            "not the id of a request; an id has 32 hexadecimal digits, or the last 16 of them, as \
              the list of requests shows it"
                .to_owned(),
    })
}

struct HighHalves {
    wanted: HashSet<u64>,
    found: HashMap<u64, u64>,
}

impl Visit for HighHalves {
    fn side(&mut self, side: &Side, _: &Reader) {
        if side.request_high != 0 && self.wanted.contains(&side.request) {
            self.found.insert(side.request, side.request_high);
        }
    }
}

/// The upper halves of ids, which the compact form of calls has not.
pub(crate) fn high_halves(
    trace: &Trace<'_>,
    wanted: HashSet<u64>,
) -> Result<HashMap<u64, u64>, Error> {
    let mut visit = HighHalves { wanted, found: HashMap::new() };
    trace.stream(&mut visit)?;
    Ok(visit.found)
}

#[derive(Default)]
struct One {
    request: u64,
    sides: Vec<Side>,
    left_out: u64,
}

impl Visit for One {
    fn side(&mut self, side: &Side, _: &Reader) {
        if side.request != self.request {
            return;
        }
        match self.sides.len() < MAX_CALLS {
            true => self.sides.push(side.clone()),
            false => self.left_out += 1,
        }
    }
}

/// Returns the request with this id.
///
/// # Errors
/// The id is malformed or not in the trace, or a file cannot be read any more.
pub fn show(trace: &Trace<'_>, id: &str) -> Result<Request, Error> {
    let mut one = One { request: parse_id(id)?, ..One::default() };
    trace.stream(&mut one)?;
    if one.sides.is_empty() {
        return Err(Error::Input {
            input: format!("the request `{id}`"),
            why: "it has no record in this trace; the list of requests shows the ids".to_owned(),
        });
    }
    let correct = |side: &Side| Call::new(side, trace.clocks.correct(side.process, side.start));
    one.sides.sort_by_key(|side| (side.span, side.kind as u8));
    let calls: Vec<Call> = one.sides.iter().map(correct).collect();
    let tree = Tree::build(&calls, &trace.reader.callpaths);
    let (start, end) = tree.extent().unwrap_or((0, 0));
    let labels = trace.labels();
    let bound = |call: &Call| trace.clocks.corrections.get(call.process as usize)?.bound_ns;
    let mut unrelated: Vec<u32> =
        calls.iter().filter(|call| bound(call).is_none()).map(|call| call.process).collect();
    unrelated.sort_unstable();
    unrelated.dedup();
    let high = one.sides.iter().map(|side| side.request_high).find(|high| *high != 0).unwrap_or(0);
    let view = View { trace, labels: &labels, sides: &one.sides, start };
    Ok(Request {
        id: id_text(high, one.request),
        start_ns: start,
        duration_ns: end.abs_diff(start),
        calls: tree.walk().iter().map(|(at, depth)| view.call(&tree.nodes[*at], *depth)).collect(),
        clock_bound_ns: trace.clocks.bound_of(calls.iter().map(|call| call.process)),
        unrelated_processes: unrelated.len() as u64,
        duplicates: tree.duplicates as u64,
        orphans: tree.orphans as u64,
        sides_left_out: one.left_out,
    })
}

struct View<'v> {
    trace: &'v Trace<'v>,
    labels: &'v [String],
    sides: &'v [Side],
    start: i64,
}

impl View<'_> {
    fn call(&self, node: &Node, depth: usize) -> ShownCall {
        let after = |time: i64| time.saturating_sub(self.start).max(0).unsigned_abs();
        let label = |call: Call| self.labels.get(call.process as usize).cloned();
        let first = self.sides.partition_point(|side| side.span < node.span);
        let sides: Vec<&Side> =
            self.sides[first..].iter().take_while(|side| side.span == node.span).collect();
        let peer = || {
            let name = sides.iter().find_map(|side| side.peer)?;
            self.trace.reader.peers.get(name as usize).cloned()
        };
        let missing = match (node.origin, node.target) {
            _ if node.is_local() => None,
            (None, Some(_)) => Some("origin"),
            (Some(_), None) => Some("target"),
            _ => None,
        };
        let intervals = Interval::ALL.into_iter().filter_map(|interval| {
            let ns = sides.iter().find_map(|side| side.interval(interval))?;
            Some((interval.name(), ns))
        });
        let variables = sides.iter().flat_map(|side| side.values()).filter_map(|(pvar, value)| {
            let pvar = self.trace.reader.pvars.get(*pvar as usize)?;
            Some((pvar.name.clone(), pvar.unit.clone(), *value))
        });
        let both = [node.origin, node.target];
        ShownCall {
            span: format!("{:016x}", node.span),
            depth,
            name: self.trace.reader.callpaths.get(node.path).name.clone(),
            origin: node.origin.and_then(label),
            target: node.target.and_then(label).or_else(peer),
            status: node.status().name(),
            start_ns: after(node.start),
            duration_ns: node.duration(),
            arrived_ns: node.target.map(|_| after(node.arrived)),
            begun_ns: node.target.map(|_| after(node.begun)),
            ended_ns: node.target.map(|_| after(node.ended)),
            lamport: both.iter().flatten().map(|call| call.lamport).max().unwrap_or(0),
            order: both.iter().flatten().map(|call| call.order).max().unwrap_or(0),
            missing,
            is_adopted: node.is_adopted,
            intervals: intervals.collect(),
            variables: variables.collect(),
        }
    }
}
