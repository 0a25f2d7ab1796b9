//! The loop over events.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use skopos_model::SplitMix64;

use crate::rank::Settings;
use crate::simulate::policy::{
    C3, Oracle, Policy, Prequal, RandomOfTwo, Response, RoundRobin, Skopos,
};
use crate::simulate::world::{MS, Nanos, Scenario, Server, Shape, exponential};

/// A way to choose that [`simulate`] runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Peer {
    /// Replicas take turns.
    RoundRobin,
    /// The less used of two random replicas.
    RandomOfTwo,
    /// The replica selection of C3.
    C3,
    /// Asynchronous probes and the hot-cold rule of Prequal.
    Prequal,
    /// Published telemetry and own counts.
    Skopos(Settings),
    /// The same, and a report with each response.
    SkoposReports(Settings),
    /// Knows every queue.
    Oracle,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Latencies of the counted requests in nanoseconds, in rising order.
    pub latencies: Vec<Nanos>,
    /// Requests that timed out and were sent again.
    pub timeouts: u64,
    /// Requests that had not ended when the run did.
    pub unfinished: u64,
}

impl Outcome {
    /// Returns a quantile of the latency in nanoseconds; 0 if no request was counted.
    pub fn quantile(&self, share: f64) -> Nanos {
        let last = self.latencies.len().saturating_sub(1);
        self.latencies.get((last as f64 * share) as usize).copied().unwrap_or(0)
    }
}

/// Time after which a client sends a request again, to another replica.
const TIMEOUT: Nanos = 500 * MS;
const REPLICAS: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival,
    AtServer { request: u32, server: u32 },
    Served { request: u32, server: u32, life: u32, service: u32 },
    AtClient { request: u32, attempt: u32, server: u32, queue: u32, service: u32 },
    Timeout { request: u32, attempt: u32 },
    Probe { client: u32, server: u32 },
    Probed { client: u32, server: u32, queue: u32, latency: u32 },
    Publish,
    Change { server: u32 },
    Break,
    Mend { server: u32 },
}

#[derive(Clone, Copy)]
struct Request {
    client: u32,
    group: u32,
    begun: Nanos,
    arrived: Nanos,
    attempt: u32,
    server: u32,
    done: bool,
}

struct Run<'a> {
    shape: &'a Shape,
    now: Nanos,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    order: u64,
    servers: Vec<Server>,
    requests: Vec<Request>,
    random: SplitMix64,
    outcome: Outcome,
    probes: Vec<usize>,
}

/// Runs `peer` in `shape` from `seed`. Arrivals, speeds and faults are the same for every peer.
pub fn simulate(shape: &Shape, peer: Peer, seed: u64) -> Outcome {
    let mut policy: Box<dyn Policy> = match peer {
        Peer::RoundRobin => Box::new(RoundRobin((0..shape.clients).collect())),
        Peer::RandomOfTwo => Box::new(RandomOfTwo {
            random: SplitMix64::new(seed ^ 1),
            outstanding: vec![vec![0; shape.servers]; shape.clients],
        }),
        Peer::C3 => Box::new(C3::new(shape, seed ^ 1)),
        Peer::Prequal => Box::new(Prequal::new(shape, seed ^ 1)),
        Peer::Skopos(settings) => Box::new(Skopos::new(shape, settings, false, seed ^ 1)),
        Peer::SkoposReports(settings) => Box::new(Skopos::new(shape, settings, true, seed ^ 1)),
        Peer::Oracle => {
            Box::new(Oracle { slots: shape.slots as f64, random: SplitMix64::new(seed ^ 1) })
        }
    };
    let mut run = Run::new(shape, seed);
    run.all(policy.as_mut());
    run.outcome.latencies.sort_unstable();
    run.outcome.unfinished = run.requests.iter().filter(|r| !r.done).count() as u64;
    run.outcome
}

impl<'a> Run<'a> {
    fn new(shape: &'a Shape, seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let mut servers = vec![Server::new(shape); shape.servers];
        for (at, server) in servers.iter_mut().enumerate() {
            server.slow = match shape.scenario {
                Scenario::Mixed => at % REPLICAS == 0,
                _ => random.unit() < 0.5,
            };
            server.set_speed(shape);
        }
        let outcome = Outcome { latencies: Vec::new(), timeouts: 0, unfinished: 0 };
        let mut run = Self {
            shape,
            now: 0,
            events: BinaryHeap::new(),
            order: 0,
            servers,
            requests: Vec::new(),
            random,
            outcome,
            probes: Vec::new(),
        };
        run.after(0, Event::Arrival);
        run.after(MS, Event::Publish);
        if shape.scenario != Scenario::Mixed {
            for server in 0..shape.servers as u32 {
                let wait = exponential(&mut run.random, shape.change as f64) as Nanos;
                run.after(wait, Event::Change { server });
            }
        }
        if matches!(shape.scenario, Scenario::Failures | Scenario::Gray) {
            run.after(shape.length / 20, Event::Break);
        }
        run
    }

    fn after(&mut self, wait: Nanos, event: Event) {
        self.order += 1;
        self.events.push(Reverse((self.now + wait, self.order, event)));
    }

    fn all(&mut self, policy: &mut dyn Policy) {
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            if at > self.shape.length {
                break;
            }
            self.now = at;
            self.one(event, policy);
        }
    }

    fn one(&mut self, event: Event, policy: &mut dyn Policy) {
        match event {
            Event::Arrival => self.arrival(policy),
            Event::AtServer { request, server } => self.at_server(request, server),
            Event::Served { request, server, life, service } => {
                self.served(request, server, life, service);
            }
            Event::AtClient { request, attempt, server, queue, service } => {
                self.answered(request, attempt, server, (queue, service), policy);
            }
            Event::Timeout { request, attempt } => self.timeout(request, attempt, policy),
            Event::Probe { client, server } => {
                let state = &self.servers[server as usize];
                if !state.down {
                    let (queue, latency) = (state.queue() as u32, state.sojourn as u32);
                    let probed = Event::Probed { client, server, queue, latency };
                    self.after(self.shape.network, probed);
                }
            }
            Event::Probed { client, server, queue, latency } => {
                let (queue, latency) = (f64::from(queue), f64::from(latency));
                policy.probed(self.now, client as usize, server as usize, queue, latency);
            }
            Event::Publish => {
                for server in &mut self.servers {
                    server.publish(self.now);
                }
                policy.publish(self.now, &self.servers);
                self.after(self.shape.publish, Event::Publish);
            }
            Event::Change { server } => {
                let wait = exponential(&mut self.random, self.shape.change as f64) as Nanos;
                let state = &mut self.servers[server as usize];
                state.slow = self.random.unit() < 0.5;
                state.set_speed(self.shape);
                self.after(wait, Event::Change { server });
            }
            Event::Break => self.break_one(),
            Event::Mend { server } => {
                let state = &mut self.servers[server as usize];
                state.down = false;
                state.gray = false;
                state.set_speed(self.shape);
            }
        }
    }

    fn break_one(&mut self) {
        let server = self.random.below(self.shape.servers);
        let state = &mut self.servers[server];
        let length = if self.shape.scenario == Scenario::Failures {
            state.account(self.now);
            state.down = true;
            state.life += 1;
            state.waiting.clear();
            state.busy = 0;
            1000 * MS
        } else {
            state.gray = true;
            state.set_speed(self.shape);
            2000 * MS
        };
        self.after(length, Event::Mend { server: server as u32 });
        // About three servers of a hundred are broken at any time.
        self.after(length / 3, Event::Break);
    }

    fn crowd(&self) -> bool {
        self.shape.scenario == Scenario::Crowd && self.now % (2000 * MS) > 1700 * MS
    }

    fn arrival(&mut self, policy: &mut dyn Policy) {
        let crowd = self.crowd();
        let rate = self.shape.rate() * if crowd { 1.5 } else { 1.0 };
        let wait = exponential(&mut self.random, 1.0 / rate) as Nanos;
        self.after(wait, Event::Arrival);
        // A third of a crowd wants a tenth of the keys.
        let hot = crowd && self.random.below(15) < 1;
        let groups = if hot { self.shape.servers / 10 } else { self.shape.servers };
        let request = Request {
            client: self.random.below(self.shape.clients) as u32,
            group: self.random.below(groups) as u32,
            begun: self.now,
            arrived: 0,
            attempt: 0,
            server: 0,
            done: false,
        };
        self.requests.push(request);
        self.send(self.requests.len() as u32 - 1, policy);
    }

    fn send(&mut self, request: u32, policy: &mut dyn Policy) {
        let Request { client, group, attempt, .. } = self.requests[request as usize];
        let servers = self.shape.servers;
        // The replicas of a range are the next servers on the ring.
        let among: [usize; REPLICAS] = std::array::from_fn(|i| (group as usize + i) % servers);
        let server = policy.pick(self.now, client as usize, &among, &self.servers);
        let mut probes = std::mem::take(&mut self.probes);
        policy.probes(client as usize, &among, &mut probes);
        for server in probes.drain(..) {
            self.after(self.shape.network, Event::Probe { client, server: server as u32 });
        }
        self.probes = probes;
        self.servers[server].coming += 1;
        let server = server as u32;
        self.requests[request as usize].server = server;
        self.after(self.shape.network, Event::AtServer { request, server });
        self.after(TIMEOUT, Event::Timeout { request, attempt });
    }

    fn at_server(&mut self, request: u32, server: u32) {
        self.requests[request as usize].arrived = self.now;
        let state = &mut self.servers[server as usize];
        state.coming -= 1;
        if state.down {
            return;
        }
        state.account(self.now);
        if state.busy < self.shape.slots {
            self.serve(request, server);
        } else {
            state.waiting.push_back(request);
        }
    }

    fn serve(&mut self, request: u32, server: u32) {
        let state = &mut self.servers[server as usize];
        state.busy += 1;
        let life = state.life;
        let service = exponential(&mut self.random, state.service) as u32;
        self.after(service.into(), Event::Served { request, server, life, service });
    }

    fn served(&mut self, request: u32, server: u32, life: u32, service: u32) {
        let state = &mut self.servers[server as usize];
        if state.life != life {
            return;
        }
        state.account(self.now);
        state.busy -= 1;
        let Request { arrived, attempt, .. } = self.requests[request as usize];
        state.measure(service.into(), (self.now - arrived) as f64);
        let (queue, measured) = (state.queue() as u32, state.measured as u32);
        if let Some(next) = state.waiting.pop_front() {
            self.serve(next, server);
        }
        let answer = Event::AtClient { request, attempt, server, queue, service: measured };
        self.after(self.shape.network, answer);
    }

    fn answered(
        &mut self,
        request: u32,
        attempt: u32,
        server: u32,
        (queue, service): (u32, u32),
        policy: &mut dyn Policy,
    ) {
        let state = &mut self.requests[request as usize];
        if state.done || state.attempt != attempt || state.server != server {
            return;
        }
        state.done = true;
        let latency = self.now - state.begun;
        if state.begun > self.shape.length / 10 {
            self.outcome.latencies.push(latency);
        }
        let response = Response {
            client: state.client as usize,
            server: server as usize,
            latency: Some(latency as f64),
            queue: queue.into(),
            service: service.into(),
        };
        policy.finish(self.now, &response);
    }

    fn timeout(&mut self, request: u32, attempt: u32, policy: &mut dyn Policy) {
        let state = &mut self.requests[request as usize];
        if state.done || state.attempt != attempt {
            return;
        }
        state.attempt += 1;
        self.outcome.timeouts += 1;
        let (client, server) = (state.client as usize, state.server as usize);
        let response = Response { client, server, latency: None, queue: 0.0, service: 0.0 };
        policy.finish(self.now, &response);
        self.send(request, policy);
    }
}
