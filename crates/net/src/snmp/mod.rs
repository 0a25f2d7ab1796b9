//! Polls switches and other devices by SNMP, versions 2c and 3, and turns their tables into facts of the families
//! `snmp_device`, `snmp_interface`, `snmp_storage`, `snmp_processor`, `snmp_sensor` and `snmp_poller`.
//!
//! # Invariants
//! - A device is not trusted: its bytes, rows, time and repetitions are bounded, and what is refused is counted.
//! - A value that is not known has a reason ([`Unknown`]), and is not handed over.
//! - With version 3, nothing is believed before its tag is verified, except the id of an engine that is not known yet.
//! - Secrets are read from files, and are not printed.
//! - Only `device` and `poller` have sockets, and only `poll` has a clock.
//!
//! A program gives [`poll`] a thread, devices, a sink of facts and a [`Stop`]; or it makes a [`Poller`] and calls
//! [`Poller::turn`] itself.
//!
//! Read in this order: `oid`, `ber`, `value` and `pdu` (bytes); `settings`, `secret`, `usm` and `session` (messages);
//! `unknown`, `counter`, `walk`, `names` and the tables; `poll` (one poll), `device`, `poller`; and a file for each family.

mod oid;
mod ber;
mod value;
mod pdu;
mod secret;
mod auth;
mod settings;
mod refused;
mod usm;
mod session;
mod unknown;
mod counter;
mod walk;
mod names;
mod interfaces;
mod host;
mod sensors;
mod poll;
mod counts;
mod stop;
mod device;
mod known;
mod snmp_device;
mod snmp_interface;
mod snmp_storage;
mod snmp_processor;
mod snmp_sensor;
mod snmp_poller;
mod published;
mod poller;

pub use auth::Auth;
pub use counter::Count;
pub use counts::PollerCounts;
pub use device::{MAX_PAUSE, MAX_POLL_BYTES};
pub use host::{Processor, Storage};
pub use interfaces::{Counted, Interface};
pub use oid::{MAX_OID_PARTS, Oid};
pub use poll::Snapshot;
pub use poller::{MAX_POLLS, Poller, poll};
pub use refused::Refused;
pub use secret::Secret;
pub use sensors::{Quantity, Sensor};
pub use session::read_response;
pub use settings::{
    DeviceSettings, Identity, MAX_DEVICES, MAX_NAME_BYTES, Privacy, SNMP_PORT, User, Version, check,
};
pub use stop::Stop;
pub use unknown::{Reading, Unknown};
pub use value::Value;
pub use walk::MAX_ROWS;
