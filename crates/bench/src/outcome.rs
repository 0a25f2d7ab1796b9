//! The result of a step of a benchmark, whose error is only printed.

use std::error::Error;

pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;
