//! Callpaths: chains of RPC names, of any depth, as one hash.
//!
//! The hash of a path is made from the hash of the path above it and the name of the call. So a target finds the node of
//! a call from the hash that came with the request and its own name, and analysis joins the nodes of all processes.
//!
//! ```text
//! name(n)         FNV-1a with 64 bits of the bytes of n
//! path(p, n)      h = p * 0x9e3779b97f4a7c15 xor name(n)
//!                 twice: h = (h xor (h >> 32)) * 0xd6e8feb86659fd93
//!                 h = h xor (h >> 32); 1 if that is 0
//! ```
//!
//! All arithmetic is modulo 2^64; the path above the root is 0.

/// The path above the root.
pub const ROOT: u64 = 0;

/// Returns the hash of a name.
pub const fn name_hash(name: &str) -> u64 {
    let bytes = name.as_bytes();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash
}

/// Returns the hash of the path that continues `parent` by a call whose name has the hash `name`. Never [`ROOT`].
#[inline]
pub const fn child(parent: u64, name: u64) -> u64 {
    const MIX: u64 = 0xd6e8_feb8_6659_fd93;
    let mut hash = parent.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ name;
    hash = (hash ^ (hash >> 32)).wrapping_mul(MIX);
    hash = (hash ^ (hash >> 32)).wrapping_mul(MIX);
    hash ^= hash >> 32;
    if hash == ROOT { 1 } else { hash }
}

/// The ancestry of a call as the paper has it: the last four names in 16 bits each, the youngest in the lowest bits.
///
/// For exchange with programs that have this form only: 16 bits of a name are not unique among a few hundred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ancestry(pub u64);

impl Ancestry {
    /// Number of names that fit.
    pub const HOPS: usize = 4;

    /// Returns the 16 bits of a name; never 0, which is an empty place.
    pub const fn hop(name: &str) -> u16 {
        let hash = name_hash(name);
        let folded = (hash ^ (hash >> 16) ^ (hash >> 32) ^ (hash >> 48)) as u16;
        if folded == 0 { 1 } else { folded }
    }

    /// Returns the ancestry after a call of `name`. The oldest of four names falls out.
    #[must_use]
    pub const fn push(self, name: &str) -> Self {
        Self(self.0 << 16 | Self::hop(name) as u64)
    }

    /// Encodes the last four of `names`, the oldest first.
    pub fn of<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        names.into_iter().fold(Self::default(), |ancestry, name| ancestry.push(name))
    }

    /// Decodes the hops, the oldest first.
    pub fn hops(self) -> impl Iterator<Item = u16> {
        (0..Self::HOPS)
            .rev()
            .map(move |at| (self.0 >> (16 * at)) as u16)
            .skip_while(|hop| *hop == 0)
    }

    /// Names the hops from the known `names`, the oldest first: each hop with all names that have its 16 bits.
    pub fn resolve<'n>(self, names: &[&'n str]) -> Vec<Vec<&'n str>> {
        let of = |hop| names.iter().copied().filter(|name| Self::hop(name) == hop).collect();
        self.hops().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hashes_are_those_that_are_written_down() {
        assert_eq!(name_hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(name_hash("a"), 0xaf63_dc4c_8601_ec8c);
        // Computed from the definition by another program.
        assert_eq!(child(ROOT, name_hash("put")), PUT);
        assert_eq!(child(PUT, name_hash("get")), PUT_GET);
    }

    const PUT: u64 = 0x30cd_c17b_0130_2b6f;
    const PUT_GET: u64 = 0x0c71_c4b6_5b53_9b6d;

    #[test]
    fn order_and_depth_change_the_hash() {
        let path = |names: &[&str]| names.iter().fold(ROOT, |p, n| child(p, name_hash(n)));
        assert_ne!(path(&["a", "b"]), path(&["b", "a"]));
        assert_ne!(path(&["a"]), path(&["a", "a"]));
        let deep = (0..1000).map(|depth| path(&vec!["a"; depth])).collect::<Vec<_>>();
        let distinct: std::collections::HashSet<_> = deep.iter().collect();
        assert_eq!(distinct.len(), deep.len());
    }

    #[test]
    fn an_ancestry_keeps_the_last_four_names() {
        let names = ["a", "b", "c", "d", "e"];
        let ancestry = Ancestry::of(names);
        assert_eq!(
            ancestry.hops().collect::<Vec<_>>(),
            names[1..].iter().map(|n| Ancestry::hop(n)).collect::<Vec<_>>()
        );
        assert_eq!(ancestry.resolve(&names), [["b"], ["c"], ["d"], ["e"]]);
        assert_eq!(Ancestry::of(["a"]).hops().count(), 1);
        assert_eq!(Ancestry::default().hops().count(), 0);
    }
}
