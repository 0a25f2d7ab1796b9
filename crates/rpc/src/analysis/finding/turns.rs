//! Plays the turns of a progress loop again with another number of completions in each.
//!
//! The loop has its turns at the times of the trace, because other tasks decide when it runs. Responses wait in the order
//! in which they came, and a turn completes as many as it may. Calls begin when they began: the model holds for origins
//! that do not wait for completions before they issue further calls.

use super::view::Joined;

/// A pause between two completions that is so many times longer than the usual one separates two turns.
const PAUSE: u64 = 20;

/// The part of the most calls under way from which an origin counts as full.
const FULL: f64 = 0.9;

/// A response that came, and the turn that completed it, in ns.
struct Response {
    begin: i64,
    ready: i64,
    end: i64,
}

/// The calls of one origin, ready to be played.
pub(super) struct Turns {
    /// By the time at which the response was ready.
    responses: Vec<Response>,
    /// The first completion of each turn.
    turns: Vec<i64>,
}

impl Turns {
    /// Finds the turns: completions that follow one another without a pause, at most `limit` of them.
    pub(super) fn new(calls: &[Joined], limit: u64) -> Self {
        let response =
            |call: &Joined| Response { begin: call.start, ready: call.served(), end: call.end };
        let mut responses: Vec<Response> = calls.iter().map(response).collect();
        responses.sort_by_key(|response| response.ready);
        let mut ends: Vec<i64> = responses.iter().map(|response| response.end).collect();
        ends.sort_unstable();
        let mut gaps: Vec<u64> = ends.windows(2).map(|pair| pair[0].abs_diff(pair[1])).collect();
        gaps.sort_unstable();
        let pause = gaps.get(gaps.len() / 2).copied().unwrap_or(0).max(1).saturating_mul(PAUSE);
        let mut turns: Vec<i64> = Vec::new();
        let (mut last, mut count) = (i64::MIN, 0);
        for end in ends {
            if turns.is_empty() || count >= limit || last.abs_diff(end) > pause {
                turns.push(end);
                count = 0;
            }
            (last, count) = (end, count + 1);
        }
        Self { responses, turns }
    }

    /// The sum of the durations of all calls in ns, if each turn completes up to `limit` of them.
    pub(super) fn total(&self, limit: u64) -> f64 {
        let mut total = 0.0;
        let mut next = self.responses.iter().peekable();
        for turn in &self.turns {
            for _ in 0..limit {
                let Some(response) = next.next_if(|response| response.ready <= *turn) else {
                    break;
                };
                total += turn.abs_diff(response.begin) as f64;
            }
        }
        // Responses that came after the last turn of the model end as they did.
        total + next.map(|response| response.end.abs_diff(response.begin) as f64).sum::<f64>()
    }
}

/// Whether most calls began when nearly as many were under way as ever: then a bound holds calls back until others
/// complete, and each completion is followed by a new call.
pub(super) fn is_closed(calls: &[Joined]) -> bool {
    let mut moments: Vec<(i64, i64)> =
        calls.iter().flat_map(|call| [(call.start, 1), (call.end, -1)]).collect();
    moments.sort_unstable();
    let mut now = 0;
    let mut at_begin = Vec::new();
    for (_, change) in moments {
        now += change;
        if change > 0 {
            at_begin.push(now);
        }
    }
    let most = at_begin.iter().copied().max().unwrap_or(0) as f64;
    let full = at_begin.iter().filter(|count| **count as f64 >= FULL * most).count();
    full * 2 > at_begin.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call whose response is ready at once.
    fn call(start: i64, end: i64) -> Joined {
        Joined { start, end, arrived: start, ..Joined::default() }
    }

    /// Between two turns of the loop 4 calls begin, and a turn completes 1 of them.
    fn starved() -> Vec<Joined> {
        let turn = |number: i64| 1_000_000 * (number + 1);
        (0..40).map(|n| call(turn(n / 4) - 500_000 + n % 4, turn(n))).collect()
    }

    #[test]
    fn a_wider_turn_completes_calls_earlier() {
        let calls = starved();
        let turns = Turns::new(&calls, 1);
        assert_eq!(turns.turns.len(), 40);
        let real: f64 = calls.iter().map(|c| c.end.abs_diff(c.start) as f64).sum();
        assert!((turns.total(1) - real).abs() < 1.0, "the model repeats the trace");
        // Each call is completed by the turn that follows it, half a millisecond later.
        let wide = turns.total(4);
        assert!((wide - 40.0 * 500_000.0).abs() < 1000.0, "{wide}");
        assert!(turns.total(2) < real && turns.total(2) > wide);
        assert_eq!(turns.total(64), wide);
    }

    #[test]
    fn a_window_that_is_full_is_told_from_calls_that_do_not_wait() {
        assert!(!is_closed(&starved()));
        // Eight under way, and each completion is followed by a new call.
        let closed: Vec<Joined> = (0..80).map(|n| call(n * 10, n * 10 + 80)).collect();
        assert!(is_closed(&closed));
        assert!(!is_closed(&[]));
    }
}
