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

use skopos_model::MAX_TOPIC_BYTES;

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

/// The longest name of a node: it is a part of each topic of the node. The transport allows keys of 64 KB, and followers
/// remember the names in them.
const MAX_NAME_BYTES: usize = MAX_TOPIC_BYTES;

/// Returns the name and the incarnation at the end of a publisher's key; `None` if the name is too long.
pub(crate) fn publisher(key: &str) -> Option<(String, i64)> {
    let mut parts = key.rsplit('/');
    let incarnation = parts.next()?.parse().ok()?;
    let name = parts.next().filter(|name| name.len() <= MAX_NAME_BYTES)?;
    Some((name.to_owned(), incarnation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publisher_has_a_name_that_a_topic_can_begin_with() {
        let key = |name: &str| of_publisher("test", "live", name, 7);
        assert_eq!(publisher(&key("n01")), Some(("n01".to_owned(), 7)));
        assert_eq!(publisher(&key(&"n".repeat(60_000))), None);
        assert_eq!(publisher("skopos/test/live/n01/x"), None);
    }
}
