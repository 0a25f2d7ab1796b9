//! `LIKE` on topics, with the meaning of insights.

use std::sync::Arc;

use datafusion::arrow::array::{Array, BooleanArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::cast::as_string_array;
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use skopos_eval::Like;

/// Name of the function.
pub(crate) const TOPIC_LIKE: &str = "topic_like";

/// The character that makes a `%` or `_` literal, unless the statement has `ESCAPE`: that of insights and of
/// PostgreSQL.
pub(crate) const ESCAPE: &str = "\\";

/// Returns `topic_like(topic, pattern, escape)`: a `LIKE` in which `_` matches any character but `/`.
pub(crate) fn topic_like() -> ScalarUDF {
    let signature = Signature::exact(vec![DataType::Utf8; 3], Volatility::Immutable);
    ScalarUDF::from(TopicLike { signature })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TopicLike {
    signature: Signature,
}

impl ScalarUDFImpl for TopicLike {
    fn name(&self) -> &str {
        TOPIC_LIKE
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [texts, pattern, escape] = args.args.as_slice() else {
            return exec_err!(
                "{TOPIC_LIKE} takes three texts, and {} arguments were given",
                args.args.len()
            );
        };
        // A parameter that is bound to NULL.
        if matches!(pattern, ColumnarValue::Scalar(pattern) if pattern.is_null()) {
            return Ok(ColumnarValue::Scalar(ScalarValue::Boolean(None)));
        }
        let constant = |value: &ColumnarValue| match value {
            ColumnarValue::Scalar(scalar) => scalar.try_as_str().flatten().map(str::to_owned),
            ColumnarValue::Array(_) => None,
        };
        let (Some(pattern), Some(escape)) = (constant(pattern), constant(escape)) else {
            return exec_err!("the pattern of a LIKE on topics has to be a text, and not a column");
        };
        let Some(like) = Like::new(&pattern, escape.chars().next()) else {
            return exec_err!(
                "the pattern `{pattern}` ends with its escape character; write it twice"
            );
        };
        match texts {
            ColumnarValue::Scalar(text) => {
                let found = text.try_as_str().flatten().map(|text| like.matches(text));
                Ok(ColumnarValue::Scalar(ScalarValue::Boolean(found)))
            }
            ColumnarValue::Array(texts) => {
                let texts = as_string_array(texts)?;
                let found: BooleanArray =
                    texts.iter().map(|text| text.map(|text| like.matches(text))).collect();
                debug_assert_eq!(found.len(), texts.len());
                Ok(ColumnarValue::Array(Arc::new(found)))
            }
        }
    }
}
