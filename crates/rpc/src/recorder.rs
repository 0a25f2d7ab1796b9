//! The recorder of a process, and the spans that it makes.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};

use skopos_model::unpoisoned;

use crate::callpath::{ROOT, child, name_hash};
use crate::context::{Context, RECORDED};
use crate::error::Error;
use crate::file::{
    ClockPoint, Counters, Definition, End, MAX_NAME_BYTES, Node, Peer, Process, TRACE_ENDING,
    TRACE_VERSION, TraceWriter, cut,
};
use crate::interval::Interval;
use crate::pvar::{Bound, Pvar, Registry};
use crate::record::{
    DETAILS_VALUES, Kind, SpanRecord, Status, Tagged, details_words, words_to_bytes,
};

/// Most callpath nodes of a process, and most names of calls: a thousand times those of a service, 4 MiB of memory.
pub const MAX_NODES: usize = 65_536;
/// Most names of peers: the number in a record has 16 bits.
pub const MAX_PEERS: usize = 65_535;
/// Most tagged values of a span: the nine intervals of the paper, and five variables.
pub const MAX_VALUES: usize = 2 * DETAILS_VALUES;
/// Name of the node of all callpaths for which there is no room.
pub const OTHER: &str = "other";

/// The amount of what is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Stage {
    /// Nothing: spans cost a comparison.
    Off = 0,
    /// Requests carry their context, and nothing is written.
    Context = 1,
    /// A record for each side of a call.
    Spans = 2,
    /// Spans with intervals and variables, and samples of the process.
    #[default]
    Full = 3,
}

impl Stage {
    /// All stages, from the smallest to the greatest.
    pub const ALL: [Self; 4] = [Self::Off, Self::Context, Self::Spans, Self::Full];

    /// Returns the name: `off`, `context`, `spans` or `full`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Context => "context",
            Self::Spans => "spans",
            Self::Full => "full",
        }
    }

    /// Returns the stage of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.name() == name)
    }

    /// Returns the stage of a number; a number of a newer version is the greatest stage.
    pub fn from_code(code: u32) -> Self {
        Self::ALL.get(code as usize).copied().unwrap_or(Self::Full)
    }
}

/// The settings of a recorder.
#[derive(Debug)]
pub struct Options {
    name: String,
    node: String,
    dir: Option<PathBuf>,
    trace_folder: Option<PathBuf>,
    stage: Stage,
    process: Process,
}

impl Options {
    /// Describes the recorder of service `name`: 1 to 48 of the characters `a-z 0-9 _ - .`.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            node: String::new(),
            dir: None,
            trace_folder: None,
            stage: Stage::default(),
            process: Process::default(),
        }
    }

    /// Sets the name of the node.
    #[must_use]
    pub fn node(mut self, node: &str) -> Self {
        node.clone_into(&mut self.node);
        self
    }

    /// Sets the runtime directory of the segment, instead of [`skopos_shm::runtime_dir`].
    #[must_use]
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Sets the folder of the trace. Without it the agent of the node collects the records.
    #[must_use]
    pub fn trace_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.trace_folder = Some(folder.into());
        self
    }

    /// Sets the stage at the beginning; [`Stage::Full`] unless set.
    #[must_use]
    pub fn stage(mut self, stage: Stage) -> Self {
        self.stage = stage;
        self
    }

    /// Names the RPC library, such as `tonic 0.14`.
    #[must_use]
    pub fn host(mut self, host: &str) -> Self {
        host.clone_into(&mut self.process.host);
        self
    }

    /// Names intervals that the host sees.
    #[must_use]
    pub fn sees(mut self, intervals: &[Interval]) -> Self {
        self.process.intervals.extend(intervals.iter().map(|i| i.name().to_owned()));
        self
    }

    /// Names an interval that the host cannot see, with the reason.
    #[must_use]
    pub fn cannot_see(mut self, interval: Interval, reason: &str) -> Self {
        self.process.unseen.insert(interval.name().to_owned(), reason.to_owned());
        self
    }

    /// Sets a value of the service's configuration, which is kept with the trace.
    #[must_use]
    pub fn config(mut self, key: &str, value: impl ToString) -> Self {
        self.process.config.insert(key.to_owned(), value.to_string());
        self
    }
}

/// The interned name of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rpc {
    id: u32,
    hash: u64,
}

/// The interned name of another entity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PeerId(u16);

/// The recorder of a process; a handle that can be copied to all threads. Off by default: see [`Recorder::off`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Recorder(Option<&'static Inner>);

#[derive(Debug)]
struct Inner {
    stage: AtomicU32,
    registry: Registry,
    names: Mutex<Names>,
    writer: Mutex<Option<TraceWriter>>,
    process: Mutex<Process>,
    lamport: AtomicU32,
    values_refused: AtomicU64,
    ids: AtomicU64,
}

#[derive(Debug, Default)]
struct Names {
    rpcs: HashMap<String, u32>,
    rpc_names: Vec<String>,
    nodes: HashMap<(u64, u32), u32>,
    peers: HashMap<String, u16>,
    nodes_refused: u64,
    names_refused: u64,
    peers_refused: u64,
    pvars_written: usize,
}

static GLOBAL: RwLock<Recorder> = RwLock::new(Recorder(None));
static NOTHING: std::sync::LazyLock<Registry> = std::sync::LazyLock::new(Registry::default);

impl Recorder {
    /// Starts the recorder of a service.
    ///
    /// # Errors
    /// [`Error::Name`]; [`Error::Io`] if the folder of the trace cannot be written; [`Error::Shm`] if the segment cannot
    /// be made.
    pub fn start(options: Options) -> Result<Self, Error> {
        let Options { name, node, dir: _, trace_folder, stage, mut process } = options;
        process.version = TRACE_VERSION;
        process.pid = std::process::id();
        process.name.clone_from(&name);
        process.node = node;
        process.start_ticks = skopos_shm::boottime();
        let mut writer = match trace_folder {
            None => None,
            Some(folder) => {
                let file = format!("{name}-{}-{}.{TRACE_ENDING}", process.pid, process.start_ticks);
                Some(TraceWriter::create(&folder.join(file), &process)?)
            }
        };
        if let Some(writer) = &mut writer {
            let (ticks, unix_ns) = (skopos_shm::boottime(), skopos_shm::now().as_nanos());
            writer.clock(&ClockPoint { ticks, unix_ns, ns_per_tick: 1.0, error_ns: 1000 })?;
        }
        let inner = Inner {
            stage: AtomicU32::new(stage as u32),
            registry: Registry::default(),
            names: Mutex::default(),
            writer: Mutex::new(writer),
            process: Mutex::new(process),
            lamport: AtomicU32::new(0),
            values_refused: AtomicU64::new(0),
            ids: AtomicU64::new(skopos_shm::boottime() | 1),
        };
        Ok(Self(Some(Box::leak(Box::new(inner)))))
    }

    /// Returns a recorder that records nothing.
    pub const fn off() -> Self {
        Self(None)
    }

    /// Returns the recorder that [`Recorder::set_global`] set; one that is off before. Hosts take it when they start.
    pub fn global() -> Self {
        *unpoisoned(GLOBAL.read())
    }

    /// Makes this the recorder of the hosts that start from now on.
    pub fn set_global(self) {
        *unpoisoned(GLOBAL.write()) = self;
    }

    /// Interns the name of a call. Do it once for each call, not for each request: it takes a lock.
    pub fn rpc(&self, name: &str) -> Rpc {
        let Some(inner) = self.0 else { return Rpc { id: 0, hash: name_hash(OTHER) } };
        let name = cut(name, MAX_NAME_BYTES);
        let mut names = unpoisoned(inner.names.lock());
        if names.rpc_names.is_empty() {
            names.rpc_names.push(OTHER.to_owned());
            names.rpcs.insert(OTHER.to_owned(), 0);
        }
        if let Some(id) = names.rpcs.get(name) {
            return Rpc { id: *id, hash: name_hash(name) };
        }
        if names.rpc_names.len() >= MAX_NODES {
            names.names_refused += 1;
            return Rpc { id: 0, hash: name_hash(OTHER) };
        }
        let id = names.rpc_names.len() as u32;
        names.rpc_names.push(name.to_owned());
        names.rpcs.insert(name.to_owned(), id);
        Rpc { id, hash: name_hash(name) }
    }

    /// Interns the name of another entity, such as an address; the unknown entity if there are too many.
    pub fn peer(&self, name: &str) -> PeerId {
        let Some(inner) = self.0 else { return PeerId(0) };
        let name = cut(name, MAX_NAME_BYTES);
        let mut names = unpoisoned(inner.names.lock());
        if let Some(id) = names.peers.get(name) {
            return PeerId(*id);
        }
        if names.peers.len() >= MAX_PEERS {
            names.peers_refused += 1;
            return PeerId(0);
        }
        let id = names.peers.len() as u16 + 1;
        names.peers.insert(name.to_owned(), id);
        inner.define(&Definition::Peer(Peer { id, name: name.to_owned() }));
        PeerId(id)
    }

    /// Begins the caller's side of a call, below `parent`; without a parent a new request begins.
    #[inline]
    pub fn origin(&self, rpc: Rpc, parent: Option<&Context>) -> Span {
        self.span(Kind::Origin, rpc, parent)
    }

    /// Begins the callee's side of a call, at its arrival (t4).
    #[inline]
    pub fn target(&self, rpc: Rpc, context: &Context) -> Span {
        self.span(Kind::Target, rpc, Some(context))
    }

    /// Begins the callee's side of a call that arrived (t4) at `arrived` of [`Recorder::ticks`].
    #[inline]
    pub fn target_at(&self, rpc: Rpc, context: &Context, arrived: u64) -> Span {
        let mut span = self.span(Kind::Target, rpc, Some(context));
        if let Some(live) = &mut span.0 {
            live.record.start = arrived;
        }
        span
    }

    /// Begins a step inside of the process, below `parent`.
    #[inline]
    pub fn local(&self, rpc: Rpc, parent: Option<&Context>) -> Span {
        self.span(Kind::Local, rpc, parent)
    }

    fn span(&self, kind: Kind, rpc: Rpc, parent: Option<&Context>) -> Span {
        let Some(inner) = self.0.filter(|inner| inner.stage.load(Ordering::Relaxed) > 0) else {
            return Span(None);
        };
        let order = match (parent, kind) {
            (Some(context), Kind::Target) => context.order,
            (Some(context), _) => context.next_order(),
            (None, _) => 1,
        };
        let carried = parent.copied().unwrap_or_else(|| Context {
            request_low: inner.id(),
            request_high: inner.id(),
            span: 0,
            callpath: ROOT,
            lamport: 0,
            order,
            flags: RECORDED,
        });
        let clock = inner.lamport.load(Ordering::Relaxed).max(carried.lamport);
        let lamport = clock.saturating_add(1);
        inner.lamport.store(lamport, Ordering::Relaxed);
        let node = inner.node(carried.callpath, rpc);
        let record = SpanRecord {
            request_low: carried.request_low,
            request_high: carried.request_high,
            span: if kind == Kind::Target { carried.span } else { inner.id() },
            parent: if kind == Kind::Target { 0 } else { carried.span },
            start: self.ticks(),
            duration: 0,
            node,
            lamport,
            order,
            kind,
            status: Status::Ok,
            details: 0,
            peer: 0,
        };
        let callpath = match kind {
            Kind::Origin => carried.callpath,
            _ => child(carried.callpath, rpc.hash),
        };
        Span(Some(Live {
            inner,
            record,
            callpath,
            flags: carried.flags,
            values: [Tagged(0); MAX_VALUES],
            filled: 0,
            begun: 0,
            responded: 0,
            excluded: 0,
        }))
    }

    /// Returns the clock of the process in ticks.
    #[inline]
    pub fn ticks(&self) -> u64 {
        skopos_shm::boottime()
    }

    /// Returns the performance variables of the process.
    pub fn pvars(&self) -> &'static Registry {
        match self.0 {
            Some(inner) => &inner.registry,
            None => &NOTHING,
        }
    }

    /// Returns the stage of recording.
    #[inline]
    pub fn stage(&self) -> Stage {
        self.0.map_or(Stage::Off, |inner| Stage::from_code(inner.stage.load(Ordering::Relaxed)))
    }

    /// Sets the stage of recording.
    pub fn set_stage(&self, stage: Stage) {
        if let Some(inner) = self.0 {
            inner.stage.store(stage as u32, Ordering::Relaxed);
        }
    }

    /// Sets a value of the service's configuration, which is kept with the trace.
    pub fn set_config(&self, key: &str, value: impl ToString) {
        let Some(inner) = self.0 else { return };
        let mut process = unpoisoned(inner.process.lock());
        process.config.insert(key.to_owned(), value.to_string());
        if let Some(writer) = unpoisoned(inner.writer.lock()).as_mut() {
            let _ = writer.process(&process);
        }
    }

    /// Returns all that was left out so far, and the cost.
    pub fn counters(&self) -> Counters {
        let Some(inner) = self.0 else { return Counters::default() };
        let names = unpoisoned(inner.names.lock());
        Counters {
            nodes_refused: names.nodes_refused,
            names_refused: names.names_refused,
            peers_refused: names.peers_refused,
            values_refused: inner.values_refused.load(Ordering::Relaxed),
            stage: inner.stage.load(Ordering::Relaxed),
            stage_wanted: inner.stage.load(Ordering::Relaxed),
            ..Counters::default()
        }
    }

    /// Writes everything that ended before to the trace.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn flush(&self) -> Result<(), Error> {
        let Some(inner) = self.0 else { return Ok(()) };
        unpoisoned(inner.writer.lock()).as_mut().map_or(Ok(()), TraceWriter::flush)
    }

    /// Ends the recorder: writes what is left and the end of the trace. Spans that end later are not recorded.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn close(&self) -> Result<(), Error> {
        let Some(inner) = self.0 else { return Ok(()) };
        inner.stage.store(0, Ordering::Relaxed);
        let counters = self.counters();
        match unpoisoned(inner.writer.lock()).take() {
            None => Ok(()),
            Some(mut writer) => writer.counters(&counters).and_then(|()| writer.end(End::Closed)),
        }
    }
}

impl Inner {
    fn id(&self) -> u64 {
        let seed = self.ids.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        child(seed, u64::from(std::process::id()))
    }

    fn define(&self, definition: &Definition) {
        if let Some(writer) = unpoisoned(self.writer.lock()).as_mut() {
            let _ = writer.define(definition);
        }
    }

    fn node(&self, parent_hash: u64, rpc: Rpc) -> u32 {
        let mut names = unpoisoned(self.names.lock());
        if let Some(id) = names.nodes.get(&(parent_hash, rpc.id)) {
            return *id;
        }
        if names.nodes.len() >= MAX_NODES {
            names.nodes_refused += 1;
            return 0;
        }
        let id = names.nodes.len() as u32 + 1;
        names.nodes.insert((parent_hash, rpc.id), id);
        let name = names.rpc_names.get(rpc.id as usize).cloned().unwrap_or_default();
        self.define(&Definition::Node(Node {
            id,
            parent_hash,
            hash: child(parent_hash, rpc.hash),
            name,
        }));
        id
    }

    fn write(&self, records: &[u8]) {
        let mut names = unpoisoned(self.names.lock());
        let infos = self.registry.infos();
        for info in infos.into_iter().skip(names.pvars_written) {
            names.pvars_written += 1;
            self.define(&Definition::Pvar(info));
        }
        if let Some(writer) = unpoisoned(self.writer.lock()).as_mut() {
            let _ = writer.records(0, 0, records);
        }
    }
}

/// One side of a call while it lasts. [`Span::end`] records it; a span that is dropped was cancelled.
#[derive(Debug)]
pub struct Span(Option<Live>);

#[derive(Debug)]
struct Live {
    inner: &'static Inner,
    record: SpanRecord,
    callpath: u64,
    flags: u8,
    values: [Tagged; MAX_VALUES],
    filled: u8,
    begun: u64,
    responded: u64,
    excluded: u64,
}

impl Span {
    /// Returns the context: of an origin, for the request; of a target or a local step, for the calls below it. Without
    /// recording it is that of an unknown request, which is not recorded elsewhere either.
    #[inline]
    pub fn context(&self) -> Context {
        match &self.0 {
            None => Context {
                request_low: 1,
                request_high: 0,
                span: 0,
                callpath: ROOT,
                lamport: 0,
                order: 0,
                flags: 0,
            },
            Some(live) => Context {
                request_low: live.record.request_low,
                request_high: live.record.request_high,
                span: live.record.span,
                callpath: live.callpath,
                lamport: live.record.lamport,
                order: live.record.order,
                flags: live.flags,
            },
        }
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
            live.begun = skopos_shm::boottime();
        }
    }

    /// The handler ends (t8): the time from here to [`Span::end`] is that of the response.
    #[inline]
    pub fn respond(&mut self) {
        if let Some(live) = &mut self.0 {
            live.responded = skopos_shm::boottime();
        }
    }

    /// Takes `ns` of calls to others out of the exclusive time of the handler.
    #[inline]
    pub fn exclude(&mut self, ns: u64) {
        if let Some(live) = &mut self.0 {
            live.excluded = live.excluded.saturating_add(ns);
        }
    }

    /// Adds an interval of `ns`.
    #[inline]
    pub fn interval(&mut self, interval: Interval, ns: u64) {
        self.value(Tagged::new(interval.tag(), ns));
    }

    /// Adds an interval between two moments of [`Recorder::ticks`].
    #[inline]
    pub fn interval_between(&mut self, interval: Interval, from: u64, to: u64) {
        self.interval(interval, to.saturating_sub(from));
    }

    /// Adds the value of a variable.
    #[inline]
    pub fn pvar(&mut self, pvar: &Pvar, value: u64) {
        self.value(Tagged::new(pvar.tag(), value));
    }

    /// Samples a variable of the process and adds its value.
    pub fn sample(&mut self, pvar: &Pvar) {
        let value = self.0.as_ref().and_then(|live| live.inner.registry.sample_one(pvar.number()));
        if let Some(value) = value {
            self.pvar(pvar, value);
        }
    }

    #[inline]
    fn value(&mut self, value: Tagged) {
        let Some(live) = &mut self.0 else { return };
        let filled = usize::from(live.filled);
        let same = live.values[..filled].iter().position(|v| v.tag() == value.tag());
        match live.values.get_mut(same.unwrap_or(filled)) {
            Some(place) => {
                *place = value;
                live.filled += u8::from(same.is_none());
            }
            None => {
                live.inner.values_refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Names the other entity.
    #[inline]
    pub fn peer(&mut self, peer: PeerId) {
        if let Some(live) = &mut self.0 {
            live.record.peer = peer.0;
        }
    }

    /// Takes the Lamport clock of a response into account.
    #[inline]
    pub fn observe(&mut self, lamport: u32) {
        if let Some(live) = &mut self.0 {
            live.record.lamport = live.record.lamport.max(lamport);
        }
    }

    /// Ends the span and records it. Returns its duration in ns, 0 if nothing is recorded.
    #[inline]
    pub fn end(mut self, status: Status) -> u64 {
        self.finish(status)
    }

    fn finish(&mut self, status: Status) -> u64 {
        let Some(live) = &self.0 else { return 0 };
        let now = skopos_shm::boottime();
        let (begun, responded, excluded) = (live.begun, live.responded, live.excluded);
        let (kind, start) = (live.record.kind, live.record.start);
        if begun > 0 && kind == Kind::Target {
            let end = if responded > 0 { responded } else { now };
            self.interval(Interval::TargetHandler, begun.saturating_sub(start));
            let exclusive = end.saturating_sub(begun).saturating_sub(excluded);
            self.interval(Interval::TargetExecutionExclusive, exclusive);
            if excluded > 0 {
                self.interval(Interval::Children, excluded);
            }
            if responded > 0 {
                self.interval(Interval::TargetCompletionCallback, now.saturating_sub(responded));
            }
        }
        let Some(mut live) = self.0.take() else { return 0 };
        live.record.duration = now.saturating_sub(live.record.start);
        live.record.status = status;
        let stage = live.inner.stage.load(Ordering::Relaxed);
        if stage < Stage::Spans as u32 {
            return live.record.duration;
        }
        let clock = live.inner.lamport.load(Ordering::Relaxed).max(live.record.lamport);
        live.record.lamport = clock.saturating_add(1);
        live.inner.lamport.store(live.record.lamport, Ordering::Relaxed);
        let groups = if stage < Stage::Full as u32 {
            0
        } else {
            usize::from(live.filled).div_ceil(DETAILS_VALUES)
        };
        live.record.details = groups as u16;
        let mut bytes = words_to_bytes(&live.record.words()).to_vec();
        for values in live.values.as_chunks::<DETAILS_VALUES>().0.iter().take(groups) {
            bytes.extend_from_slice(&words_to_bytes(&details_words(values)));
        }
        live.inner.write(&bytes);
        live.record.duration
    }
}

impl Bound for Span {
    fn value_of(&self, tag: u16) -> Option<u64> {
        let live = self.0.as_ref()?;
        let values = live.values.get(..usize::from(live.filled))?;
        values.iter().find(|value| value.tag() == tag).map(|value| value.value())
    }
}

impl Drop for Span {
    #[inline]
    fn drop(&mut self) {
        if self.0.is_some() {
            self.finish(Status::Cancelled);
        }
    }
}

/// The configuration of a process, as it goes into the trace.
pub type Config = BTreeMap<String, String>;
