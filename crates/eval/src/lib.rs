//! The subset of SQL that needs no engine: a statement over `latest` or one vertex's window is
//! parsed once and then kept up to date input by input.

#![forbid(unsafe_code)]
