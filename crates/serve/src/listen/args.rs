//! Options for the addresses of the TCP listeners.

use clap::Args;

use skopos_hub::config::{FlightAddress, HttpAddress, HubConfig};

/// Options for the addresses of the TCP listeners.
#[derive(Clone, Debug, Args)]
pub struct ListenArgs {
    /// Listen for HTTP at this address, for every client that reaches it; `none` disables it
    /// [default: 127.0.0.1:7470, for you alone]
    #[arg(long, value_name = "ADDRESS")]
    http: Option<HttpAddress>,
    /// Listen for Arrow Flight SQL at this address, for every client that reaches it; `none` disables it
    /// [default: 127.0.0.1:7471, for you alone]
    #[arg(long, value_name = "ADDRESS")]
    flight: Option<FlightAddress>,
}

impl ListenArgs {
    /// Returns options that disable both listeners.
    pub fn disabled() -> Self {
        Self { http: Some(HttpAddress::Disabled), flight: Some(FlightAddress::Disabled) }
    }

    /// Returns the address of the HTTP listener: the option, or else the configured address.
    pub(crate) fn http(&self, config: &HubConfig) -> Option<HttpAddress> {
        self.http.or(config.http)
    }

    /// Returns the address of the Arrow Flight SQL listener: the option, or else the configured address.
    pub(crate) fn flight(&self, config: &HubConfig) -> Option<FlightAddress> {
        self.flight.or(config.flight)
    }
}
