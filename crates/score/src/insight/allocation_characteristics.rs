//! Allocation characteristics (Table 1, row 15): the resources that a job uses.
//!
//! ```text
//! (timestamp, #nodes, distribution of processes, bytes read and written by jobs)
//! ```
//!
//! The insight is a record for each job with an allocation on this node:
//!
//! - `time_ns`: the time at which the processes of the job were polled.
//! - `nodes`, `tasks`, `cpus`: the size of the allocation.
//! - `distribution`: the nodes of the allocation in groups with equal shares, each with `nodes` (as
//!   Slurm abbreviates them), and `cpus` and `memory_bytes` on each node; `truncated` is the number
//!   of groups that are left out.
//! - `node_tasks`, `processes`, `read_bytes`, `written_bytes`: the tasks and processes of the job
//!   on this node, and the bytes that they have read and written since their start by any system
//!   call. The sum over a job is the sum over the insights of its nodes.
//!
//! The insight is unknown without a batch system; the reason is that of `slurm`.

use serde_json::Value as Json;
use skopos_model::schema::{insight, slurm};

use super::definition::json;
use super::record::Record;
use super::*;

pub(super) static DEFINITION: Definition = Definition {
    metric: &insight::ALLOCATION_CHARACTERISTICS,
    row: 15,
    name: "allocation characteristics",
    formula: "(time, nodes, distribution of allocation, node_tasks, processes, read, written)",
    source: "Apollo, Table 1, row 15: (timestamp, #nodes, distribution of processes, bytes \
             read/written by jobs)",
    instances: Instances::Jobs,
    inputs: &[
        InputSpec::needed("allocation", FactSelector::Own(&slurm::ALLOCATION)),
        InputSpec::optional("processes", FactSelector::Own(&slurm::NODE_PROCESSES)),
        InputSpec::optional("read", FactSelector::Own(&slurm::NODE_READ_BYTES_TOTAL)),
        InputSpec::optional("written", FactSelector::Own(&slurm::NODE_WRITTEN_BYTES_TOTAL)),
        InputSpec::optional("node_tasks", FactSelector::Own(&slurm::NODE_TASKS)),
    ],
    compute,
};

fn compute(_: &Subject, inputs: &Inputs<'_>) -> Outcome {
    let cell = inputs.first(0)?;
    let allocation = cell.structured()?.as_json();
    let nodes = allocation["nodes"].as_u64();
    let distribution = allocation["distribution"].as_array();
    let (Some(nodes), Some(distribution)) = (nodes, distribution) else {
        return Err(Unknown::new(
            "the allocation does not include its nodes and their distribution",
        ));
    };
    let field = |name: &str| match &allocation[name] {
        Json::Null => Err(Unknown::new(format!("Slurm does not report {name}"))),
        value => Ok(value.clone()),
    };
    let mut record = Record::default();
    let seen = inputs.first(1).map_or(cell.checked_at(), Cell::checked_at);
    record.put_time(seen);
    record.put("nodes", nodes);
    for name in ["tasks", "cpus"] {
        record.try_put(name, field(name));
    }
    let left_out = allocation["distribution_left_out"].as_u64().unwrap_or(0);
    record.put_list("distribution", left_out as usize, distribution.clone());
    record.try_put("node_tasks", json(inputs, 4));
    record.try_put("processes", json(inputs, 1));
    record.try_put("read_bytes", json(inputs, 2));
    record.try_put("written_bytes", json(inputs, 3));
    record.finish()
}
