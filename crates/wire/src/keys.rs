//! The keys of the live plane.
//!
//! ```text
//! skopos/SITE/live/HASH/NODE/INCARNATION        batches, in the order of their numbers
//! skopos/SITE/whole/HASH/NODE/INCARNATION/PART  the parts of a snapshot: `0of3`, `1of3`, `2of3`
//! skopos/SITE/ask/HASH/NODE                     a topic, measured now
//! skopos/SITE/alive/HASH/NODE/INCARNATION       a liveliness token, which goes with its publisher
//! skopos/SITE/known/HASH/NODE                   the incarnation that a follower knows
//! skopos/SITE/history/HASH/NODE/INCARNATION/N   stored samples, in batches that are numbered from 1
//! skopos/SITE/history/HASH/NODE/INCARNATION/end the number of these batches, and whether they are complete
//! skopos/SITE/renew/HASH/NODE                   the next certificate of a node
//! skopos/SITE/records/HASH/HUB                  records of jobs for a hub, and the jobs of a node
//! ```
//!
//! An incarnation is the time at which a publisher started, in nanoseconds. `HASH` is a hash of the node's name, in two
//! hexadecimal digits: the transport compares a new key with every other one that differs in one part, so ten thousand
//! nodes side by side would make each of the last ones cost a hub some 10 ms.

use skopos_model::MAX_TOPIC_BYTES;

/// Returns the key `what` of one publisher, or of all that `node` and `incarnation` match.
pub(crate) fn of_publisher(
    site: &str,
    what: &str,
    node: &str,
    incarnation: impl std::fmt::Display,
) -> String {
    format!("{}/{incarnation}", of_name(site, what, node))
}

/// Returns the key `what` of one name, or of all that `node` matches.
pub(crate) fn of_name(site: &str, what: &str, node: &str) -> String {
    match node.contains('*') {
        true => format!("skopos/{site}/{what}/*/{node}"),
        false => format!("skopos/{site}/{what}/{:02x}/{node}", hash(node)),
    }
}

/// Returns patterns of the liveliness tokens of versions whose keys have fewer or more parts. No token of this version is among
/// them.
pub(crate) fn of_other_versions(site: &str) -> [String; 2] {
    ["*/*", "*/*/*/*/**"].map(|parts| format!("skopos/{site}/alive/{parts}"))
}

/// Returns a hash of a name, the same in each program: FNV-1a in 32 bits, folded.
fn hash(name: &str) -> u8 {
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = name.bytes().fold(0x811c_9dc5, mix);
    (hash ^ (hash >> 16)) as u8
}

/// The longest name of a node: it is a part of each topic of the node. The transport allows keys of 64 KB, and followers
/// remember the names in them.
const MAX_NAME_BYTES: usize = MAX_TOPIC_BYTES;

/// Returns the name and the incarnation at the end of a publisher's key; `None` if the name is too long, or the key is
/// written in another way than [`of_publisher`] writes it: followers keep keys, which then could be of any length.
pub(crate) fn publisher(key: &str) -> Option<(String, i64)> {
    let mut parts = key.rsplit('/');
    let text = parts.next()?;
    let incarnation: i64 = text.parse().ok()?;
    let name = parts.next().filter(|name| name.len() <= MAX_NAME_BYTES)?;
    let is_own = text == incarnation.to_string() && parts.next()? == format!("{:02x}", hash(name));
    is_own.then(|| (name.to_owned(), incarnation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_ten_thousand_nodes_are_spread_evenly() {
        let mut nodes = [0; 256];
        for node in 0..10_000 {
            nodes[usize::from(hash(&format!("node{node:05}")))] += 1;
        }
        let most = nodes.into_iter().max();
        assert!(most.is_some_and(|most| most < 100), "{most:?}");
        let key = of_publisher("s", "live", "n01", 7);
        assert_eq!(key, "skopos/s/live/cd/n01/7");
        assert_eq!(of_name("s", "ask", "n01"), "skopos/s/ask/cd/n01");
        let all = zenoh::key_expr::KeyExpr::new(of_publisher("s", "live", "n$*", "*"));
        let key = zenoh::key_expr::KeyExpr::new(key).expect("a key");
        assert!(all.expect("a key").includes(&key));
    }

    #[test]
    fn a_publisher_has_a_name_that_a_topic_can_begin_with() {
        let key = |name: &str| of_publisher("test", "live", name, 7);
        assert_eq!(publisher(&key("n01")), Some(("n01".to_owned(), 7)));
        assert_eq!(publisher(&key(&"n".repeat(60_000))), None);
        for wrong in
            ["live/n01/x", "live/cd/n01/007", "live/cd/n01/+7", "live/00cd/n01/7", "live/ab/n01/7"]
        {
            assert_eq!(publisher(&format!("skopos/test/{wrong}")), None, "{wrong}");
        }
    }
}
