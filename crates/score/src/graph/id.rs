use std::fmt;

/// The bits of an id that hold the index in the table; the others count how often that index was
/// reused.
const INDEX_BITS: u32 = 20;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

/// The most vertices of one graph. A node has about a thousand, and a hub mirrors a site; ids leave
/// room for this many, and for 4,096 successors of each.
pub const MAX_VERTICES: usize = 1 << INDEX_BITS;

/// The number of times that an index is used before it is left empty for good, so that an id never
/// refers to another vertex.
pub(super) const MAX_GENERATION: u32 = u32::MAX >> INDEX_BITS;

/// Identifies one vertex of a graph for as long as the graph lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VertexId(u32);

impl VertexId {
    #[inline]
    pub(super) const fn new(index: u32, generation: u32) -> Self {
        Self(generation << INDEX_BITS | index)
    }

    /// Returns the number that identifies the vertex in the calls of [`Insight`](crate::Insight).
    #[inline]
    pub const fn as_u32(self) -> u32 {
        self.0
    }

    #[inline]
    pub(super) const fn index(self) -> usize {
        (self.0 & INDEX_MASK) as usize
    }

    #[inline]
    pub(super) const fn generation(self) -> u32 {
        self.0 >> INDEX_BITS
    }
}

impl fmt::Display for VertexId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index(), self.generation())
    }
}
