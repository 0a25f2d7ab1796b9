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
mod hub_away;
#[cfg(feature = "hub")]
mod plane;
#[cfg(feature = "hub")]
mod nodes;
#[cfg(feature = "hub")]
mod frozen;
#[cfg(feature = "hub")]
mod client;
#[cfg(feature = "hub")]
mod http;
#[cfg(feature = "hub")]
mod http_limits;
#[cfg(feature = "hub")]
mod http_watch;
#[cfg(feature = "hub")]
mod flight;
#[cfg(feature = "hub")]
mod flight_limits;
#[cfg(feature = "hub")]
mod partial;
#[cfg(feature = "hub")]
mod gaps;
#[cfg(feature = "hub")]
mod burden;
#[cfg(feature = "hub")]
mod other_users;
#[cfg(feature = "hub")]
mod remote_write;
#[cfg(feature = "hub")]
mod remote_write_faults;
#[cfg(feature = "hub")]
mod docs_examples;
mod archive;
#[cfg(feature = "hub")]
mod history;
