/// The most inputs of one insight, each of which may match many topics. Of the built-in insights,
/// the largest has twelve.
pub const MAX_INPUTS: usize = 64;

/// The most topics that match one input: enough for a site with many devices on each node, and a
/// limit on the cost of a careless `**`.
pub const MAX_MATCHED: usize = 1 << 16;

/// The most insights on a path from a fact. The paper measures 32; twice that is far beyond a
/// design that anybody can explain, and it bounds the propagation of a change.
pub const MAX_HEIGHT: usize = 64;
