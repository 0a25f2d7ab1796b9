//! Prediction from the data that a vertex stores: only the changes, and the time of the last poll.

use skopos_model::{Kind, Timestamp};

use super::predictor::{Prediction, Predictor};
use super::window::WINDOW;

/// The most polls without a change that are restored before a change: enough to make the window
/// before it flat, as the value was.
const MOST_REPEATS: u32 = WINDOW as u32 - 1;

/// The number of polling intervals from which a gap counts as a poll without a change.
const A_GAP: f64 = 1.5;

/// Restores the polls of a source from its changes: calls `observe` with each change, and before it
/// with the value that had held, at the times of the polls that found no change.
///
/// A vertex stores changes only, so two samples ten seconds apart are a jump at the end of that
/// time and not a slope. The polling interval is not stored; the function takes the shortest time
/// between two changes, or from the last one to `checked_at`. It restores at most four polls before
/// each change.
pub fn restore_polls(
    changes: &[(Timestamp, f64)],
    checked_at: Timestamp,
    mut observe: impl FnMut(Timestamp, f64),
) {
    let Some((last, _)) = changes.last() else { return };
    let gaps = changes.windows(2).map(|two| two[1].0.since(two[0].0));
    let poll = gaps.chain([checked_at.since(*last)]).filter(|gap| !gap.is_zero()).min();
    for (i, (time, value)) in changes.iter().enumerate() {
        observe(*time, *value);
        let Some(poll) = poll else { continue };
        // Up to the poll before the next change; at the end, up to and including the last poll.
        let (end, last_poll) = match changes.get(i + 1) {
            Some((next, _)) => (*next, 1),
            None => (checked_at, 0),
        };
        let polls = end.since(*time).as_secs_f64() / poll.as_secs_f64();
        for back in (last_poll..last_poll + MOST_REPEATS).rev() {
            // Each repeat lies at least half an interval after the change.
            if polls - f64::from(back) >= A_GAP - 1.0 {
                observe(end.saturating_sub(poll.saturating_mul(back)), *value);
            }
        }
    }
}

/// Predicts the value of a vertex at `at` from its stored changes, with a [`Predictor`] that lives
/// for one call and keeps no state. `None` if no value is stored.
pub fn predict(
    kind: Kind,
    changes: &[(Timestamp, f64)],
    checked_at: Timestamp,
    at: Timestamp,
) -> Option<Prediction> {
    let mut predictor = Predictor::for_kind(kind);
    restore_polls(changes, checked_at, |time, value| {
        predictor.observe(time, value);
    });
    predictor.now(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(changes: &[(i64, f64)], checked_at: i64, expected: &[(i64, f64)]) {
        let changes: Vec<_> =
            changes.iter().map(|(t, v)| (Timestamp::from_nanos(*t), *v)).collect();
        let mut seen = Vec::new();
        restore_polls(&changes, Timestamp::from_nanos(checked_at), |t, v| {
            seen.push((t.as_nanos(), v))
        });
        assert_eq!(seen, expected, "{changes:?} {checked_at}");
    }

    #[test]
    fn polls_without_a_change_are_put_back() {
        check(&[], 10, &[]);
        check(&[(5, 1.0)], 5, &[(5, 1.0)]);
        // Every poll found a new value.
        check(&[(0, 1.0), (10, 2.0), (20, 3.0)], 20, &[(0, 1.0), (10, 2.0), (20, 3.0)]);
        // One poll found no change, then three did.
        check(
            &[(0, 1.0), (10, 2.0), (30, 3.0)],
            60,
            &[(0, 1.0), (10, 2.0), (20, 2.0), (30, 3.0), (40, 3.0), (50, 3.0), (60, 3.0)],
        );
        // Only the end of a long rest is restored.
        check(
            &[(0, 1.0), (10, 2.0), (1000, 3.0)],
            1000,
            &[(0, 1.0), (10, 2.0), (960, 2.0), (970, 2.0), (980, 2.0), (990, 2.0), (1000, 3.0)],
        );
        // A poll that is a little late leaves no gap.
        check(&[(0, 1.0), (10, 2.0), (24, 3.0)], 24, &[(0, 1.0), (10, 2.0), (24, 3.0)]);
        // The last poll alone shows the interval.
        check(&[(0, 1.0)], 7, &[(0, 1.0), (7, 1.0)]);
    }
}
