//! The RPCs of the service. Their names are those of the services of Mochi that they resemble, so that a callpath reads
//! like one of the paper's.

/// An RPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rpc {
    /// Stores one value in the key-value provider.
    Put,
    /// Reads one value.
    Get,
    /// Stores a batch of values, which the target pulls from the origin's region.
    PutPacked,
    /// Lists keys and values that have a prefix.
    ListKeyvals,
    /// Makes an object.
    Create,
    /// Writes bytes of an object, which the target pulls from the origin's region.
    Write,
    /// Makes the bytes of an object durable.
    Persist,
    /// Reads bytes of an object into the origin's region.
    Read,
    /// Writes an object by its name: twelve calls of the others.
    WriteOp,
    /// Reads an object by its name.
    ReadOp,
    /// Stores a batch of JSON documents, which travel as the input.
    StoreMultiJson,
}

/// All RPCs; the place of each is its number on the wire.
pub const ALL: [Rpc; 11] = [
    Rpc::Put,
    Rpc::Get,
    Rpc::PutPacked,
    Rpc::ListKeyvals,
    Rpc::Create,
    Rpc::Write,
    Rpc::Persist,
    Rpc::Read,
    Rpc::WriteOp,
    Rpc::ReadOp,
    Rpc::StoreMultiJson,
];

impl Rpc {
    /// The name in callpaths.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Put => "sdskv_put_rpc",
            Self::Get => "sdskv_get_rpc",
            Self::PutPacked => "sdskv_put_packed",
            Self::ListKeyvals => "sdskv_list_keyvals_rpc",
            Self::Create => "bake_create_rpc",
            Self::Write => "bake_write_rpc",
            Self::Persist => "bake_persist_rpc",
            Self::Read => "bake_read_rpc",
            Self::WriteOp => "mobject_write_op",
            Self::ReadOp => "mobject_read_op",
            Self::StoreMultiJson => "sonata_store_multi_json",
        }
    }

    /// The number on the wire: the place in [`ALL`].
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// The RPC with a number, if there is one.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        ALL.get(usize::try_from(number).ok()?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rpc_has_the_number_of_its_place() {
        for rpc in ALL {
            assert_eq!(Rpc::from_number(rpc.number()), Some(rpc));
        }
        assert_eq!(Rpc::from_number(11), None);
    }
}
