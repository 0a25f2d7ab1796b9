//! The baseline: the results of `bench/lstm/train.py` for each trace.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::report::Figure;

/// The file of the script, in the repository's root.
const RESULTS: &str = "bench/lstm/results.json";

/// The result of a trace.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Result {
    pub(super) mae: f64,
    pub(super) rmse: f64,
    /// `None` for a constant.
    pub(super) r2: Option<f64>,
    pub(super) train_seconds: f64,
    pub(super) inference_ns: f64,
}

/// All results by the name of the trace, or the reason why they are missing.
#[derive(Debug)]
pub(super) struct Lstm(std::result::Result<BTreeMap<String, Result>, String>);

impl Lstm {
    pub(super) fn read() -> Self {
        let text = fs::read_to_string(Path::new(RESULTS));
        Self(
            text.map_err(|e| format!("{RESULTS}: {e}")).and_then(|text| {
                serde_json::from_str(&text).map_err(|e| format!("{RESULTS}: {e}"))
            }),
        )
    }

    /// A number of a trace.
    pub(super) fn figure(&self, name: &str, of: impl Fn(&Result) -> Option<f64>) -> Figure {
        match &self.0 {
            Err(reason) => Figure::Unknown(reason.clone()),
            Ok(results) => match results.get(name) {
                None => {
                    Figure::Unknown("not trained on this trace: bench/lstm/train.py".to_owned())
                }
                Some(result) => of(result).map_or_else(
                    || Figure::Unknown("the value never changes".to_owned()),
                    Figure::Known,
                ),
            },
        }
    }

    /// The median of a number over all traces.
    pub(super) fn median(&self, of: impl Fn(&Result) -> f64) -> Figure {
        match &self.0 {
            Err(reason) => Figure::Unknown(reason.clone()),
            Ok(results) => {
                let values: Vec<f64> = results.values().map(of).collect();
                Figure::Known(crate::stats::median(&values))
            }
        }
    }
}
