//! The verbs, one file each.

pub(crate) mod up;
pub(crate) mod agent;
pub(crate) mod run;
pub(crate) mod archive;
pub(crate) mod estimate;
pub(crate) mod top;
pub(crate) mod ls;
pub(crate) mod get;
mod lookup;
mod get_hub;
pub(crate) mod watch;
pub(crate) mod watch_args;
pub(crate) mod record;
pub(crate) mod publish;
pub(crate) mod sql;
mod watch_sql;
pub(crate) mod hub;
pub(crate) mod simulate;
pub(crate) mod calibrate;
pub(crate) mod insight;
pub(crate) mod graph;
pub(crate) mod doctor;
mod predicted;
pub(crate) mod delphi;
pub(crate) mod completion;
pub(crate) mod man;
