//! Policies of storage middleware: the tier on which a file is written, the cache to which a file is brought up, and the
//! set of tiers that holds replicas.
//!
//! Read in this order: [`Tier`], which a policy sees, with [`Telemetry`] and [`Own`]; `mean` for the load of others over
//! time; `estimate` for the checks and the expected times; [`Policy`] and its two implementations, [`RoundRobin`] and
//! [`Informed`]; then [`Usage`], which keeps the own transfers apart from those of other programs.
//!
//! # Invariants
//! - There is no clock, file or thread: values come with their ages, and times come in.
//! - Tiers are in the order of their declared speed, the fastest first. The last tier is the backing store; the others
//!   are buffers.
//! - A tier of unknown speed has the turns that the round robin gives it: [`Informed`] neither prefers nor avoids it.

mod tier;
mod mean;
mod estimate;
mod policy;
mod round_robin;
mod informed;
mod usage;

pub use estimate::{MAX_CAPACITY_AGE, MAX_LOAD_AGE, MAX_PROPERTY_AGE, SICK_BELOW};
pub use informed::{Informed, TIE};
pub use mean::FADES_IN;
pub use policy::{MAX_COPIES, MAX_TIERS, Policy, Request, sets};
pub use round_robin::RoundRobin;
pub use tier::{Aged, Own, Telemetry, Tier};
pub use usage::{MAX_EVENTS, Moved, Usage};
