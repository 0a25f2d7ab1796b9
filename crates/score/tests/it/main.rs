//! Integration tests, one binary.

mod budget;
mod interval;
mod trace;
