//! Integration tests, one binary.

mod anomaly;
mod budget;
mod cell;
mod delphi;
mod graph;
mod insight;
mod interval;
mod sql;
mod overhead;
mod trace;
