//! The binary as its users meet it: started, asked, interrupted, misused.

mod support;
mod up;
mod insight;
mod read;
mod watch;
mod hang;
mod publish;
mod record;
mod run;
mod calibrate;
mod misuse;
mod config;
mod json;
mod report;
#[cfg(feature = "tui")]
mod top;
mod delphi;
#[cfg(feature = "hub")]
mod sql;
#[cfg(feature = "hub")]
mod plane;
#[cfg(feature = "hub")]
mod http;
#[cfg(feature = "hub")]
mod flight;
#[cfg(feature = "hub")]
mod remote_write;
mod archive;
#[cfg(feature = "hub")]
mod history;
