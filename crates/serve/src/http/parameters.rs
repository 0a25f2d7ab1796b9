//! The parameters of a query string.

use std::time::Duration;

use axum::extract::Query;
use axum::http::Uri;
use skopos_model::duration;

use super::refusal::Refusal;

/// Maximum number of parameters of a request, enough for the topics that a program needs at once.
const MAX_PARAMETERS: usize = 256;

/// Returns the parameters of a request, in their order.
pub(super) fn parameters(uri: &Uri) -> Result<Vec<(String, String)>, Refusal> {
    let Query(all) = Query::<Vec<(String, String)>>::try_from_uri(uri)
        .map_err(|e| Refusal::bad(format!("the query string cannot be read: {e}")))?;
    match all.len() <= MAX_PARAMETERS {
        true => Ok(all),
        false => {
            Err(Refusal::bad(format!("a request can have at most {MAX_PARAMETERS} parameters")))
        }
    }
}

/// Reads the value of a parameter that is a duration.
pub(super) fn time(text: &str) -> Result<Duration, Refusal> {
    duration::parse(text).map_err(|e| Refusal::bad(e.to_string()).hint("write it like `500ms`"))
}

/// Refuses an unknown parameter; `known` lists the known ones.
pub(super) fn unknown(name: &str, known: &str) -> Refusal {
    Refusal::bad(format!("there is no parameter `{name}`"))
        .hint(format!("the parameters are {known}"))
}
