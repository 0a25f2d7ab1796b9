//! The bounds of statements and of what is kept for them.

/// The longest statement. A page of text; bounds the work of a parser.
pub const MAX_SQL_BYTES: usize = 4096;

/// The most rows that one statement keeps: four segments full of vertices. Bounds its memory, which is
/// about 150 bytes a row and 40 more for each aggregate.
pub const MAX_ROWS: usize = 65_536;

/// The most samples that a window keeps: more than an hour at one sample a second. Its memory is
/// 16 bytes a sample and up to 40 more for each aggregate.
pub const MAX_WINDOW_SAMPLES: usize = 4096;

/// The deepest nesting of expressions. Far more than a reader can follow; bounds the recursion.
pub(crate) const MAX_DEPTH: usize = 48;

/// The most tests of topic, node, unit and kind in a statement. A row keeps their outcomes in the bits
/// of one word, so that a change reads no text; a list of `IN` is one test.
pub(crate) const MAX_TEXT_TESTS: usize = 64;

/// The most numbers that a statement selects. An insight has one; a point query needs a few.
pub(crate) const MAX_OUTPUTS: usize = 16;

/// The most aggregates of a statement. Each costs some nanoseconds at each change.
pub(crate) const MAX_AGGREGATES: usize = 32;

/// The most different exponential means of a statement. Each keeps 24 bytes a row.
pub(crate) const MAX_EMAS: usize = 8;

/// The most patterns that a statement returns. A listener compares each new topic with each pattern, so
/// with more patterns it is cheaper to read every topic.
pub(crate) const MAX_PATTERNS: usize = 64;
