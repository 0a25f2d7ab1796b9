//! The least of changing numbers: a tree of matches whose winner is at the root.
//!
//! A change replays the log2(n) matches of one leaf; reading the least takes one load. The leaves are
//! slots, so there is no search, and only a new slot allocates.

/// The tree. Node 1 is the root, the children of `n` are `2n` and `2n + 1`, and the leaves are the second
/// half. A leaf without a number is NaN.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tournament {
    nodes: Vec<f64>,
}

impl Tournament {
    /// Makes room for `slots` leaves.
    pub(crate) fn grow(&mut self, slots: usize) {
        let old = self.nodes.len() / 2;
        if slots <= old {
            return;
        }
        let leaves = slots.next_power_of_two();
        let mut nodes = vec![f64::NAN; 2 * leaves];
        nodes[leaves..leaves + old].copy_from_slice(&self.nodes[old..]);
        for node in (1..leaves).rev() {
            // `f64::min` prefers a number to NaN.
            nodes[node] = nodes[2 * node].min(nodes[2 * node + 1]);
        }
        self.nodes = nodes;
    }

    /// Sets the number of a slot; NaN removes it.
    #[inline]
    pub(crate) fn set(&mut self, slot: usize, number: f64) {
        let mut node = self.nodes.len() / 2 + slot;
        self.nodes[node] = number;
        while node > 1 {
            let winner = self.nodes[node].min(self.nodes[node ^ 1]);
            node /= 2;
            if self.nodes[node].to_bits() == winner.to_bits() {
                return;
            }
            self.nodes[node] = winner;
        }
    }

    /// Returns the least number; NaN without numbers.
    #[inline]
    pub(crate) fn least(&self) -> f64 {
        self.nodes.get(1).copied().unwrap_or(f64::NAN)
    }
}
