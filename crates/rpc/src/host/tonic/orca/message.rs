//! The messages of ORCA, as `xds/data/orca/v3/orca_load_report.proto` and `xds/service/orca/v3/orca.proto` define them.

use std::collections::BTreeMap;
use std::time::Duration;

/// The load of a server.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OrcaLoadReport {
    /// Utilization of the processor: 1 is one whole machine.
    #[prost(double, tag = "1")]
    pub cpu_utilization: f64,
    /// Share of the memory that is used.
    #[prost(double, tag = "2")]
    pub mem_utilization: f64,
    /// Utilization of further resources, by name.
    #[prost(btree_map = "string, double", tag = "5")]
    pub utilization: BTreeMap<String, f64>,
    /// Requests per second.
    #[prost(double, tag = "6")]
    pub rps_fractional: f64,
    /// Errors per second.
    #[prost(double, tag = "7")]
    pub eps: f64,
    /// Further values, by name.
    #[prost(btree_map = "string, double", tag = "8")]
    pub named_metrics: BTreeMap<String, f64>,
    /// Utilization by the application's own measure, which counts before that of the processor.
    #[prost(double, tag = "9")]
    pub application_utilization: f64,
}

/// `OrcaLoadReportRequest`, without the names of costs: only responses have costs.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ReportRequest {
    #[prost(message, optional, tag = "1")]
    report_interval: Option<Interval>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Interval {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

impl ReportRequest {
    /// Returns the interval that the client wants; `None` if it names none, or one that is negative.
    pub(super) fn interval(&self) -> Option<Duration> {
        let Interval { seconds, nanos } = self.report_interval?;
        let (seconds, nanos) = (u64::try_from(seconds).ok()?, u32::try_from(nanos).ok()?);
        let interval =
            Duration::from_secs(seconds).saturating_add(Duration::from_nanos(nanos.into()));
        (!interval.is_zero()).then_some(interval)
    }
}
