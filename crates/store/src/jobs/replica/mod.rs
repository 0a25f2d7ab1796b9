//! Replication: another hub keeps a copy of what this one has on its disk.
//!
//! ```text
//! primary: log-N ── Sender ── Message ─▶ Keeper ── sts/log-M, lts/segment-N.parquet :replica
//!                      ◀───── Reply ──────┘
//! ```
//!
//! The [`Sender`] follows the logs of the primary's intake and the list of its segments. The [`Keeper`] has an intake and a
//! folder of segments of its own, so that a hub which opens its folder as jobs has the records and knows the producers.
//! Both do no input and output but that of their disks: their owner carries the messages.
//!
//! # Invariants
//! - Records arrive in the order of the primary's commits. Before a record that follows removed logs, the segments arrive
//!   that have the records of these logs. So the last sequence that a keeper has covers all before it.
//! - A keeper forgets records only after all segments that the primary listed are in place: a part's mark covers the parts
//!   before it, which may arrive later.
//! - A keeper belongs to one storage. Another one of the same name, such as an empty folder, is refused.
//!
//! Read in this order: `message`, `keeper`, `sender`.

mod message;
mod keeper;
mod sender;
#[cfg(test)]
mod crash_tests;

pub use keeper::{Keeper, Keeping, TakeError};
pub use message::{LogPlace, MAX_MESSAGE_BYTES, Message, Reply};
pub use sender::{Sender, Standing};
