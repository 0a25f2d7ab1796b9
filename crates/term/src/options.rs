//! The options that every verb shares.

use std::path::PathBuf;

use clap::Args;

use crate::out::Style;

/// Options of every verb.
#[derive(Debug, Args)]
pub struct Global {
    /// Print JSON (the schemas are in docs/json)
    #[arg(long, global = true, conflicts_with = "plain")]
    pub json: bool,
    /// Print tab-separated fields without colour and with values in base units
    #[arg(long, global = true)]
    pub plain: bool,
    /// Directory of the segments [default: $SKOPOS_DIR, else /dev/shm/skopos-UID]
    #[arg(long, global = true, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

impl Global {
    /// Returns the style of the output.
    pub fn style(&self) -> Style {
        match (self.json, self.plain) {
            (true, _) => Style::Json,
            (_, true) => Style::Plain,
            _ => Style::Human,
        }
    }
}
