//! Traces of services that do not exist, for tests and benchmarks of analyses. The same [`Service`] gives the same bytes.
//!
//! A client process calls a front service, whose handler calls a key-value service twice and a store once. Queues, clocks
//! that differ, lost sides and slow processes can be set, so that a test knows what an analysis must find.

mod files;

use crate::analysis::blocks::Random;
use crate::analysis::loader::MemoryLoader;
use crate::callpath::{ROOT, child, name_hash};
use crate::interval::Interval;
use crate::record::{Kind, SpanRecord, Status};

use self::files::TraceBytes;

/// The name of the first call of each request.
pub const FRONT: &str = "mobject_read_op";
/// The name of the calls to the key-value service.
pub const LIST: &str = "sdskv_list_keyvals_rpc";
/// The name of the call to the store.
pub const READ: &str = "bake_read_rpc";

/// A service that is simulated.
#[derive(Clone, Debug)]
pub struct Service {
    /// Seed of all durations.
    pub seed: u64,
    /// Number of requests; each has four calls with two sides.
    pub requests: u64,
    /// Mean time between two requests in ns.
    pub interval_ns: f64,
    /// Number of client processes.
    pub clients: u32,
    /// Number of processes of the key-value service.
    pub stores: u32,
    /// Time that the clock of the key-value service is ahead, in ns.
    pub skew_ns: i64,
    /// The factor by which the last process of the key-value service is slower.
    pub slow_store: f64,
    /// One of so many targets' sides has no record; 0 for none.
    pub lost_targets: u64,
    /// Intervals are recorded, two records a side more.
    pub has_details: bool,
    /// Mean time in the queue of the front service in ns.
    pub queue_ns: f64,
}

impl Default for Service {
    fn default() -> Self {
        Self {
            seed: 1,
            requests: 1000,
            interval_ns: 200_000.0,
            clients: 2,
            stores: 2,
            skew_ns: 0,
            slow_store: 1.0,
            lost_targets: 0,
            has_details: true,
            queue_ns: 20_000.0,
        }
    }
}

/// The first moment of each trace, in ns since 1970.
pub const EPOCH_NS: i64 = 1_700_000_000_000_000_000;

/// A call that is about to be recorded.
struct Call<'c> {
    request: u64,
    span: u64,
    parent: u64,
    name: &'c str,
    /// The callpath of the caller.
    above: u64,
    start: u64,
    order: u16,
}

struct Simulation<'s> {
    service: &'s Service,
    random: Random,
    files: Vec<TraceBytes>,
    calls: u64,
}

impl Service {
    /// Makes the trace.
    pub fn trace(&self) -> MemoryLoader {
        let clients = (0..self.clients.max(1)).map(|at| (format!("client{at}"), "n01", 0));
        let front = [("front".to_owned(), "n02", 0)];
        let stores = (0..self.stores.max(1)).map(|at| (format!("kv{at}"), "n03", self.skew_ns));
        let processes = clients.chain(front).chain(stores);
        let files: Vec<TraceBytes> = (1..)
            .zip(processes)
            .map(|(pid, (name, node, skew))| TraceBytes::new(&name, pid, node, skew))
            .collect();
        let random = Random::new(self.seed);
        let mut simulation = Simulation { service: self, random, files, calls: 0 };
        let mut time = 0.0;
        for request in 0..self.requests {
            simulation.request(request, time as u64);
            time += simulation.random.exponential(self.interval_ns);
        }
        let end = |file: TraceBytes| file.end();
        MemoryLoader::new(simulation.files.into_iter().map(end).collect())
    }
}

impl Simulation<'_> {
    fn about(&mut self, mean: f64) -> u64 {
        // Between half and three halves of the mean.
        (mean * (0.5 + self.random.unit())) as u64
    }

    fn request(&mut self, number: u64, start: u64) {
        let clients = self.service.clients.max(1) as usize;
        let stores = self.service.stores.max(1) as usize;
        let (client, front) = (number as usize % clients, clients);
        let request = number + 1;
        let span = |at: u64| request << 8 | at;
        let root = child(ROOT, name_hash(FRONT));
        let wire = self.about(10_000.0);
        let queue = self.random.exponential(self.service.queue_ns) as u64;
        let mut now = start + wire + queue + self.about(15_000.0);
        let mut children = 0;
        for (at, name) in [(1, LIST), (2, LIST), (3, READ)] {
            let store = front + 1 + (number as usize + at as usize) % stores;
            let is_slow = store == front + stores && stores > 1;
            let factor = if is_slow { self.service.slow_store } else { 1.0 };
            let own =
                (self.about(if name == LIST { 60_000.0 } else { 30_000.0 }) as f64 * factor) as u64;
            let call = Call {
                request,
                span: span(at),
                parent: span(0),
                name,
                above: root,
                start: now,
                order: at as u16,
            };
            let took = self.call(&call, (front, store), (2000, own, 0));
            children += took;
            now += took + self.about(5000.0);
        }
        let begun = start + wire + queue;
        let own = now - begun - children;
        let call =
            Call { request, span: span(0), parent: 0, name: FRONT, above: ROOT, start, order: 0 };
        self.finish(&call, (client, front), wire, (queue, own, children));
    }

    /// Records a call without calls of its own. Returns its duration.
    fn call(&mut self, call: &Call<'_>, sides: (usize, usize), target: (u64, u64, u64)) -> u64 {
        let wire = self.about(8000.0);
        self.finish(call, sides, wire, target)
    }

    fn finish(
        &mut self,
        call: &Call<'_>,
        (origin, target): (usize, usize),
        wire: u64,
        (queue, own, children): (u64, u64, u64),
    ) -> u64 {
        self.calls += 1;
        let stay = queue + own + children;
        let back = self.about(8000.0);
        let duration = wire + stay + back;
        let is_lost =
            self.service.lost_targets > 0 && self.calls.is_multiple_of(self.service.lost_targets);
        let record = |kind, start, duration, parent| SpanRecord {
            request_low: call.request,
            request_high: 7,
            span: call.span,
            parent,
            start,
            duration,
            node: 0,
            lamport: call.order.into(),
            order: call.order,
            kind,
            status: Status::Ok,
            details: 0,
            peer: 0,
        };
        let (at_target, at_origin) = match self.service.has_details {
            true => (
                vec![
                    (Interval::TargetHandler, queue),
                    (Interval::TargetExecutionExclusive, own),
                    (Interval::Children, children),
                    (Interval::InputDeserialization, own / 10),
                ],
                vec![(Interval::InputSerialization, wire / 4)],
            ),
            false => (Vec::new(), Vec::new()),
        };
        if !is_lost {
            let side = record(Kind::Target, call.start + wire, stay, 0);
            self.files[target].add(side, (call.above, call.name), &at_target);
        }
        let side = record(Kind::Origin, call.start, duration, call.parent);
        self.files[origin].add(side, (call.above, call.name), &at_origin);
        duration
    }
}
