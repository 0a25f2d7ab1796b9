//! The providers of the service.

pub mod keyvalue;
pub mod object;
pub mod document;
pub mod sequencer;
