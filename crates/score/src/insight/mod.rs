//! Insights: values computed from facts. Each of the fifteen insights of Apollo's Table 1 has its
//! own file.
//!
//! An [`Insight`] is the computation of one vertex. A [`Definition`] is a row of the table: the
//! instances that have a vertex (a device, a file system, a tier, the node), the inputs, and the
//! formula. [`BuiltIn`] creates vertices from definitions as facts appear.
//!
//! # Invariants
//! - A definition keeps no state between two runs: its outcome is a function of its inputs, its
//!   subject and the `tiers` file.
//! - A missing input, a division by zero and an impossible value make an insight *unknown*, each
//!   with its reason. No outcome is infinite or NaN.
//! - Records and lists are bounded; the record counts the items that are left out.
//!
//! Read in this order: [`Definition`], `device_health` for the smallest insight, `record` for the
//! structured insights, [`BuiltIn`].

use crate::cell::Cell;
use crate::inputs::Inputs;
use crate::unknown::{Outcome, Unknown};

mod definition;
mod record;
mod tiers;

mod msca;
mod interference_factor;
mod fs_performance;
mod block_hotness;
mod device_health;
mod network_health;
mod path_health;
mod congestion_point;
mod slow_pair;
mod slow_device;
mod device_fault_tolerance;
mod device_degradation_rate;
mod node_availability;
mod tier_remaining_capacity;
mod device_energy_per_transfer;
mod system_time;
mod device_load;
mod node_energy_per_transfer;
mod allocation_characteristics;

mod table;

mod built_in;

pub mod sql;

pub use built_in::{BuiltIn, Changes, DefinitionState, MAX_INSTANCES, Vertex};
pub use definition::{Definition, FactSelector, InputSpec, Instances, Subject};
pub use table::DEFINITIONS;
pub use tiers::{MAX_MOUNTS, MAX_REPLICATION, MAX_TIERS, Tier, Tiers, TiersError};

/// The computation of one insight vertex. The graph calls it when an input changes.
pub trait Insight: Send {
    /// Records that a vertex now matches the input at `slot`. `vertex` identifies it in later
    /// calls. `cell` holds its current state, usually without a value.
    fn joined(&mut self, slot: usize, vertex: u32, cell: &Cell) {
        let _ = (slot, vertex, cell);
    }

    /// Records that a vertex no longer matches the input at `slot`.
    fn left(&mut self, slot: usize, vertex: u32) {
        let _ = (slot, vertex);
    }

    /// Records that the value of an input changed. The graph calls this before
    /// [`evaluate`](Self::evaluate), once for each changed input, so that an insight that keeps
    /// running sums need not read all inputs again.
    fn changed(&mut self, slot: usize, vertex: u32, cell: &Cell) {
        let _ = (slot, vertex, cell);
    }

    /// Returns true if the value depends on time (a window, an age), so that the graph has to
    /// evaluate it regularly even if no input changed.
    fn is_timed(&self) -> bool {
        false
    }

    /// Returns true if the insight itself handles needed inputs that are missing or unknown, as a
    /// count of inputs can. The graph then takes only its age from them.
    fn judges_missing(&self) -> bool {
        false
    }

    /// Computes the value.
    fn evaluate(&mut self, inputs: &Inputs<'_>) -> Outcome;
}
