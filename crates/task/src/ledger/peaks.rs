//! The largest sum of the peaks of processes that lived at one time, without a list of all processes
//! that ever lived.
//!
//! The peak of a process is known when it exits. Until then the sum of every moment since its start
//! lacks that peak. The peaks that a past moment still lacks depend only on the number of present
//! processes that had started by then. Of all moments that lack the same peaks, only the one with the
//! greatest sum matters, so there are never more candidates than living processes.

use crate::sys::Pid;

/// The sums of one kind of peak.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peaks {
    /// The greatest complete sum.
    done: u64,
    /// Living processes in the order of their start, each with the greatest sum of known peaks
    /// between its start and the start of the next process.
    live: Vec<(Pid, u64)>,
}

impl Peaks {
    pub(crate) fn started(&mut self, pid: Pid) {
        self.live.push((pid, 0));
    }

    pub(crate) fn ended(&mut self, pid: Pid, peak: u64) {
        let Some(at) = self.live.iter().position(|(live, _)| *live == pid) else { return };
        for (_, sum) in &mut self.live[at..] {
            *sum += peak;
        }
        let (_, sum) = self.live.remove(at);
        let before = match at.checked_sub(1) {
            Some(before) => &mut self.live[before].1,
            None => &mut self.done,
        };
        *before = sum.max(*before);
    }

    /// The greatest sum, once all processes have exited.
    pub(crate) fn greatest(&self) -> u64 {
        self.done
    }
}

#[cfg(test)]
mod tests {
    use skopos_model::SplitMix64;

    use super::*;

    /// Sums every moment afterwards.
    fn by_hand(spans: &[(u64, u64, u64)]) -> u64 {
        let sum_at = |t| spans.iter().filter(|s| s.0 <= t && t < s.1).map(|s| s.2).sum();
        spans.iter().map(|s| sum_at(s.0)).max().unwrap_or(0)
    }

    #[test]
    fn the_greatest_sum_is_that_of_processes_that_lived_together() {
        let mut bits = SplitMix64::new(7);
        let mut random = |below: u64| bits.bits() % below;
        for _ in 0..500 {
            // Starts and ends are all at different times.
            let mut times: Vec<u64> = (0..24).collect();
            let mut spans: Vec<(u64, u64, u64)> = Vec::new();
            while times.len() >= 2 {
                let a = times.swap_remove(random(times.len() as u64) as usize);
                let b = times.swap_remove(random(times.len() as u64) as usize);
                spans.push((a.min(b), a.max(b), random(100)));
            }
            let mut peaks = Peaks::default();
            for t in 0..24 {
                for (pid, span) in (1..).zip(&spans) {
                    if span.0 == t {
                        peaks.started(pid);
                    } else if span.1 == t {
                        peaks.ended(pid, span.2);
                    }
                }
            }
            assert_eq!(peaks.greatest(), by_hand(&spans), "{spans:?}");
        }
    }
}
