//! The intake: the short-time storage of a site. Producers send records of jobs, and each of them is kept exactly once
//! until its part is sealed.
//!
//! ```text
//! push ─▶ log-N (pending) ─ commit ─▶ log-N on disk ─ due ─▶ part ─ sealed ─▶ the log is removed
//! ```
//!
//! A **producer** has a name and an epoch, in which its sequences ascend. A greater epoch is a new run of the producer;
//! a record of an older epoch, or with a sequence that the epoch has had, is not stored again.
//!
//! # Files
//! `log-GENERATION` has the layout of the log core. The description of a producer is the sequence at which the log
//! begins (i64, little-endian) and the name; an entry has the binary form of a record. A log begins with every known
//! producer, so duplicates are told after older logs are gone.
//!
//! # Invariants
//! - A record that a commit acknowledged is in a log until [`Intake::sealed`] is told that a part has it.
//! - A log is removed when no unsealed record is left in it, and never while it is the newest.
//! - After a crash the logs and the marks of sealed parts say which records are not sealed yet.
//!
//! Read in this order: `limits`, `account`, `producers`, `jobs`, `logs`, `unsealed`, `recover`, `core`, `replicated`.

mod limits;
mod account;
mod producers;
mod jobs;
mod logs;
mod unsealed;
mod recover;
mod core;
mod replicated;
#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod share_tests;

pub use self::core::{Intake, PushOutcome, Pushed, Refusal};
pub use account::Account;
pub use jobs::{OpenJob, SealedParts};
pub use limits::IntakeLimits;
pub(in crate::jobs) use producers::described;
pub use producers::{Progress, Reached};
pub(in crate::jobs) use replicated::ProducerAt;
pub use unsealed::{UnreadPart, Unsealed};
