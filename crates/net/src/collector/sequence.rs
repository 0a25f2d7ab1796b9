//! Counts what is missing from numbered packets, also where they arrive out of order.

/// The most numbers that a packet may be late. Later ones count as lost, and as seen before.
pub const WINDOW: u32 = 64;

/// A jump that is larger than this is a restart of the sender, not a loss.
const RESTART: u32 = 1 << 20;

/// The last numbers of one sender.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sequence {
    /// The bits of a number: it counts from 0 again after the largest.
    mask: u32,
    highest: Option<u32>,
    /// Bit `n` is set if the number `highest - n` was seen.
    seen: u64,
    lost: u64,
}

/// The place of a number among those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The highest number so far.
    Newest,
    /// A number that was missing.
    Late,
    /// A number that was seen, or that is older than the window.
    Old,
    /// The sender began anew.
    Restart,
}

impl Sequence {
    /// Makes the state of a sender whose numbers have `bits` bits, at most 32.
    pub(super) fn new(bits: u32) -> Self {
        Self { mask: u32::MAX >> (32 - bits.clamp(1, 32)), highest: None, seen: 0, lost: 0 }
    }

    /// Returns the place of a number, without noting it.
    pub(super) fn place(&self, number: u32) -> Place {
        let Some(highest) = self.highest else { return Place::Newest };
        let ahead = number.wrapping_sub(highest) & self.mask;
        let behind = highest.wrapping_sub(number) & self.mask;
        if ahead != 0 && ahead <= RESTART {
            Place::Newest
        } else if behind < WINDOW {
            if self.seen >> behind & 1 == 1 { Place::Old } else { Place::Late }
        } else if behind <= RESTART {
            Place::Old
        } else {
            Place::Restart
        }
    }

    /// Notes a number.
    pub(super) fn note(&mut self, number: u32) -> Place {
        let place = self.place(number);
        match (place, self.highest) {
            (Place::Newest, Some(highest)) => {
                let ahead = number.wrapping_sub(highest) & self.mask;
                self.lost += u64::from(ahead - 1);
                self.seen = self.seen.checked_shl(ahead).unwrap_or(0) | 1;
                self.highest = Some(number);
            }
            (Place::Late, Some(highest)) => {
                self.seen |= 1 << (highest.wrapping_sub(number) & self.mask);
                self.lost = self.lost.saturating_sub(1);
            }
            (Place::Newest | Place::Restart, _) => self.begin(number),
            (Place::Old | Place::Late, _) => {}
        }
        place
    }

    /// Begins anew at a number. What is lost until now stays counted.
    pub(super) fn begin(&mut self, number: u32) {
        (self.highest, self.seen) = (Some(number), 1);
    }

    /// Number of missing packets so far.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(bits: u32, numbers: &[u32]) -> u64 {
        let mut sequence = Sequence::new(bits);
        for number in numbers {
            sequence.note(*number);
        }
        sequence.lost()
    }

    #[test]
    fn gaps_are_counted_and_late_packets_close_them() {
        assert_eq!(lost(32, &[5, 6, 7]), 0);
        assert_eq!(lost(32, &[5, 9]), 3);
        assert_eq!(lost(32, &[5, 9, 7, 6]), 1);
        assert_eq!(lost(32, &[5, 9, 7, 7, 7]), 2);
        assert_eq!(lost(32, &[5, 105, 40]), 99);
        assert_eq!(lost(22, &[0x3f_fffe, 0x3f_ffff, 0, 2]), 1);
        assert_eq!(lost(32, &[u32::MAX, 0]), 0);
        // A restart is not a loss.
        assert_eq!(lost(32, &[5_000_000, 0, 1]), 0);
        assert_eq!(lost(22, &[2_000_000, 0, 1]), 0);
    }

    #[test]
    fn numbers_have_a_place() {
        let mut sequence = Sequence::new(22);
        assert_eq!(sequence.note(100), Place::Newest);
        assert_eq!(sequence.note(103), Place::Newest);
        assert_eq!(sequence.note(101), Place::Late);
        assert_eq!(sequence.note(101), Place::Old);
        assert_eq!(sequence.note(103), Place::Old);
        assert_eq!(sequence.note(3), Place::Old);
        assert_eq!(sequence.note(103 + RESTART + WINDOW), Place::Restart);
    }
}
