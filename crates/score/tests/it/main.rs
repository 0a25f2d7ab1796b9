//! Integration tests, one binary.

mod budget;
mod trace;
