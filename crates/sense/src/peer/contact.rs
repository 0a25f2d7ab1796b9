//! The state of one peer: the open probes, and the results of the others.

use std::time::Duration;

use super::datagram::{Name, Times};
use super::filter::{Answer, Filter};
use super::settings::MAX_PENDING;

/// A peer is dead after two unanswered probes, since one may have been lost on the way.
const MIN_UNANSWERED: u32 = 2;

/// A probe that has no answer yet.
#[derive(Clone, Copy)]
struct Pending {
    sequence: u64,
    sent: Duration,
}

/// Two clocks of this node, read at the same time: the one that never steps, and the system time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    pub(crate) monotonic: Duration,
    pub(crate) wall_nanos: i64,
}

/// The fate of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Accepted; or late, or from a node with another name, and counted as such.
    Counted,
    /// Its times cannot be true.
    Impossible,
}

/// The counts that are published.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) probes: u64,
    pub(crate) answered: u64,
    pub(crate) lost: u64,
    pub(crate) late: u64,
    pub(crate) misnamed: u64,
}

/// One peer.
pub(crate) struct Contact {
    name: Name,
    timeout: Duration,
    pending: [Option<Pending>; MAX_PENDING],
    /// Lost probes that were sent after the probe that was answered last.
    lost_in_a_row: u32,
    last_answered: Option<u64>,
    last_sent: Option<Duration>,
    pub(crate) tally: Tally,
    pub(crate) filter: Filter,
    /// The last answer, and the system time at which it arrived.
    pub(crate) last: Option<(Answer, i64)>,
    /// The name in the last answer, if it was not the peer's.
    pub(crate) impostor: Option<Name>,
}

impl Contact {
    pub(crate) fn new(name: Name, timeout: Duration) -> Self {
        Self {
            name,
            timeout,
            pending: [None; MAX_PENDING],
            lost_in_a_row: 0,
            last_answered: None,
            last_sent: None,
            tally: Tally::default(),
            filter: Filter::default(),
            last: None,
            impostor: None,
        }
    }

    /// Counts probes that are older than the timeout as lost.
    pub(crate) fn expire(&mut self, now: Duration) {
        for at in 0..MAX_PENDING {
            let Some(pending) = self.pending[at] else { continue };
            if now.saturating_sub(pending.sent) >= self.timeout {
                self.lose(pending.sequence);
            }
        }
    }

    /// Returns whether the peer is alive, or `None` while that is not known. Call
    /// [`expire`](Self::expire) first.
    pub(crate) fn is_alive(&self) -> Option<bool> {
        let since_answer = |p: &&Pending| Some(p.sequence) > self.last_answered;
        let under_way = self.pending.iter().flatten().filter(since_answer).count() as u32;
        // Open probes count only beside a probe whose timeout has passed.
        if self.lost_in_a_row > 0 && self.lost_in_a_row + under_way >= MIN_UNANSWERED {
            return Some(false);
        }
        self.last.is_some().then_some(true)
    }

    /// Returns true if it is time for another probe. `interval` is shortened by a tenth, since
    /// polls do not come at exactly equal distances.
    pub(crate) fn is_due(&self, now: Duration, interval: Duration) -> bool {
        self.last_sent.is_none_or(|sent| now.saturating_sub(sent) >= interval * 9 / 10)
    }

    /// Records a probe that is about to be sent.
    pub(crate) fn sending(&mut self, sequence: u64, now: Duration) {
        self.tally.probes += 1;
        self.last_sent = Some(now);
        let probe = Some(Pending { sequence, sent: now });
        match self.pending.iter().position(Option::is_none) {
            Some(at) => self.pending[at] = probe,
            // The polls come faster than the interval allows for.
            None => self.lose(sequence),
        }
    }

    /// Records a probe that could not be sent, or whose answer is no longer waited for.
    pub(crate) fn lose(&mut self, sequence: u64) {
        self.take_pending(sequence);
        self.tally.lost += 1;
        if Some(sequence) > self.last_answered {
            self.lost_in_a_row = self.lost_in_a_row.saturating_add(1);
        }
    }

    fn take_pending(&mut self, sequence: u64) -> Option<Pending> {
        let is_it = |p: &&mut Option<Pending>| p.is_some_and(|p| p.sequence == sequence);
        self.pending.iter_mut().find(is_it)?.take()
    }

    /// Records an answer to the probe `sequence`, which this node sent at some time.
    pub(crate) fn answered(
        &mut self,
        sequence: u64,
        name: Name,
        times: Times,
        now: Clocks,
    ) -> Verdict {
        if name != self.name {
            self.tally.misnamed += 1;
            self.impostor = Some(name);
            return Verdict::Counted;
        }
        self.impostor = None;
        let is_it = |p: &&Pending| p.sequence == sequence;
        let Some(&pending) = self.pending.iter().flatten().find(is_it) else {
            self.tally.late += 1;
            return Verdict::Counted;
        };
        let Some(answer) = weigh(pending.sent, times, now) else { return Verdict::Impossible };
        self.take_pending(sequence);
        self.tally.answered += 1;
        if Some(sequence) > self.last_answered {
            self.last_answered = Some(sequence);
            self.lost_in_a_row = 0;
        }
        self.filter.add(answer);
        self.last = Some((answer, now.wall_nanos));
        Verdict::Counted
    }
}

/// Computes offset and round trip as in the header of `filter`. Returns `None` if the peer claims
/// to have taken longer than the whole round trip, or claims times that a clock cannot show.
fn weigh(sent: Duration, times: Times, now: Clocks) -> Option<Answer> {
    let round_trip = i64::try_from(now.monotonic.checked_sub(sent)?.as_nanos()).ok()?;
    let rtt_nanos = round_trip.checked_sub(times.sent.checked_sub(times.received)?)?;
    let monotonic = i64::try_from(now.monotonic.as_nanos()).ok()?;
    // By a clock that never steps: t1 = now - round trip, t4 = now.
    let there = i128::from(times.received) + i128::from(times.sent);
    let here = 2 * i128::from(monotonic) - i128::from(round_trip);
    let ahead_nanos = i64::try_from((there - here) / 2).ok()?;
    (rtt_nanos >= 0).then_some(Answer { arrived: now.monotonic, rtt_nanos, ahead_nanos })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(1250);

    fn name(name: &str) -> Name {
        Name::new(name.as_bytes()).expect("a name")
    }

    fn contact() -> Contact {
        Contact::new(name("n02"), TIMEOUT)
    }

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn clocks(millis: u64) -> Clocks {
        Clocks { monotonic: at(millis), wall_nanos: 0 }
    }

    fn answer(contact: &mut Contact, sequence: u64, millis: u64) -> Verdict {
        let times = Times { received: 0, sent: 0 };
        contact.answered(sequence, name("n02"), times, clocks(millis))
    }

    #[test]
    fn offset_and_round_trip_are_those_of_ntp() {
        // Sent at 1000 ms; there 90 s ahead; 3 ms there, 2 ms of work, 1 ms back.
        let times = Times { received: 91_003_000_000, sent: 91_005_000_000 };
        let found = weigh(at(1000), times, clocks(1006)).expect("possible");
        assert_eq!(found.rtt_nanos, 4_000_000);
        assert_eq!(
            found.ahead_nanos, 90_001_000_000,
            "off by half the difference between the two ways"
        );
        let takes_too_long = Times { received: 0, sent: 7_000_000 };
        assert_eq!(weigh(at(1000), takes_too_long, clocks(1006)), None);
        let no_clock = Times { received: i64::MIN, sent: i64::MAX };
        assert_eq!(weigh(at(1000), no_clock, clocks(1006)), None);
    }

    #[test]
    fn a_peer_is_dead_two_seconds_after_its_last_answer() {
        let mut contact = contact();
        assert_eq!(contact.is_alive(), None);
        contact.sending(0, at(0));
        assert_eq!(answer(&mut contact, 0, 1), Verdict::Counted);
        for (sequence, millis) in [(1, 500), (2, 1000), (3, 1500)] {
            contact.expire(at(millis));
            assert_eq!(contact.is_alive(), Some(true), "{millis}");
            contact.sending(sequence, at(millis));
        }
        contact.expire(at(2000));
        assert_eq!(contact.is_alive(), Some(false));
        // The latest probe is answered after all.
        answer(&mut contact, 3, 2010);
        assert_eq!(contact.is_alive(), Some(true));
        // The probe before it is lost, which does not matter now.
        contact.expire(at(2500));
        assert_eq!((contact.is_alive(), contact.tally.lost), (Some(true), 2));
    }

    #[test]
    fn one_lost_probe_does_not_make_a_peer_dead_however_slow_the_polls() {
        let mut contact = contact();
        contact.sending(0, at(0));
        answer(&mut contact, 0, 1);
        contact.sending(1, at(30_000));
        contact.expire(at(60_000));
        assert_eq!((contact.is_alive(), contact.tally.lost), (Some(true), 1));
        contact.sending(2, at(60_000));
        contact.expire(at(90_000));
        assert_eq!(contact.is_alive(), Some(false));
    }

    #[test]
    fn a_peer_that_never_answered_is_dead_and_not_unknown() {
        let mut contact = contact();
        contact.sending(0, at(0));
        contact.sending(1, at(500));
        assert_eq!(contact.is_alive(), None);
        contact.expire(at(1250));
        assert_eq!(contact.is_alive(), Some(false));
    }

    #[test]
    fn late_and_second_answers_are_counted_and_not_used() {
        let mut contact = contact();
        contact.sending(0, at(0));
        contact.expire(at(1250));
        answer(&mut contact, 0, 1300);
        contact.sending(1, at(1500));
        answer(&mut contact, 1, 1501);
        answer(&mut contact, 1, 1502);
        let Tally { probes, answered, lost, late, misnamed } = contact.tally;
        assert_eq!((probes, answered, lost, late, misnamed), (2, 1, 1, 2, 0));
    }

    #[test]
    fn an_answer_in_another_name_is_not_a_sign_of_life() {
        let mut contact = contact();
        contact.sending(0, at(0));
        let times = Times { received: 0, sent: 0 };
        contact.answered(0, name("n07"), times, clocks(1));
        contact.sending(1, at(500));
        contact.expire(at(1250));
        assert_eq!((contact.is_alive(), contact.tally.misnamed), (Some(false), 1));
        assert_eq!(contact.impostor, Some(name("n07")));
    }

    #[test]
    fn probes_beyond_the_limit_are_lost_and_counted() {
        let mut contact = contact();
        for sequence in 0..=MAX_PENDING as u64 {
            contact.sending(sequence, at(0));
        }
        assert_eq!((contact.tally.probes, contact.tally.lost), (MAX_PENDING as u64 + 1, 1));
    }
}
