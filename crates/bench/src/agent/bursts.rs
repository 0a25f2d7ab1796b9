//! A process that needs a whole processor at times, like an application that computes and waits.

use std::hint::black_box;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::worker::{Line, Role};
use skopos_term::Failure;

/// Milliseconds of work and of rest, again and again: from short spans to spans longer than the memory
/// of a policy. Their sum is not a multiple of an interval.
const SPANS: [(u64, u64); 5] =
    [(210, 1_030), (1_570, 330), (50, 2_110), (3_170, 1_490), (530, 4_010)];

/// Works in bursts.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Bursts {
    /// The time after which it ends by itself.
    pub(crate) seconds: f64,
}

impl Role for Bursts {
    const NAME: &'static str = "bursts";

    fn work(self, _: &Line) -> Result<(), Failure> {
        let life = Duration::try_from_secs_f64(self.seconds)
            .map_err(|e| Failure::new("the time of the work is not valid").because(&e))?;
        let started = Instant::now();
        for (work, rest) in SPANS.into_iter().cycle() {
            let burst = Instant::now();
            while burst.elapsed() < Duration::from_millis(work) {
                // The clock is read once in a thousand additions.
                black_box((0..1_000u64).map(black_box).sum::<u64>());
            }
            if started.elapsed() > life {
                break;
            }
            std::thread::sleep(Duration::from_millis(rest));
        }
        Ok(())
    }
}
