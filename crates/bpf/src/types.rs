//! The kernel's types (BTF), as far as the programs need them: offsets of fields in its structures, constants of
//! enumerations, and the types of tracepoints.
//!
//! A kernel has some hundred thousand types, in a file of 5 MB. They are scanned once, in place,
//! and only their offsets in the file are kept. That takes less than a millisecond, while a library
//! that makes a value of each takes twenty.
//!
//! The format is that of the kernel's `Documentation/bpf/btf.rst`: a header, then types of 12 bytes
//! with additional data for some kinds, then zero-terminated names.

use std::ffi::CStr;

use crate::bytes::{u16_at, u32_at};

/// Magic number of the file, in this machine's byte order.
const MAGIC: u16 = 0xeb9f;

const TYPE_BYTES: usize = 12;
const MEMBER_BYTES: usize = 12;
const CONSTANT_BYTES: usize = 8;

const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUMERATION: u32 = 6;
const ALIAS: u32 = 8;
/// Kinds that rename or qualify another type: `typedef`, `volatile`, `const`, `restrict` and type
/// tags.
const ALIASES: [u32; 5] = [8, 9, 10, 11, 18];

/// The deepest nesting of anonymous structures and of aliases that is searched: the kernel uses at
/// most half of it. Bounds the search in types that refer to themselves.
const MAX_DEPTH: usize = 16;

/// The types of a kernel, with their offsets.
pub(crate) struct Types<'a> {
    types: &'a [u8],
    names: &'a [u8],
    /// Offset of each type by its number. The first type is `void`, which has no offset.
    places: Vec<u32>,
    /// The requested types: index of the name, number of the type, and its kind.
    found: Vec<(usize, u32, u32)>,
}

impl<'a> Types<'a> {
    /// Scans all types and keeps the structures, enumerations and aliases of these names.
    pub(crate) fn read(bytes: &'a [u8], wanted: &[&str]) -> Option<Self> {
        let word = |at: usize| Some(u32_at(bytes, at)? as usize);
        if u16_at(bytes, 0)? != MAGIC {
            return None;
        }
        let part = |at: usize, length: usize| {
            let begin = word(4)?.checked_add(word(at)?)?;
            bytes.get(begin..begin.checked_add(word(length)?)?)
        };
        let (types, names) = (part(8, 12)?, part(16, 20)?);
        let mut read = Self { types, names, places: vec![0], found: Vec::new() };
        // A type takes at least this many bytes, and most take twice as many.
        read.places.reserve(types.len() / TYPE_BYTES);
        read.scan(wanted)?;
        Some(read)
    }

    fn scan(&mut self, wanted: &[&str]) -> Option<()> {
        let mut begins = [false; 256];
        wanted.iter().filter_map(|name| name.bytes().next()).for_each(|b| {
            begins[usize::from(b)] = true;
        });
        let mut at = 0;
        while at < self.types.len() {
            let kind = Kind::at(self.types, at)?;
            // Comparing the first letter excludes most names.
            if matches!(kind.kind, STRUCT | ENUMERATION | ALIAS)
                && begins[usize::from(*self.names.get(kind.name)?)]
            {
                let name = self.name(kind.name)?;
                if let Some(which) = wanted.iter().position(|s| s.as_bytes() == name) {
                    self.found.push((which, self.places.len() as u32, kind.kind));
                }
            }
            self.places.push(at as u32);
            at += TYPE_BYTES + kind.more()?;
        }
        Some(())
    }

    /// Returns the offset of a member in the requested structure number `which`, in bytes.
    /// `members` is the path to it through nested structures. Returns `None` if there is no such
    /// member, if it is not at a whole byte, or if several structures of that name have it at
    /// different offsets.
    pub(crate) fn offset(&self, which: usize, members: &str) -> Option<u32> {
        let mut places = self.of(which, STRUCT).filter_map(|id| self.offset_of(id, members));
        let first = places.next()?;
        places.all(|other| other == first).then_some(first)
    }

    /// Returns the size of a structure in bytes; `None` as for `offset`.
    pub(crate) fn size(&self, which: usize) -> Option<u32> {
        let mut sizes =
            self.of(which, STRUCT).filter_map(|id| u32_at(self.types, self.place(id)? + 8));
        let first = sizes.next()?;
        sizes.all(|other| other == first).then_some(first)
    }

    /// Returns the value of a constant of the requested enumeration number `which`; `None` as for `offset`.
    pub(crate) fn constant(&self, which: usize, name: &str) -> Option<u32> {
        let mut values = self.of(which, ENUMERATION).filter_map(|id| self.value(id, name));
        let first = values.next()?;
        values.all(|other| other == first).then_some(first)
    }

    /// Returns the number of the requested alias number `which`; `None` if there is no such alias.
    pub(crate) fn alias(&self, which: usize) -> Option<u32> {
        self.of(which, ALIAS).next()
    }

    fn of(&self, which: usize, kind: u32) -> impl Iterator<Item = u32> {
        let is_it = move |found: &&(usize, u32, u32)| found.0 == which && found.2 == kind;
        self.found.iter().filter(is_it).map(|(_, id, _)| *id)
    }

    fn value(&self, enumeration: u32, name: &str) -> Option<u32> {
        let at = self.place(enumeration)?;
        let constants = 0..Kind::at(self.types, at)?.count;
        let mut constants = constants.map(|index| at + TYPE_BYTES + index * CONSTANT_BYTES);
        constants.find_map(|constant| {
            let its_name = self.name(u32_at(self.types, constant)? as usize)?;
            if its_name == name.as_bytes() { u32_at(self.types, constant + 4) } else { None }
        })
    }

    fn offset_of(&self, structure: u32, members: &str) -> Option<u32> {
        let (mut inside, mut bits) = (structure, 0u32);
        for name in members.split('.') {
            let (kind, more) = self.member(inside, name.as_bytes(), 0)?;
            (inside, bits) = (kind, bits.checked_add(more)?);
        }
        bits.is_multiple_of(8).then_some(bits / 8)
    }

    /// Returns the type of a member and its offset in bits.
    fn member(&self, of: u32, name: &[u8], depth: usize) -> Option<(u32, u32)> {
        let at = self.structure(of)?;
        let kind = Kind::at(self.types, at)?;
        let members = (0..kind.count).map(|index| at + TYPE_BYTES + index * MEMBER_BYTES);
        for member in members {
            let [its_name, its_type, place] =
                [0, 4, 8].map(|field| u32_at(self.types, member + field));
            let (its_name, its_type, place) = (its_name? as usize, its_type?, place?);
            // In a structure with bit-fields, the upper byte is the number of bits.
            let (bits, place) =
                if kind.has_bits { (place >> 24, place & 0xff_ffff) } else { (0, place) };
            if its_name != 0 {
                if self.name(its_name)? == name {
                    return (bits == 0).then_some((its_type, place));
                }
            } else if depth < MAX_DEPTH
                && let Some((found, inside)) = self.member(its_type, name, depth + 1)
            {
                return Some((found, place.checked_add(inside)?));
            }
        }
        None
    }

    /// Returns the offset of the structure or union of a type, behind its aliases.
    fn structure(&self, id: u32) -> Option<usize> {
        let mut at = self.place(id)?;
        for _ in 0..MAX_DEPTH {
            match Kind::at(self.types, at)?.kind {
                STRUCT | UNION => return Some(at),
                kind if ALIASES.contains(&kind) => at = self.place(u32_at(self.types, at + 8)?)?,
                _ => return None,
            }
        }
        None
    }

    fn place(&self, id: u32) -> Option<usize> {
        if id == 0 { None } else { self.places.get(id as usize).map(|place| *place as usize) }
    }

    fn name(&self, at: usize) -> Option<&'a [u8]> {
        CStr::from_bytes_until_nul(self.names.get(at..)?).ok().map(CStr::to_bytes)
    }
}

/// The header of a type.
struct Kind {
    name: usize,
    kind: u32,
    count: usize,
    has_bits: bool,
}

impl Kind {
    fn at(types: &[u8], at: usize) -> Option<Self> {
        let info = u32_at(types, at + 4)?;
        Some(Self {
            name: u32_at(types, at)? as usize,
            kind: info >> 24 & 0x1f,
            count: (info & 0xffff) as usize,
            has_bits: info >> 31 != 0,
        })
    }

    /// Returns the number of bytes that follow the header; `None` for an unknown kind, whose length
    /// is unknown.
    fn more(&self) -> Option<usize> {
        Some(match self.kind {
            // Integers, variables and declaration tags.
            1 | 14 | 17 => 4,
            // Pointers, forward declarations, aliases, functions, floating point and type tags.
            2 | 7..=12 | 16 | 18 => 0,
            ARRAY => 12,
            // Structures, unions, sections and 64-bit enumerations.
            STRUCT | UNION | 15 | 19 => 12 * self.count,
            // Enumerations and function prototypes.
            6 | 13 => 8 * self.count,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of the types of a kernel with two structures.
    const NAMES: &[u8] = b"\0task\0pid\0mm\0space\0low\0inner\0other\0twice\0";

    fn at(name: &str) -> u32 {
        let name = [b"\0", name.as_bytes(), b"\0"].concat();
        let found = NAMES.windows(name.len()).position(|part| part == name);
        found.expect("one of them") as u32 + 1
    }

    fn of(kind: u32, count: u32) -> u32 {
        kind << 24 | count
    }

    fn file(words: &[&[u32]]) -> Vec<u8> {
        let types: Vec<u8> = words.concat().iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        let sizes = [24, 0, types.len() as u32, types.len() as u32, NAMES.len() as u32];
        bytes.extend(sizes.iter().flat_map(|word| word.to_ne_bytes()));
        [bytes, types, NAMES.to_vec()].concat()
    }

    fn example() -> Vec<u8> {
        file(&[
            // 1: an integer, with its encoding.
            &[0, of(1, 0), 4, 32],
            // 2: `space` with `low` after 8 bytes.
            &[at("space"), of(STRUCT, 1), 24, at("low"), 1, 64],
            // 3: an alias of it; 4: that, const.
            &[at("other"), of(8, 0), 2],
            &[0, of(10, 0), 3],
            // 5: an anonymous union of `inner` and the third type.
            &[0, of(UNION, 2), 24, at("inner"), 1, 0, at("mm"), 4, 0],
            // 6: `task` with `pid`, and the anonymous union after 16 bytes; it may have bit-fields.
            &[at("task"), of(STRUCT, 3) | 1 << 31, 40],
            &[at("pid"), 1, 32, 0, 5, 128, at("low"), 1, 3 << 24 | 320],
            // 7 and 8: structures of one name with a member at different offsets.
            &[at("twice"), of(STRUCT, 1), 8, at("low"), 1, 0],
            &[at("twice"), of(STRUCT, 1), 8, at("low"), 1, 32],
            // 9: an enumeration.
            &[at("inner"), of(ENUMERATION, 2), 4, at("low"), 6, at("mm"), 7],
        ])
    }

    #[test]
    fn a_field_is_found_through_anonymous_members_and_aliases() {
        let bytes = example();
        let types = Types::read(&bytes, &["task", "twice", "space", "none"]).expect("types");
        for (which, members, expected) in [
            (0, "pid", Some(4)),
            (0, "inner", Some(16)),
            (0, "mm", Some(16)),
            (0, "mm.low", Some(24)),
            (0, "pid.low", None),
            (0, "high", None),
            // A bit-field.
            (0, "low", None),
            // At two offsets.
            (1, "low", None),
            (2, "low", Some(8)),
            (3, "low", None),
        ] {
            assert_eq!(types.offset(which, members), expected, "{which} {members}");
        }
        assert_eq!(
            [0, 1, 2, 3].map(|which| types.size(which)),
            [Some(40), Some(8), Some(24), None]
        );
    }

    #[test]
    fn constants_and_aliases_are_found() {
        let bytes = example();
        let types = Types::read(&bytes, &["inner", "other", "task"]).expect("types");
        let constants = ["low", "mm", "pid"].map(|name| types.constant(0, name));
        assert_eq!(constants, [Some(6), Some(7), None]);
        assert_eq!([0, 1, 2].map(|which| types.alias(which)), [None, Some(3), None]);
        // A structure is not an enumeration.
        assert_eq!(types.constant(2, "pid"), None);
    }

    #[test]
    fn truncated_types_and_unknown_kinds_are_refused() {
        let bytes = example();
        for end in 0..bytes.len() {
            // The name of `space` is complete long before the names end, and that of `twice` is
            // not.
            for name in ["space", "twice"] {
                assert!(Types::read(&bytes[..end], &[name]).is_none(), "{name} {end}");
            }
        }
        assert!(Types::read(&file(&[&[0, of(31, 0), 0]]), &["task"]).is_none());
        // A structure that contains itself as an anonymous member.
        let bytes = file(&[&[at("task"), of(STRUCT, 1), 8, 0, 1, 0]]);
        assert_eq!(Types::read(&bytes, &["task"]).expect("types").offset(0, "pid"), None);
    }
}
