//! In-band network telemetry (INT 2.1) and its reports (Telemetry Report 2.0), both of the P4.org Applications
//! Working Group, as bytes and back.
//!
//! # Layout
//! A packet with embedded data (INT-MD) has, after the UDP header that names the port of INT:
//!
//! ```text
//! shim: type 4 | next protocol type 2 | 0 2 | words after the shim 8 | port, protocol or DSCP 16
//! head: version 4 | D 1 | E 1 | M 1 | 0 12 | words of a hop 5 | hops that remain 8
//!       instructions 16 | domain 16
//!       domain instructions 16 | domain flags 16
//! stack: the last hop first, each with the same number of words; below the first hop the words that only a
//!        source adds
//! ```
//!
//! Numbers are big-endian; a word has four bytes. A value of all ones is not known.
//!
//! Read in this order: `instructions` (the content of a hop), `hop`, `header`, `packet` (the place of INT in an
//! IP packet), `report`.

mod instructions;
mod hop;
mod header;
mod packet;
mod report;

pub use header::{
    DOMAIN, Embedded, HEADER_BYTES, Header, INSTRUCTION_SEQUENCE, Kind, Next, SHIM_BYTES, Shim,
    VERSION,
};
pub use hop::Hop;
pub use instructions::{Field, Instructions};
pub use packet::{Flow, Packet};
pub use report::{
    GROUP_BYTES, Group, Inner, MAX_REPORT_BYTES, REPORT_VERSION, Report, Reports, write_group,
    write_report,
};
