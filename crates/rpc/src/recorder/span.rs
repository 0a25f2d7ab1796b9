//! One side of a call while it lasts.

use std::sync::atomic::Ordering;

use skopos_shm::records::Stored;
use skopos_shm::records::layout::Counter;

use crate::callpath::ROOT;
use crate::context::{Context, NEWER, RECORDED};
use crate::interval::Interval;
use crate::pvar::{Bound, Pvar};
use crate::record::{
    DETAILS_VALUES, Kind, RECORD_WORDS, SpanRecord, Status, Tagged, details_words,
};
use crate::recorder::core::{Inner, PeerId, Rpc, Source};
use crate::recorder::local;
use crate::recorder::stage::Stage;

/// Most tagged values of a span: the nine intervals of the paper, and five variables.
pub const MAX_VALUES: usize = 2 * DETAILS_VALUES;

/// One side of a call while it lasts. [`Span::end`] records it; a span that is dropped was cancelled.
#[derive(Debug)]
pub struct Span(Option<Live>);

#[derive(Debug)]
struct Live {
    inner: &'static Inner,
    request_low: u64,
    request_high: u64,
    span: u64,
    parent: u64,
    /// Ticks.
    start: u64,
    node: u32,
    lamport: u32,
    order: u16,
    peer: u16,
    kind: Kind,
    flags: u8,
    /// Number of values.
    filled: u8,
    callpath: u64,
    /// Moments in ticks; 0 before they came.
    begun: u64,
    responded: u64,
    /// Time of calls to others, ns.
    excluded: u64,
    /// Absent until the first value comes: most spans have none, and clearing it takes time.
    values: Option<[Tagged; MAX_VALUES]>,
}

/// Returns the context of a new request.
pub(crate) fn new_request(inner: &Inner) -> Context {
    let begin = local::begin(inner, (ROOT, Source::Own), Rpc::OTHER, 0);
    let (request, span) = begin.map_or(((0, 1), 1), |begin| (begin.request, begin.span));
    Context {
        request_low: request.1,
        request_high: request.0,
        span,
        callpath: ROOT,
        lamport: 0,
        order: 0,
        flags: RECORDED,
    }
}

impl Span {
    /// A span that records nothing.
    pub(crate) const OFF: Self = Self(None);

    /// Begins a span; `arrived` is the moment in ticks if it was before. Not inlined: callers inline the look at the stage.
    #[inline(never)]
    pub(crate) fn start(
        inner: &'static Inner,
        kind: Kind,
        rpc: Rpc,
        context: Option<&Context>,
        arrived: Option<u64>,
    ) -> Self {
        if !inner.segment.is_own() {
            // A child after `fork`: its copy of the recorder records nothing.
            inner.stage.store(0, Ordering::Relaxed);
            return Self::OFF;
        }
        // The context of a caller that records nothing: its requests are not told apart.
        let context = context.filter(|c| c.span != 0 || c.flags & RECORDED != 0);
        let (above, clock) = context.map_or((ROOT, 0), |c| (c.callpath, c.lamport));
        let is_target = kind == Kind::Target;
        let source = if is_target { Source::Foreign } else { Source::Own };
        let begin = local::begin(inner, (above, source), rpc, clock);
        let Some(begin) = begin else { return Self::OFF };
        if is_target && context.is_some_and(|c| c.flags & NEWER != 0) {
            inner.count(Counter::NewerContexts);
        }
        let (request, parent, order, flags) = match context {
            Some(c) => {
                let order = if is_target { c.order } else { c.next_order() };
                ((c.request_high, c.request_low), c.span, order, c.flags & !NEWER)
            }
            None => (begin.request, 0, 1, RECORDED),
        };
        Self(Some(Live {
            inner,
            request_low: request.1,
            request_high: request.0,
            span: if is_target && parent != 0 { parent } else { begin.span },
            parent: if is_target { 0 } else { parent },
            node: begin.node,
            lamport: begin.lamport,
            order,
            peer: 0,
            kind,
            flags,
            filled: 0,
            callpath: if kind == Kind::Origin { above } else { begin.hash },
            begun: 0,
            responded: 0,
            excluded: 0,
            values: None,
            start: arrived.unwrap_or_else(|| inner.ticks.now()),
        }))
    }

    /// Returns the context: of an origin, for the request; of a target or a local step, for the calls below it. Without
    /// recording it is that of an unknown request: a span below it begins a new request.
    #[inline]
    pub fn context(&self) -> Context {
        let (request_low, request_high, span, callpath, lamport, order, flags) = match &self.0 {
            None => (1, 0, 0, ROOT, 0, 0, 0),
            Some(l) => {
                (l.request_low, l.request_high, l.span, l.callpath, l.lamport, l.order, l.flags)
            }
        };
        Context { request_low, request_high, span, callpath, lamport, order, flags }
    }

    /// Returns false if nothing is recorded.
    #[inline]
    pub fn is_recorded(&self) -> bool {
        self.0.is_some()
    }

    /// The handler begins (t5): the time since the arrival was spent in a queue.
    #[inline]
    pub fn begin(&mut self) {
        if let Some(live) = &mut self.0 {
            live.begun = live.inner.ticks.now();
        }
    }

    /// The handler ends (t8): the time from here to [`Span::end`] is that of the response.
    #[inline]
    pub fn respond(&mut self) {
        if let Some(live) = &mut self.0 {
            live.responded = live.inner.ticks.now();
        }
    }

    /// Takes `ns` of calls to others out of the exclusive time of the handler.
    #[inline]
    pub fn exclude(&mut self, ns: u64) {
        if let Some(live) = &mut self.0 {
            live.excluded = live.excluded.saturating_add(ns);
        }
    }

    /// Adds an interval of `ns`; a second value of the same interval replaces the first.
    #[inline]
    pub fn interval(&mut self, interval: Interval, ns: u64) {
        if let Some(live) = &mut self.0 {
            live.add(Tagged::new(interval.tag(), ns));
        }
    }

    /// Adds an interval between two moments of [`crate::Recorder::ticks`].
    #[inline]
    pub fn interval_between(&mut self, interval: Interval, from: u64, to: u64) {
        if let Some(live) = &mut self.0 {
            let ns = live.inner.ns(to.saturating_sub(from));
            live.add(Tagged::new(interval.tag(), ns));
        }
    }

    /// Adds the value of a variable; a second value of the same variable replaces the first.
    #[inline]
    pub fn pvar(&mut self, pvar: &Pvar, value: u64) {
        if let Some(live) = &mut self.0 {
            live.add(Tagged::new(pvar.tag(), value));
        }
    }

    /// Samples a variable of the process and adds its value.
    pub fn sample(&mut self, pvar: &Pvar) {
        if let Some(live) = &mut self.0
            && let Some(value) = live.inner.registry.sample_one(pvar.number())
        {
            live.add(Tagged::new(pvar.tag(), value));
        }
    }

    /// Names the other entity.
    #[inline]
    pub fn peer(&mut self, peer: PeerId) {
        if let Some(live) = &mut self.0 {
            live.peer = peer.0;
        }
    }

    /// Takes the Lamport clock of a response into account.
    #[inline]
    pub fn observe(&mut self, lamport: u32) {
        if let Some(live) = &mut self.0 {
            live.lamport = live.lamport.max(lamport);
        }
    }

    /// Ends the span and records it. Returns its duration in ns, 0 if nothing is recorded.
    #[inline]
    pub fn end(mut self, status: Status) -> u64 {
        match &mut self.0 {
            None => 0,
            Some(live) => {
                let (inner, ticks) = (live.inner, live.finish(status));
                self.0 = None;
                inner.ns(ticks)
            }
        }
    }
}

impl Live {
    #[inline]
    fn add(&mut self, value: Tagged) {
        let filled = usize::from(self.filled).min(MAX_VALUES);
        let values = self.values.get_or_insert([Tagged(0); MAX_VALUES]);
        let same = values[..filled].iter().position(|v| v.tag() == value.tag());
        match values.get_mut(same.unwrap_or(filled)) {
            Some(place) => {
                *place = value;
                self.filled += u8::from(same.is_none());
            }
            None => self.inner.count(Counter::ValuesRefused),
        }
    }

    /// Adds the intervals of a target that follow from its moments.
    fn add_moments(&mut self, now: u64) {
        let ended = if self.responded > 0 { self.responded } else { now };
        let ns = |from: u64, to: u64| self.inner.ns(to.saturating_sub(from));
        let queue = ns(self.start, self.begun);
        let exclusive = ns(self.begun, ended).saturating_sub(self.excluded);
        let response = (self.responded > 0).then(|| ns(self.responded, now));
        self.add(Tagged::new(Interval::TargetHandler.tag(), queue));
        self.add(Tagged::new(Interval::TargetExecutionExclusive.tag(), exclusive));
        if self.excluded > 0 {
            self.add(Tagged::new(Interval::Children.tag(), self.excluded));
        }
        if let Some(response) = response {
            self.add(Tagged::new(Interval::TargetCompletionCallback.tag(), response));
        }
    }

    /// Samples the variables of the process that ride on each record.
    #[cold]
    fn add_riders(&mut self, riders: &[u16]) {
        for number in riders {
            if let Some(value) = self.inner.registry.sample_one(*number) {
                self.add(Tagged::new(crate::record::FIRST_PVAR_TAG + number, value));
            }
        }
    }

    /// Records the span and returns its duration in ticks.
    #[inline(never)]
    fn finish(&mut self, status: Status) -> u64 {
        let inner = self.inner;
        let now = inner.ticks.now();
        let duration = now.saturating_sub(self.start);
        let stage = inner.stage.load(Ordering::Relaxed);
        if stage < Stage::Spans as u32 {
            return duration;
        }
        let mut values = None;
        if stage >= Stage::Full as u32 {
            if self.begun > 0 && self.kind == Kind::Target {
                self.add_moments(now);
            }
            if let Some(riders) = inner.registry.riding() {
                self.add_riders(&riders);
            }
            values = self.values.as_ref();
        }
        let stored = match values {
            None => local::end(inner, self.lamport, 1, |lamport| {
                [self.record(status, duration, lamport, 0).words()]
            }),
            Some(values) => self.write_with(values, status, duration),
        };
        match stored {
            Stored::Yes => {}
            Stored::Quarter => inner.wake(),
            Stored::Forked => inner.stage.store(0, Ordering::Relaxed),
        }
        duration
    }

    /// Writes the record and its values.
    fn write_with(&self, values: &[Tagged; MAX_VALUES], status: Status, duration: u64) -> Stored {
        let groups = usize::from(self.filled).div_ceil(DETAILS_VALUES);
        local::end(self.inner, self.lamport, 1 + groups, |lamport| {
            let mut records = [[0; RECORD_WORDS]; 1 + MAX_VALUES / DETAILS_VALUES];
            records[0] = self.record(status, duration, lamport, groups as u16).words();
            let values = values.as_chunks::<DETAILS_VALUES>().0;
            for (words, values) in records[1..].iter_mut().zip(values) {
                *words = details_words(values);
            }
            records
        })
    }

    #[inline(always)]
    fn record(&self, status: Status, duration: u64, lamport: u32, details: u16) -> SpanRecord {
        SpanRecord {
            request_low: self.request_low,
            request_high: self.request_high,
            span: self.span,
            parent: self.parent,
            start: self.start,
            duration,
            node: self.node,
            lamport,
            order: self.order,
            kind: self.kind,
            status,
            details,
            peer: self.peer,
        }
    }
}

impl Bound for Span {
    fn value_of(&self, tag: u16) -> Option<u64> {
        let live = self.0.as_ref()?;
        let values = live.values.as_ref()?.get(..usize::from(live.filled))?;
        values.iter().find(|value| value.tag() == tag).map(|value| value.value())
    }
}

impl Drop for Span {
    #[inline]
    fn drop(&mut self) {
        if let Some(live) = &mut self.0 {
            live.finish(Status::Cancelled);
        }
    }
}
