//! The simulated servers: queues, speeds that change, failures.

use std::collections::VecDeque;

use skopos_model::SplitMix64;

/// Nanoseconds of simulated time.
pub type Nanos = u64;

/// A millisecond.
pub const MS: Nanos = 1_000_000;

/// Faults and load of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// The speed of each server changes, as in the simulation of C3.
    Steady,
    /// Servers also fail for a second, and lose their requests.
    Failures,
    /// Servers also become ten times as slow for two seconds, without failing.
    Gray,
    /// The load also rises by half for 300 ms every two seconds, and goes to a tenth of the keys.
    Crowd,
    /// A third of the servers is always three times as slow, as a disk beside flash; speeds do not change otherwise.
    Mixed,
}

/// Seeds on which settings are chosen.
pub const TUNING: [u64; 2] = [1, 2];

/// Seeds on which results are judged. They were written down before any of them ran, and no setting was tried with them.
pub const JUDGING: [u64; 3] = [8101, 8102, 8103];

/// Every scenario.
pub const SCENARIOS: [Scenario; 5] =
    [Scenario::Steady, Scenario::Failures, Scenario::Gray, Scenario::Crowd, Scenario::Mixed];

/// Shape of a run.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Number of servers, each of which is the first of the three replicas of a range of keys.
    pub servers: usize,
    /// Number of clients that choose independently.
    pub clients: usize,
    /// Requests that a server serves at once.
    pub slots: usize,
    /// Mean time of a request on a server at full speed.
    pub service: Nanos,
    /// Time between a client and a server, one way.
    pub network: Nanos,
    /// Mean time between changes of a server's speed.
    pub change: Nanos,
    /// Time between two publications of telemetry.
    pub publish: Nanos,
    /// Arriving requests as a share of those that the servers can serve.
    pub load: f64,
    /// Length of the run; the first tenth is not counted.
    pub length: Nanos,
    /// Faults and load.
    pub scenario: Scenario,
}

impl Shape {
    /// Returns the shape of the C3 paper's simulation (section 6), with a hundred servers: four requests at once of
    /// 4 ms in the mean, 0.25 ms of network, speeds that differ by three.
    pub fn new(load: f64, scenario: Scenario) -> Self {
        Self {
            servers: 100,
            clients: 100,
            slots: 4,
            service: 4 * MS,
            network: MS / 4,
            change: 200 * MS,
            publish: 100 * MS,
            load,
            length: 10_000 * MS,
            scenario,
        }
    }

    /// Returns the requests a nanosecond that arrive in the mean.
    pub(crate) fn rate(&self) -> f64 {
        // Half of the time at full speed and half at a third; or two thirds of the servers at full speed.
        let mean_speed = match self.scenario {
            Scenario::Mixed => (2.0 + 1.0 / SLOW_FACTOR) / 3.0,
            _ => 0.5 + 0.5 / SLOW_FACTOR,
        };
        self.load * (self.servers * self.slots) as f64 * mean_speed / self.service as f64
    }
}

/// Ratio between the two speeds of a server, as in the C3 paper.
pub(crate) const SLOW_FACTOR: f64 = 3.0;
/// Slowdown of a gray failure.
const GRAY_FACTOR: f64 = 10.0;

/// One server.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// Mean time of a request at the present speed.
    pub(crate) service: f64,
    /// Waiting requests.
    pub(crate) waiting: VecDeque<u32>,
    /// Requests in service.
    pub(crate) busy: usize,
    /// Requests that were sent and have not arrived; only the oracle knows them.
    pub(crate) coming: usize,
    pub(crate) down: bool,
    pub(crate) gray: bool,
    pub(crate) slow: bool,
    /// Rises when the server fails: requests of an earlier life do not complete.
    pub(crate) life: u32,
    /// Mean of the recent service times, as the server measures them.
    pub(crate) measured: f64,
    /// Time integral of the queue since `integral_from`, up to `integral_to`.
    pub(crate) integral: f64,
    pub(crate) integral_from: Nanos,
    pub(crate) integral_to: Nanos,
    /// Mean of the recent latencies at the server, waiting included.
    pub(crate) sojourn: f64,
    /// Mean queue between the last two publications.
    pub(crate) published_queue: f64,
    /// Sum and number of the service times since the last publication, and their mean at it.
    pub(crate) served: (f64, f64),
    pub(crate) published_service: f64,
}

/// Share of a new service time in the mean that a server measures: the last ten or so.
const MEASURED_SHARE: f64 = 0.1;

impl Server {
    pub(crate) fn new(shape: &Shape) -> Self {
        let mean = shape.service as f64;
        Self {
            service: mean,
            waiting: VecDeque::new(),
            busy: 0,
            coming: 0,
            down: false,
            gray: false,
            slow: false,
            life: 0,
            measured: mean,
            sojourn: mean,
            published_queue: 0.0,
            served: (0.0, 0.0),
            published_service: mean,
            integral: 0.0,
            integral_from: 0,
            integral_to: 0,
        }
    }

    pub(crate) fn set_speed(&mut self, shape: &Shape) {
        let slow = if self.slow { SLOW_FACTOR } else { 1.0 };
        let gray = if self.gray { GRAY_FACTOR } else { 1.0 };
        self.service = shape.service as f64 * slow * gray;
    }

    /// Requests in flight at the server.
    pub(crate) fn queue(&self) -> usize {
        self.busy + self.waiting.len()
    }

    /// Accounts for the queue up to `now`; called before the queue changes.
    pub(crate) fn account(&mut self, now: Nanos) {
        self.integral += self.queue() as f64 * (now - self.integral_to) as f64;
        self.integral_to = now;
    }

    fn mean_queue(&mut self, now: Nanos) -> f64 {
        self.account(now);
        let mean = self.integral / ((now - self.integral_from) as f64).max(1.0);
        self.integral = 0.0;
        self.integral_from = now;
        mean
    }

    /// Computes the telemetry of the time since the last call: mean queue and mean service time.
    pub(crate) fn publish(&mut self, now: Nanos) {
        self.published_queue = self.mean_queue(now);
        if self.served.1 > 0.0 {
            self.published_service = self.served.0 / self.served.1;
        }
        self.served = (0.0, 0.0);
    }

    pub(crate) fn measure(&mut self, service: f64, sojourn: f64) {
        self.served = (self.served.0 + service, self.served.1 + 1.0);
        self.measured += (service - self.measured) * MEASURED_SHARE;
        self.sojourn += (sojourn - self.sojourn) * MEASURED_SHARE;
    }
}

/// Returns a time from the exponential distribution with mean `mean`.
pub(crate) fn exponential(random: &mut SplitMix64, mean: f64) -> f64 {
    -mean * (1.0 - random.unit()).ln()
}
