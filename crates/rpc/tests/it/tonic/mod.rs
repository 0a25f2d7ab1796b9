//! The layers for tonic, with real connections over the loopback.

#[path = "../../../examples/tonic_echo/echo.rs"]
mod echo;
mod serving;
mod trace;
mod calls;
mod orca;
mod python;
mod slowed;
