//! The list of requests: filters, order and bound.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::Serialize;

use super::calls::{Call, MAX_HELD, each_request};
use crate::analysis::trace::Trace;
use crate::error::Error;
use crate::record::{Kind, Status};

/// Chooses requests.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only requests with a call whose callpath text contains this.
    pub callpath: Option<String>,
    /// Only requests that a process touched whose label contains this.
    pub process: Option<String>,
    /// Only requests that take at least this long, in ns.
    pub at_least_ns: u64,
    /// Only requests with a call that failed.
    pub only_failed: bool,
    /// The order of the list.
    pub order: Order,
    /// The most requests; 0 is [`DEFAULT_LIMIT`].
    pub limit: usize,
    /// The most sides of calls in memory; 0 is [`MAX_HELD`].
    pub most_held: usize,
}

/// The length of a list unless the filter says otherwise: a screen.
pub const DEFAULT_LIMIT: usize = 20;

/// The longest list: a million requests take 200 MB.
pub const MAX_LIMIT: usize = 1_000_000;

/// The order of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The slowest first.
    #[default]
    Slowest,
    /// The earliest first.
    Earliest,
    /// The latest first.
    Latest,
}

/// The requests of a trace.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Requests {
    /// The first ones in the order of the filter.
    pub requests: Vec<RequestLine>,
    /// Number of requests in the trace.
    pub total: u64,
    /// Number of requests that passed the filter.
    pub matching: u64,
    /// Requests of which the first call has no record of its origin: their duration is that of the records there are.
    pub incomplete: u64,
    /// Calls that were left out because one request has too many.
    pub calls_left_out: u64,
    /// The greatest error of the correction of clocks in ns.
    pub clock_bound_ns: u64,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RequestLine {
    /// The id as 32 hexadecimal digits, or 16 if only the lower half is known.
    pub id: String,
    /// Begin in ns since 1970.
    pub start_ns: i64,
    /// Duration in ns.
    pub duration_ns: u64,
    /// The callpath of the first call.
    pub root: String,
    /// Number of calls, each with one or both sides.
    pub calls: u64,
    /// Sides of calls that did not end well.
    pub failed: u64,
    /// Number of processes.
    pub processes: u64,
    /// True if the first call has no record of its origin.
    pub is_incomplete: bool,
}

/// What a list keeps of a request until it knows which it shows.
struct Kept {
    request: u64,
    start: i64,
    duration: u64,
    path: u32,
    calls: u64,
    failed: u64,
    processes: u64,
    is_incomplete: bool,
}

/// Lists the requests of a trace.
///
/// # Errors
/// A file cannot be read any more.
pub fn requests(trace: &Trace<'_>, filter: &Filter) -> Result<Requests, Error> {
    let limit = if filter.limit == 0 { DEFAULT_LIMIT } else { filter.limit.min(MAX_LIMIT) };
    let most = if filter.most_held == 0 { MAX_HELD } else { filter.most_held };
    let chosen = Chosen::new(trace, filter);
    let mut found = Requests { clock_bound_ns: trace.clocks.bound_ns(), ..Requests::default() };
    // The worst of the best `limit` requests is on top, to be replaced.
    let mut heap: BinaryHeap<Reverse<(i64, u64)>> = BinaryHeap::new();
    let mut kept: std::collections::HashMap<u64, Kept> = std::collections::HashMap::new();
    found.calls_left_out = each_request(trace, most, |calls| {
        found.total += 1;
        let request = summarise(calls);
        found.incomplete += u64::from(request.is_incomplete);
        if !chosen.has(calls, &request) {
            return;
        }
        found.matching += 1;
        let rank = match filter.order {
            Order::Slowest => i64::try_from(request.duration).unwrap_or(i64::MAX),
            Order::Earliest => request.start.saturating_neg(),
            Order::Latest => request.start,
        };
        if heap.len() >= limit {
            match heap.peek() {
                Some(Reverse(least)) if *least < (rank, request.request) => {
                    if let Some(Reverse((_, evicted))) = heap.pop() {
                        kept.remove(&evicted);
                    }
                }
                _ => return,
            }
        }
        heap.push(Reverse((rank, request.request)));
        kept.insert(request.request, request);
    })?;
    let ids = super::show::high_halves(trace, kept.keys().copied().collect())?;
    let mut ranked: Vec<_> = heap.into_iter().map(|Reverse(rank)| rank).collect();
    ranked.sort_unstable_by(|a, b| b.cmp(a));
    found.requests = ranked
        .iter()
        .filter_map(|(_, request)| kept.get(request))
        .map(|request| line(trace, request, ids.get(&request.request).copied().unwrap_or(0)))
        .collect();
    Ok(found)
}

fn line(trace: &Trace<'_>, request: &Kept, high: u64) -> RequestLine {
    RequestLine {
        id: super::show::id_text(high, request.request),
        start_ns: request.start,
        duration_ns: request.duration,
        root: trace.reader.callpaths.text(request.path),
        calls: request.calls,
        failed: request.failed,
        processes: request.processes,
        is_incomplete: request.is_incomplete,
    }
}

fn summarise(calls: &[Call]) -> Kept {
    let mut kept = Kept {
        request: calls.first().map_or(0, |call| call.request),
        start: i64::MAX,
        duration: 0,
        path: 0,
        calls: 0,
        failed: 0,
        processes: 0,
        is_incomplete: false,
    };
    let (mut last, mut last_span) = (i64::MIN, None);
    let mut root: Option<&Call> = None;
    let mut processes: Vec<u32> = Vec::new();
    for call in calls {
        kept.start = kept.start.min(call.start);
        last = last.max(call.end());
        kept.failed += u64::from(call.status != Status::Ok);
        kept.calls += u64::from(last_span != Some(call.span));
        last_span = Some(call.span);
        if !processes.contains(&call.process) {
            processes.push(call.process);
        }
        let is_root = call.kind == Kind::Origin && call.parent == 0;
        if is_root && root.is_none_or(|root| call.start < root.start) {
            root = Some(call);
        }
    }
    kept.processes = processes.len() as u64;
    kept.is_incomplete = root.is_none();
    match root {
        Some(root) => {
            (kept.start, kept.duration, kept.path) = (root.start, root.duration, root.path)
        }
        None => {
            let first = calls.iter().min_by_key(|call| call.start);
            kept.path = first.map_or(0, |call| call.path);
            kept.duration = last.abs_diff(kept.start);
        }
    }
    kept
}

/// The filter with the numbers of the names that it wants.
struct Chosen<'f> {
    filter: &'f Filter,
    paths: Option<Vec<bool>>,
    processes: Option<Vec<bool>>,
}

impl<'f> Chosen<'f> {
    fn new(trace: &Trace<'_>, filter: &'f Filter) -> Self {
        let callpaths = &trace.reader.callpaths;
        let paths = filter.callpath.as_ref().map(|wanted| {
            (0..callpaths.len()).map(|id| callpaths.text(id as u32).contains(wanted)).collect()
        });
        let processes = filter
            .process
            .as_ref()
            .map(|wanted| trace.labels().iter().map(|label| label.contains(wanted)).collect());
        Self { filter, paths, processes }
    }

    fn has(&self, calls: &[Call], request: &Kept) -> bool {
        let any = |wanted: &Option<Vec<bool>>, number: fn(&Call) -> u32| match wanted {
            Some(wanted) => {
                calls.iter().any(|call| wanted.get(number(call) as usize).copied().unwrap_or(false))
            }
            None => true,
        };
        request.duration >= self.filter.at_least_ns
            && (!self.filter.only_failed || request.failed > 0)
            && any(&self.paths, |call| call.path)
            && any(&self.processes, |call| call.process)
    }
}
