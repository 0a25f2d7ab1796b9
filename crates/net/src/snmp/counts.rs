/// Numbers of a poller since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollerCounts {
    /// Requests that were sent, also again.
    pub requests: u64,
    /// Responses that were taken.
    pub responses: u64,
    /// Requests that were not answered in time.
    pub timeouts: u64,
    /// Datagrams that were not taken: malformed, forged, late, or not verified.
    pub refused: u64,
    /// Polls that reached their end.
    pub polls: u64,
    /// Polls that were ended before.
    pub failed_polls: u64,
}
