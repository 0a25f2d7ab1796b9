//! Anomaly reports: `bytes` compares packets with hand-made ones, `hostile` feeds odd ones, `reporter` and `receiver` test
//! the two sides.

mod bytes;
mod hostile;
mod receiver;
mod reporter;

use std::net::SocketAddr;

use skopos_model::{Kind, SplitMix64, Timestamp, Unit};
use skopos_net::anomaly::{Handle, Receiver, Refused, Report, Reporter, SiteKey};

/// Starts of the tests, in seconds since 1970.
const START: i64 = 1_800_000_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_nanos((START + second) * 1_000_000_000)
}

fn site() -> SiteKey {
    SiteKey::new(b"the secret of the tests").expect("long enough")
}

fn reporter(node: &str, second: i64) -> Reporter {
    Reporter::new(&site().node_secret(node), node, at(second)).expect("a name")
}

fn from(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last], 4000))
}

/// A reporter with its metrics, and noise for them.
struct Host {
    reporter: Reporter,
    handles: Vec<Handle>,
    random: SplitMix64,
    second: i64,
}

impl Host {
    /// A host with this number of gauges named `queue/N/depth`, which have learned their ranges.
    fn ready(node: &str, metrics: usize) -> Self {
        let mut reporter = reporter(node, 0);
        let join = |n| reporter.join(&format!("queue/{n}/depth"), Kind::Gauge, Unit::NONE);
        let handles = (0..metrics).map(join).map(|handle| handle.expect("room")).collect();
        let mut host = Self { reporter, handles, random: SplitMix64::new(5), second: 1 };
        for _ in 0..300 {
            assert_eq!(host.tick(0), None, "nothing is unusual");
        }
        host
    }

    /// One second, in which the first `unusual` metrics are far from their range.
    fn tick(&mut self, unusual: usize) -> Option<Vec<u8>> {
        self.second += 1;
        let Self { reporter, handles, random, second } = self;
        let value = |n: usize, noise: f64| if n < unusual { 500.0 + noise } else { 100.0 + noise };
        let samples: Vec<(Handle, f64)> =
            (0..).zip(handles.iter()).map(|(n, h)| (*h, value(n, random.normal()))).collect();
        reporter.tick(at(*second), &samples).map(<[u8]>::to_vec)
    }

    /// Returns the next packet, within a minute.
    fn packet(&mut self, unusual: usize) -> Vec<u8> {
        (0..60).find_map(|_| self.tick(unusual)).expect("a report within a minute")
    }

    fn now(&self) -> Timestamp {
        at(self.second)
    }
}

fn take(receiver: &mut Receiver, packet: &[u8], host: &Host) -> Result<Report, Refused> {
    receiver.take(from(1), packet, host.now())
}
