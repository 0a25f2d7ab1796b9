//! Imports of measurements that other programs made.

pub mod margo;
