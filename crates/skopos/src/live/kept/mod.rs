//! What this machine has kept of its topics.
//!
//! With the query engine that is `disk`, which also reads history on disk; without it `memory`.

#[cfg(feature = "sql")]
mod disk;
#[cfg(any(test, not(feature = "sql")))]
mod memory;

#[cfg(feature = "sql")]
pub(crate) use disk::Kept;
#[cfg(all(test, feature = "sql"))]
pub(crate) use disk::Rows;
#[cfg(not(feature = "sql"))]
pub(crate) use memory::Kept;
