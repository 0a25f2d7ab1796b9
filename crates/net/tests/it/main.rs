//! Tests of the crate from outside.
//!
//! `codec` has packets from the tables of the specifications, and odd ones; `dissector` exchanges packets with
//! layers of scapy, which were written from the same tables; `plane` runs the data plane on chains of network
//! namespaces, which `chain` makes; `collector` feeds a collector with reports;
//! `anomaly` sends and takes reports of hosts; `snmp` polls agents; `lab` builds labs; `ioam` lets kernels fill traces.

mod chain;
#[path = "../../../sense/tests/it/ports.rs"]
mod ports;

mod anomaly;
mod codec;
mod collector;
mod dissector;
mod ioam;
mod lab;
mod plane;
mod snmp;
