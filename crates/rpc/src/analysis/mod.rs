//! Analyses of traces.

pub mod histogram;
pub mod loader;
pub mod names;
pub mod process;
pub mod counts;
pub mod stream;
pub mod clocks;
pub mod blocks;
pub mod trace;
pub mod profile;
pub mod request;
pub mod critical;
pub mod system;
pub mod finding;
pub mod comparison;
