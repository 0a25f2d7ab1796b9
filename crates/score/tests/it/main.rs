//! Integration tests, one binary.

mod budget;
mod cell;
mod graph;
mod interval;
mod trace;
