//! The parameters of a query string.

use std::time::Duration;

use axum::extract::Query;
use axum::http::Uri;
use skopos_model::duration;

use super::Refusal;

/// Parameters of a request. As many topics are asked for in one request as programs need at once.
const MAX_PARAMETERS: usize = 256;

/// The parameters of a request, in their order.
pub(crate) fn parameters(uri: &Uri) -> Result<Vec<(String, String)>, Refusal> {
    let Query(all) = Query::<Vec<(String, String)>>::try_from_uri(uri)
        .map_err(|e| Refusal::bad(format!("the query string cannot be read: {e}")))?;
    match all.len() <= MAX_PARAMETERS {
        true => Ok(all),
        false => {
            Err(Refusal::bad(format!("a request has {MAX_PARAMETERS} parameters at the most")))
        }
    }
}

/// A parameter that is a time.
pub(crate) fn time(text: &str) -> Result<Duration, Refusal> {
    duration::parse(text).map_err(|e| Refusal::bad(e.to_string()).hint("write it like `500ms`"))
}

/// A parameter that is not known.
pub(crate) fn unknown(name: &str, known: &str) -> Refusal {
    Refusal::bad(format!("there is no parameter `{name}`")).hint(format!("there are {known}"))
}
