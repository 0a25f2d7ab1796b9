//! A process that needs a whole processor now and then: what an application looks like that computes
//! and waits.

use std::hint::black_box;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use skopos_term::Failure;

/// Milliseconds of work and of rest, over and over: from a blink to longer than a policy's memory,
/// and together no multiple of any interval.
const SPANS: [(u64, u64); 5] =
    [(210, 1_030), (1_570, 330), (50, 2_110), (3_170, 1_490), (530, 4_010)];

/// Works in bursts.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Bursts {
    /// How long; then it ends by itself.
    pub(crate) seconds: f64,
}

impl Bursts {
    pub(crate) fn work(&self) -> Result<(), Failure> {
        let life = Duration::try_from_secs_f64(self.seconds)
            .map_err(|e| Failure::new("no time to work for").because(&e))?;
        let started = Instant::now();
        for (work, rest) in SPANS.into_iter().cycle() {
            let burst = Instant::now();
            while burst.elapsed() < Duration::from_millis(work) {
                // A clock is read a thousand times less often than there is something to add.
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
