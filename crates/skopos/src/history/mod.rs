//! History on disk: `archiver` writes down what this machine's publishers say, `facts` is what it says
//! of itself, `fill` makes history for benchmarks.

mod archiver;
mod facts;
#[cfg(feature = "bench")]
mod fill;

pub(crate) use archiver::Archiver;
#[cfg(feature = "sql")]
pub(crate) use facts::folder_of;
#[cfg(feature = "bench")]
pub(crate) use fill::{Shape, fill};
