//! The parts that both encodings share.

use crate::analysis::clocks::mix;
use crate::export::span::Exporting;

/// The encoding of batches.
pub(super) trait Encoding {
    fn span(&mut self, span: &Exporting<'_>, ids: Ids);
    /// Ends a batch and returns it, ready for the wire.
    fn batch(&mut self) -> Vec<u8>;
}

/// The ids of an exported span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ids {
    pub(super) span: u64,
    /// 0 without a parent.
    pub(super) parent: u64,
}

/// The id of the callee's side of a call; never 0.
pub(super) fn served(span: u64) -> u64 {
    mix(span ^ 0x5345_5256_4544_2121).max(1)
}
