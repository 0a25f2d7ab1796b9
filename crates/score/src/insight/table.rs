//! The list of the built-in insights.

use super::definition::Definition;
use super::*;

/// The rows of Table 1 in their order. Each row has one metric, except device load, which has a
/// second metric that is easier to use. After them come the insights about paths of packets,
/// and the one about slow devices.
pub static DEFINITIONS: &[&Definition] = &[
    &msca::DEFINITION,
    &interference_factor::DEFINITION,
    &fs_performance::DEFINITION,
    &block_hotness::DEFINITION,
    &device_health::DEFINITION,
    &network_health::DEFINITION,
    &device_fault_tolerance::DEFINITION,
    &device_degradation_rate::DEFINITION,
    &node_availability::DEFINITION,
    &tier_remaining_capacity::DEFINITION,
    &device_energy_per_transfer::DEFINITION,
    &system_time::DEFINITION,
    &device_load::DEFINITION,
    &device_load::BUSY_DEFINITION,
    &node_energy_per_transfer::DEFINITION,
    &allocation_characteristics::DEFINITION,
    &path_health::DEFINITION,
    &congestion_point::DEFINITION,
    &slow_pair::DEFINITION,
    &slow_device::DEFINITION,
];
