//! The live plane: batches, mirrors of them, and sessions on this machine.

#[path = "../../../sense/tests/it/ports.rs"]
mod ports;

mod batch;
mod completeness;
mod delivery;
mod forger;
mod key_updates;
mod live;
mod memory;
