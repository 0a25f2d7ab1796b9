//! Loads BPF programs into the kernel and attaches them to tracepoints and network interfaces, and opens events of the
//! kernel. The crates that have programs, `sense`, `net` and `task`, share this loader and know nothing of each other.
//!
//! aya's own loader first makes values of all types of the kernel, which takes 20 ms and 20 MB for a moment. So
//! this crate uses only aya's parser of objects and its maps, and looks up the few values that a program needs
//! by itself.
//!
//! Read in this order: [`load`] loads an object; [`Memory`] shares a map with its programs; `types` finds offsets of fields
//! in the types of the running kernel; `sys` has the system calls.
//!
//! # Invariants
//! - A program runs until its [`Loaded`] is dropped, and not longer.
//! - An error has the kernel's answer and its kind.

// UNSAFE: `bpf` and `perf_event_open` have no safe wrapper, and the kernel's types are mapped; all in `sys` alone.

mod load;
mod memory;
mod types;
mod causes;
mod bytes;
mod sys;

pub use causes::with_causes;
pub use load::{At, Direction, Loaded, Program, load};
pub use memory::Memory;
pub use sys::{EventAttributes, EventsOf, open_event};
