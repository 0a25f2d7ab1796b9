//! Insights: what is computed from facts. The fifteen of Apollo's Table 1 are a file each.
//!
//! An [`Insight`] is the computation of one vertex. A [`Definition`] is a row of the table: for
//! which instances (a device, a file system, a tier, the node) there is such a vertex, what its
//! inputs are, and the formula. [`BuiltIn`] makes vertices of definitions as facts appear.
//!
//! # Invariants
//! - A definition keeps nothing between two runs: its outcome is a function of its inputs, of whom
//!   it is about, and of the `tiers` file.
//! - An input that is missing, a division by zero and a value that cannot be are *unknown*, each
//!   with its reason. No outcome is infinite or not a number.
//! - Records and lists are bounded; what is cut is counted in the record.
//!
//! Read in this order: [`Definition`], `device_health` for the smallest one, `record` for the
//! structured ones, [`BuiltIn`].

use crate::{Cell, Inputs, Outcome, Unknown};

mod definition;
mod record;
mod tiers;

mod msca;
mod interference_factor;
mod fs_performance;
mod block_hotness;
mod device_health;
mod network_health;
mod device_fault_tolerance;
mod device_degradation_rate;
mod node_availability;
mod tier_remaining_capacity;
mod device_energy_per_transfer;
mod system_time;
mod device_load;
mod node_energy_per_transfer;
mod allocation_characteristics;

mod built_in;

pub mod sql;

pub use built_in::{BuiltIn, Changes, MAX_INSTANCES, Standing, Vertex};
pub use definition::{DEFINITIONS, Definition, Instances, Subject, Wanted, Which};
pub use tiers::{MAX_MOUNTS, MAX_REPLICATION, MAX_TIERS, Tier, Tiers, TiersError};

/// The computation of one insight vertex. The graph calls it when an input changed.
pub trait Insight: Send {
    /// A vertex now matches the input at `slot`. `vertex` names it in the calls that follow.
    /// What is known of it so far, its value as a rule not yet, is in `cell`.
    fn joined(&mut self, slot: usize, vertex: u32, cell: &Cell) {
        let _ = (slot, vertex, cell);
    }

    /// It is gone.
    fn left(&mut self, slot: usize, vertex: u32) {
        let _ = (slot, vertex);
    }

    /// Its value changed. Called before [`evaluate`](Self::evaluate), once for each changed input,
    /// so that what can be kept up to date step by step need not look at all of them again.
    fn changed(&mut self, slot: usize, vertex: u32, cell: &Cell) {
        let _ = (slot, vertex, cell);
    }

    /// True if the value moves with time alone (a window, an age), so that the graph has to evaluate
    /// it now and then though no input changed.
    fn is_timed(&self) -> bool {
        false
    }

    /// True if it says itself what comes of needed inputs that are missing or unknown, as a count of
    /// them can. The graph then takes only its age from them.
    fn judges_missing(&self) -> bool {
        false
    }

    /// The value now.
    fn evaluate(&mut self, inputs: &Inputs<'_>) -> Outcome;
}
