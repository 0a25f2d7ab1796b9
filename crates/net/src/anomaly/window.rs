//! The sequence numbers of one session that were received: finds replays, and counts losses.

/// The number of sequence numbers below the highest one that may still arrive: packets of a node are a second or more
/// apart, so paths that differ by a minute are covered.
const WIDTH: u32 = 64;

/// The received numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    highest: u32,
    /// Bit `n` is set if `highest - n` was received.
    received: u64,
    /// Numbers that are missing, so far.
    lost: u64,
}

impl Window {
    /// Starts with a number in the midst of a session: earlier ones are not lost, they are not known.
    pub(super) fn starting_at(sequence: u32) -> Self {
        Self { highest: sequence, received: u64::MAX, lost: 0 }
    }

    /// Starts a session of which every number is expected.
    pub(super) fn of_new_session() -> Self {
        Self::starting_at(0)
    }

    /// Notes a number. Returns false if it was received before, or is too old to know.
    pub(super) fn take(&mut self, sequence: u32) -> bool {
        if let Some(ahead) = sequence.checked_sub(self.highest).filter(|ahead| *ahead > 0) {
            self.received = self.received.checked_shl(ahead).unwrap_or(0) | 1;
            self.highest = sequence;
            self.lost += u64::from(ahead - 1);
            return true;
        }
        let behind = self.highest - sequence;
        if behind >= WIDTH || self.received >> behind & 1 == 1 {
            return false;
        }
        self.received |= 1 << behind;
        self.lost = self.lost.saturating_sub(1);
        true
    }

    /// Returns the number of lost reports. A late one lowers it.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replays_are_found_and_late_numbers_are_not_lost() {
        let mut window = Window::of_new_session();
        let taken: Vec<bool> = [1, 2, 2, 5, 3, 3, 5, 1].map(|n| window.take(n)).into();
        assert_eq!(taken, [true, true, false, true, true, false, false, false]);
        assert_eq!(window.lost(), 1);
        assert!(window.take(200) && !window.take(100) && !window.take(136) && window.take(137));
        assert_eq!(window.lost(), 194);
    }

    #[test]
    fn numbers_before_the_first_that_a_new_receiver_saw_are_not_lost() {
        let mut window = Window::starting_at(1000);
        assert!(!window.take(1000) && !window.take(999) && window.take(1001));
        assert_eq!(window.lost(), 0);
        assert!(window.take(u32::MAX) && !window.take(0));
    }
}
