//! The policies that are compared.

use std::time::Duration;

use skopos_model::{SplitMix64, Timestamp};

use crate::rank::{Chooser, Published, Report, Settings};
use crate::simulate::world::{MS, Nanos, Server, Shape};

/// The end of a request, as its client sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Response {
    pub(crate) client: usize,
    pub(crate) server: usize,
    /// Nanoseconds; `None` if the request failed.
    pub(crate) latency: Option<f64>,
    /// Requests at the server, and its service time in nanoseconds, when it answered.
    pub(crate) queue: f64,
    pub(crate) service: f64,
}

/// A way to choose among replicas.
pub(crate) trait Policy {
    /// Chooses one of `among`.
    fn pick(&mut self, now: Nanos, client: usize, among: &[usize], servers: &[Server]) -> usize;
    fn finish(&mut self, _now: Nanos, _response: &Response) {}
    /// Takes the telemetry of all servers, where there is some.
    fn publish(&mut self, _now: Nanos, _servers: &[Server]) {}
    /// Servers that the client probes beside this request.
    fn probes(&mut self, _client: usize, _among: &[usize], _out: &mut Vec<usize>) {}
    fn probed(&mut self, _now: Nanos, _client: usize, _server: usize, _queue: f64, _latency: f64) {}
}

/// Takes turns.
pub(crate) struct RoundRobin(pub(crate) Vec<usize>);

impl Policy for RoundRobin {
    fn pick(&mut self, _: Nanos, client: usize, among: &[usize], _: &[Server]) -> usize {
        self.0[client] += 1;
        among[self.0[client] % among.len()]
    }
}

/// Two random replicas, and of them the one with fewer requests of this client.
pub(crate) struct RandomOfTwo {
    pub(crate) random: SplitMix64,
    pub(crate) outstanding: Vec<Vec<u32>>,
}

impl Policy for RandomOfTwo {
    fn pick(&mut self, _: Nanos, client: usize, among: &[usize], _: &[Server]) -> usize {
        let first = self.random.below(among.len());
        let second = (first + 1 + self.random.below(among.len() - 1)) % among.len();
        let (first, second) = (among[first], among[second]);
        let counts = &mut self.outstanding[client];
        let chosen = if counts[second] < counts[first] { second } else { first };
        counts[chosen] += 1;
        chosen
    }

    fn finish(&mut self, _: Nanos, response: &Response) {
        self.outstanding[response.client][response.server] -= 1;
    }
}

/// Knows every queue and every speed, also the requests under way.
pub(crate) struct Oracle {
    pub(crate) slots: f64,
    pub(crate) random: SplitMix64,
}

impl Policy for Oracle {
    fn pick(&mut self, _: Nanos, _: usize, among: &[usize], servers: &[Server]) -> usize {
        let start = self.random.below(among.len());
        let mut best = (f64::INFINITY, among[start]);
        for step in 0..among.len() {
            let candidate = among[(start + step) % among.len()];
            let server = &servers[candidate];
            let queue = (server.queue() + server.coming) as f64;
            let wait = (queue + 1.0 - self.slots).max(0.0) / self.slots;
            let down = if server.down { 1e18 } else { 0.0 };
            let expected = server.service * (1.0 + wait) + down;
            if expected < best.0 {
                best = (expected, candidate);
            }
        }
        best.1
    }
}

#[derive(Clone, Copy)]
struct C3Server {
    outstanding: f64,
    queue: f64,
    service: f64,
    response: f64,
    seen: bool,
    avoided_until: Nanos,
}

/// The replica selection of C3 (NSDI 2015, section 3.1) without its rate control: `R − 1/µ + q³/µ` with
/// `q = 1 + outstanding × clients + queue`; means are exponentially weighted with a share of 0.1 for the new value.
pub(crate) struct C3 {
    servers: Vec<Vec<C3Server>>,
    clients: f64,
    random: SplitMix64,
}

const C3_NEW: f64 = 0.1;
/// Time for which every policy but the oracle avoids a server after a timeout.
const AVOID: Nanos = 100 * MS;

impl C3 {
    pub(crate) fn new(shape: &Shape, seed: u64) -> Self {
        let server = C3Server {
            outstanding: 0.0,
            queue: 0.0,
            service: 0.0,
            response: 0.0,
            seen: false,
            avoided_until: 0,
        };
        Self {
            servers: vec![vec![server; shape.servers]; shape.clients],
            clients: shape.clients as f64,
            random: SplitMix64::new(seed),
        }
    }
}

impl Policy for C3 {
    fn pick(&mut self, now: Nanos, client: usize, among: &[usize], _: &[Server]) -> usize {
        let start = self.random.below(among.len());
        let mut best = (true, f64::INFINITY, among[start]);
        for step in 0..among.len() {
            let candidate = among[(start + step) % among.len()];
            let server = &self.servers[client][candidate];
            let queue = 1.0 + server.outstanding * self.clients + server.queue;
            let score = server.response - server.service + queue.powi(3) * server.service;
            let avoided = server.avoided_until > now;
            if (avoided, score) < (best.0, best.1) {
                best = (avoided, score, candidate);
            }
        }
        self.servers[client][best.2].outstanding += 1.0;
        best.2
    }

    fn finish(&mut self, now: Nanos, response: &Response) {
        let server = &mut self.servers[response.client][response.server];
        server.outstanding -= 1.0;
        let Some(latency) = response.latency else {
            server.avoided_until = now + AVOID;
            return;
        };
        let share = if server.seen { C3_NEW } else { 1.0 };
        server.seen = true;
        server.queue += (response.queue - server.queue) * share;
        server.service += (response.service - server.service) * share;
        server.response += (latency - server.response) * share;
    }
}

#[derive(Clone, Copy)]
struct Probe {
    at: Nanos,
    queue: f64,
    latency: f64,
    uses: u32,
}

/// Prequal's choice (Wydrowski, Kleinberg, Rumble, Archer, NSDI 2024): asynchronous probes, each reused a few times,
/// a client adds its own requests to a probe, and the hot-cold lexicographic rule. A client keeps the latest probe of
/// every server, because its requests can go to three servers only.
pub(crate) struct Prequal {
    probes: Vec<Vec<Option<Probe>>>,
    avoided: Vec<Vec<Nanos>>,
    /// Recently probed queues of each client, for the quantile.
    recent: Vec<Vec<f64>>,
    next: Vec<usize>,
    random: SplitMix64,
}

/// Probes of a request: all replicas of its key.
const REUSE: u32 = 3;
const PROBE_AGE: Nanos = 1000 * MS;
/// Quantile of the queues above which a server is hot; the paper's default is `2^-0.25`.
const HOT_QUANTILE: f64 = 0.84;
const RECENT: usize = 64;

impl Prequal {
    pub(crate) fn new(shape: &Shape, seed: u64) -> Self {
        Self {
            probes: vec![vec![None; shape.servers]; shape.clients],
            avoided: vec![vec![0; shape.servers]; shape.clients],
            recent: vec![Vec::new(); shape.clients],
            next: vec![0; shape.clients],
            random: SplitMix64::new(seed),
        }
    }

    fn threshold(&self, client: usize) -> f64 {
        let mut recent = self.recent[client].clone();
        if recent.is_empty() {
            return f64::INFINITY;
        }
        recent.sort_by(f64::total_cmp);
        recent[((recent.len() - 1) as f64 * HOT_QUANTILE) as usize]
    }
}

impl Policy for Prequal {
    fn pick(&mut self, now: Nanos, client: usize, among: &[usize], _: &[Server]) -> usize {
        let threshold = self.threshold(client);
        let start = self.random.below(among.len());
        // Cold by latency, then hot by queue, then without a probe at random, then avoided.
        let mut best = (u32::MAX, f64::INFINITY, among[start]);
        for step in 0..among.len() {
            let candidate = among[(start + step) % among.len()];
            let key = match self.probes[client][candidate] {
                _ if self.avoided[client][candidate] > now => (3, 0.0),
                Some(p) if now - p.at <= PROBE_AGE && p.uses < REUSE => {
                    if p.queue > threshold {
                        (1, p.queue)
                    } else {
                        (0, p.latency)
                    }
                }
                _ => (2, 0.0),
            };
            if key < (best.0, best.1) {
                best = (key.0, key.1, candidate);
            }
        }
        if let Some(probe) = &mut self.probes[client][best.2] {
            probe.uses += 1;
            probe.queue += 1.0;
        }
        best.2
    }

    fn finish(&mut self, now: Nanos, response: &Response) {
        if response.latency.is_none() {
            self.avoided[response.client][response.server] = now + AVOID;
        }
    }

    fn probes(&mut self, _: usize, among: &[usize], out: &mut Vec<usize>) {
        out.extend_from_slice(among);
    }

    fn probed(&mut self, now: Nanos, client: usize, server: usize, queue: f64, latency: f64) {
        self.probes[client][server] = Some(Probe { at: now, queue, latency, uses: 0 });
        let recent = &mut self.recent[client];
        if recent.len() < RECENT {
            recent.push(queue);
        } else {
            recent[self.next[client] % RECENT] = queue;
        }
        self.next[client] += 1;
    }
}

/// The choosers of this crate, one for each client.
pub(crate) struct Skopos {
    choosers: Vec<Chooser>,
    reports: bool,
}

impl Skopos {
    pub(crate) fn new(shape: &Shape, settings: Settings, reports: bool, seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let choosers = (0..shape.clients)
            .map(|_| Chooser::new(shape.servers, settings, random.bits()))
            .collect();
        Self { choosers, reports }
    }
}

impl Policy for Skopos {
    fn pick(&mut self, now: Nanos, client: usize, among: &[usize], _: &[Server]) -> usize {
        self.choosers[client].pick(stamp(now), among).unwrap_or(among[0])
    }

    fn finish(&mut self, now: Nanos, response: &Response) {
        let report = match self.reports {
            true => Report { queue: Some(response.queue), cost: Some(response.service * 1e-9) },
            false => Report::default(),
        };
        let failed = response.latency.is_none();
        self.choosers[response.client].finish(stamp(now), response.server, failed, report);
    }

    fn publish(&mut self, now: Nanos, servers: &[Server]) {
        for (at, server) in servers.iter().enumerate().filter(|(_, s)| !s.down) {
            let published = Published {
                cost: server.published_service * 1e-9,
                queue: Some(server.published_queue),
            };
            for chooser in &mut self.choosers {
                chooser.publish(stamp(now), at, published);
            }
        }
    }
}

fn stamp(now: Nanos) -> Timestamp {
    Timestamp::from_nanos(0).saturating_add(Duration::from_nanos(now))
}
