//! Integration tests, one binary.

mod budget;
