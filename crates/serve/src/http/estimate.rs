//! `GET /api/v1/estimate?class=…`: what the next task of a class should get.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{StatusCode, Uri};
use skopos_access::Caller;
use skopos_hub::estimates::{EstimateError, EstimateQuestion, MAX_NAME_BYTES, Minimize, Proposal};

use super::context::HttpContext;
use super::parameters::{parameters, unknown};
use super::refusal::Refusal;

/// The resource of a request that names none.
const MEMORY: &str = "memory";

pub(super) async fn answer(
    State(context): State<Arc<HttpContext>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Json<Proposal>, Refusal> {
    let question = question(&uri)?;
    Ok(Json(question.answer(&context.backend, &caller).await?))
}

/// Reads the parameters of a request.
fn question(uri: &Uri) -> Result<EstimateQuestion, Refusal> {
    let (mut class, mut user, mut resource) = (None, None, MEMORY.to_owned());
    let (mut minimize, mut max_risk) = (None, None);
    for (name, value) in parameters(uri)? {
        match name.as_str() {
            "class" => class = Some(named(&name, value)?),
            "user" => user = Some(named(&name, value)?),
            "resource" => resource = value,
            "minimize" => {
                minimize = Some(match value.as_str() {
                    "waste" => Minimize::Waste,
                    "retries" => Minimize::Retries,
                    _ => return Err(Refusal::bad("`minimize` is `waste` or `retries`")),
                });
            }
            "max_risk" => {
                let share = value.parse().ok().filter(|share| (0.0..=1.0).contains(share));
                let wrong = || Refusal::bad("`max_risk` is a share from 0 to 1, such as `0.1`");
                max_risk = Some(share.ok_or_else(wrong)?);
            }
            other => {
                let known = "`class`, `user`, `resource`, `minimize` and `max_risk`";
                return Err(unknown(other, known));
            }
        }
    }
    let class = class.ok_or_else(|| {
        Refusal::bad("the request names no class").hint("for example `?class=solve`")
    })?;
    let mut question = EstimateQuestion::new(class, &resource)?;
    question.user = user;
    question.minimize = minimize.unwrap_or(question.minimize);
    question.max_risk = max_risk.unwrap_or(question.max_risk);
    Ok(question)
}

/// Checks a name that becomes a text in a statement.
fn named(parameter: &str, value: String) -> Result<String, Refusal> {
    let is_name = !value.is_empty() && value.len() <= MAX_NAME_BYTES && !value.contains('\0');
    match is_name {
        true => Ok(value),
        false => {
            Err(Refusal::bad(format!("`{parameter}` is a name of 1 to {MAX_NAME_BYTES} bytes")))
        }
    }
}

impl From<EstimateError> for Refusal {
    fn from(error: EstimateError) -> Self {
        match &error {
            EstimateError::Query(e) => Self::from(e),
            EstimateError::Resource { nearest, .. } => {
                let refusal = Self::bad(error.to_string());
                match nearest {
                    Some(name) => refusal.hint(format!("did you mean `{name}`?")),
                    None => refusal,
                }
            }
            EstimateError::NoRecord { .. } => Self::new(StatusCode::NOT_FOUND, error.to_string())
                .hint("`skopos archive ls` lists classes of tasks, `skopos jobs` applications of jobs"),
            EstimateError::Incomplete { .. } => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
                    .hint("ask again in a minute; the hub warns of copies that it cannot read")
            }
            EstimateError::Archive(_) => Self::internal(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;

    use super::*;

    #[test]
    fn jobs_that_lack_a_copy_are_not_taken_for_jobs_without_a_record() {
        let (resource, class) = ("resident_bytes_max", "solve".to_owned());
        let missing = vec!["the copy of the jobs of hub1".to_owned()];
        let status = |error: EstimateError| Refusal::from(error).into_response().status();
        let lacking = EstimateError::Incomplete { resource, class: class.clone(), missing };
        assert_eq!(status(lacking), StatusCode::SERVICE_UNAVAILABLE);
        let without = EstimateError::NoRecord { resource, class };
        assert_eq!(status(without), StatusCode::NOT_FOUND);
    }
}
