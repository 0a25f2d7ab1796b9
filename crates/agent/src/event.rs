//! The events of a running agent.

use std::time::Duration;

/// An event of a running agent, for the verb to print.
#[derive(Debug)]
pub enum Event {
    /// The source of a sensor cannot be read. Reported once, until it can be read again.
    SensorFailed {
        /// The name of its family.
        sensor: &'static str,
        /// The reason.
        error: String,
    },
    /// The source of a sensor can be read again.
    SensorRecovered {
        /// The name of its family.
        sensor: &'static str,
    },
    /// A fact could not be registered. Reported once for each sensor.
    FactRefused {
        /// The name of the sensor's family.
        sensor: &'static str,
        /// The reason.
        error: String,
    },
    /// A configured part of telemetry does not work on this machine. Reported once, at the start.
    TelemetryLost {
        /// The name of its family.
        part: String,
        /// The reason.
        reason: String,
    },
    /// The learned weights of a ranking cannot be read, so they start anew. Reported once, at the start.
    WeightsLost {
        /// The name of its profile.
        profile: String,
        /// The reason.
        reason: String,
    },
    /// The files of a ranking lack something at the end of the agent, because the disk did not take it in time. Reported once.
    RankUnwritten {
        /// The name of its profile.
        profile: String,
        /// Number of reported outcomes that its recording lacks.
        outcomes: u64,
        /// True if the last learned weights are not in their file.
        weights: bool,
    },
    /// The system clock was set back.
    ClockSteppedBack {
        /// The length of the step.
        by: Duration,
    },
    /// Sensing costs more than the budget, although every sensor has its longest interval. Reported once.
    BudgetExceeded {
        /// The budget, as a share of one core.
        limit: f64,
        /// The excess, as a share of one core.
        over: f64,
    },
    /// A message about the link to other nodes.
    Link(String),
    /// Every sensor that was due has been polled.
    Ticked,
}
