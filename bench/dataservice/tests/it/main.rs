//! Tests of the service as a whole: in one process where that is enough, and with its processes where they matter.

mod setup;
mod data;
mod hostile;
mod processes;
mod traces;
mod tracers;
