//! The keys of the live plane.
//!
//! ```text
//! skopos/SITE/live/NODE/INCARNATION        batches, in the order of their numbers
//! skopos/SITE/whole/NODE/INCARNATION/PART  the parts of a snapshot: `0of3`, `1of3`, `2of3`
//! skopos/SITE/ask/NODE                     a topic, measured now
//! skopos/SITE/alive/NODE/INCARNATION       a liveliness token, which goes with its publisher
//! skopos/SITE/known/NODE                   the incarnation that a follower knows
//! skopos/SITE/history/NODE/INCARNATION/N   stored samples, in batches that are numbered from 1
//! skopos/SITE/history/NODE/INCARNATION/end the number of these batches, and whether they are complete
//! skopos/SITE/renew/NODE                   the next certificate of a node
//! ```
//!
//! An incarnation is the time at which a publisher started, in nanoseconds.

/// Returns the key `what` of one publisher, or of all that `node` and `incarnation` match.
pub(crate) fn of_publisher(
    site: &str,
    what: &str,
    node: &str,
    incarnation: impl std::fmt::Display,
) -> String {
    format!("skopos/{site}/{what}/{node}/{incarnation}")
}

/// Returns the key `what` of one name, or of all that `node` matches.
pub(crate) fn of_name(site: &str, what: &str, node: &str) -> String {
    format!("skopos/{site}/{what}/{node}")
}

/// Returns the name and the incarnation at the end of a publisher's key.
pub(crate) fn publisher(key: &str) -> Option<(String, i64)> {
    let mut parts = key.rsplit('/');
    let incarnation = parts.next()?.parse().ok()?;
    Some((parts.next()?.to_owned(), incarnation))
}
