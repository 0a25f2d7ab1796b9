//! A program that is measured with and without the agent.

use std::time::Duration;

/// A program that can do the same work again.
pub(super) trait Application {
    /// Prepares it, and chooses an amount of work that takes about `time`.
    ///
    /// # Errors
    /// The reason why it cannot run here.
    fn prepare(&mut self, time: Duration) -> Result<(), String>;

    /// Does the work, and returns its seconds.
    ///
    /// # Errors
    /// The reason why it failed.
    fn once(&mut self) -> Result<f64, String>;
}
