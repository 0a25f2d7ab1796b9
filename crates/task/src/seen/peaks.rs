//! The largest sum of peaks of any set of processes that were there at one time, without a list of
//! all that ever were.
//!
//! A process' peak is known when it ends. Until then every moment since its start lacks its share.
//! Which shares a past moment still lacks depends only on how many of the processes that live now
//! had started then; so of all moments with the same lack only the greatest sum matters, and there
//! are no more of those than living processes.

use crate::sys::Pid;

/// For one kind of peak.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peaks {
    /// The greatest complete sum.
    done: u64,
    /// Living processes in the order of their start, each with the greatest sum of known peaks
    /// since it started and before the next one did.
    live: Vec<(Pid, u64)>,
}

impl Peaks {
    pub(crate) fn born(&mut self, pid: Pid) {
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

    /// The greatest sum, once all have ended.
    pub(crate) fn greatest(&self) -> u64 {
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every moment, summed up afterwards.
    fn by_hand(spans: &[(u64, u64, u64)]) -> u64 {
        let sum_at = |t| spans.iter().filter(|s| s.0 <= t && t < s.1).map(|s| s.2).sum();
        spans.iter().map(|s| sum_at(s.0)).max().unwrap_or(0)
    }

    #[test]
    fn as_many_as_were_there_together() {
        let mut state = 7u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
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
                        peaks.born(pid);
                    } else if span.1 == t {
                        peaks.ended(pid, span.2);
                    }
                }
            }
            assert_eq!(peaks.greatest(), by_hand(&spans), "{spans:?}");
        }
    }
}
