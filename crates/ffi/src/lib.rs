//! Skopos for programs in C and C++: the functions of `clients/c/skopos_rpc.h`.
//!
//! The header is kept by hand and documents each function; a test compiles programs against it and compares its names with
//! those here. Each function takes null for a recorder, a span or a context as "nothing", and returns an error code instead
//! of a panic.
//!
//! Read in this order: `convert`, texts and errors; `recorder`; `span`; `context`; `pvar`.

pub mod convert;
pub mod recorder;
pub mod span;
pub mod context;
pub mod pvar;
