use std::fmt;

/// The most parts of an object identifier (RFC 3416, section 4.1).
pub const MAX_OID_PARTS: usize = 128;

/// An object identifier. Its order is that in which agents walk.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Oid(Vec<u32>);

impl Oid {
    /// Makes an identifier of its parts; `None` if they are more than [`MAX_OID_PARTS`].
    pub fn new(parts: &[u32]) -> Option<Self> {
        (parts.len() <= MAX_OID_PARTS).then(|| Self(parts.to_vec()))
    }

    /// Returns the parts.
    pub fn parts(&self) -> &[u32] {
        &self.0
    }

    /// Returns the parts after `base`; `None` if the identifier does not begin with it.
    pub(super) fn below(&self, base: &[u32]) -> Option<&[u32]> {
        self.0.strip_prefix(base)
    }
}

impl From<&'static [u32]> for Oid {
    /// Makes an identifier of a constant of this program.
    fn from(parts: &'static [u32]) -> Self {
        Self(parts.to_vec())
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, part) in self.0.iter().enumerate() {
            let dot = if at == 0 { "" } else { "." };
            write!(f, "{dot}{part}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
