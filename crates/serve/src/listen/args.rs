//! Where the doors are that listen by TCP, as it is typed.

use clap::Args;

use skopos_hub::config::{FlightAt, HttpAt, HubConfig};

/// Options of the doors that listen by TCP.
#[derive(Clone, Debug, Args)]
pub struct DoorArgs {
    /// Be asked by HTTP there, by everybody who reaches that address; `none` for not at all
    /// [default: 127.0.0.1:7470, by you alone]
    #[arg(long, value_name = "ADDRESS")]
    http: Option<HttpAt>,
    /// Be asked by Arrow Flight SQL there, by everybody who reaches that address; `none` for not at all
    /// [default: 127.0.0.1:7471, by you alone]
    #[arg(long, value_name = "ADDRESS")]
    flight: Option<FlightAt>,
}

impl DoorArgs {
    /// For a hub that is asked neither way.
    pub fn nowhere() -> Self {
        Self { http: Some(HttpAt::Nowhere), flight: Some(FlightAt::Nowhere) }
    }

    /// Where HTTP was typed to be, or else configured.
    pub fn http(&self, config: &HubConfig) -> Option<HttpAt> {
        self.http.or(config.http)
    }

    /// The same of Arrow Flight SQL.
    pub fn flight(&self, config: &HubConfig) -> Option<FlightAt> {
        self.flight.or(config.flight)
    }
}
