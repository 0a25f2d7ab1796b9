//! The longest and deepest that topics, units and structured values can be.

/// The longest topic. A directory entry of a segment keeps the topic in place, and 255 holds the
/// longest file name that Linux allows as an instance.
pub const MAX_TOPIC_BYTES: usize = 255;

/// The deepest topic. Twice the need of any sensor; bounds the work of matching a pattern.
pub const MAX_TOPIC_SEGMENTS: usize = 16;

/// The longest unit. A directory entry of a segment keeps the unit in place.
pub const MAX_UNIT_BYTES: usize = 16;

/// The longest structured value once encoded: a list of a few hundred node names. Larger data is a
/// table, not a sample.
pub const MAX_STRUCTURED_BYTES: usize = 4096;

/// The deepest nesting of a structured value. Deeper data is a document; the bound keeps the recursion
/// of every reader small.
pub const MAX_STRUCTURED_DEPTH: usize = 8;
