//! A monitor that is measured beside the agent.

/// A monitor that is measured beside the agent.
pub(super) trait Peer {
    /// Its name in the rows.
    fn name(&self) -> &'static str;
    /// All of its processes, or the reason why it does not run.
    fn pids(&mut self) -> Result<Vec<u32>, String>;
    /// Number of values that it wrote each second; called once, at the end.
    fn values(&mut self) -> Result<usize, String>;
}
