//! `has(list, text)` and `has_words(text, words)`: conditions that a table can look up in an index.

use std::sync::Arc;

use datafusion::arrow::array::{Array, BooleanArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::common::cast::as_string_array;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use skopos_store::jobs::catalogue::has_words;

/// Name of the function that asks whether a list has a text.
pub(crate) const HAS: &str = "has";

/// Name of the function that asks whether a text has words.
pub(crate) const HAS_WORDS: &str = "has_words";

/// Returns both functions.
pub(crate) fn all() -> impl Iterator<Item = ScalarUDF> {
    let functions: [(&'static str, Test); 2] = [(HAS, has), (HAS_WORDS, has_words)];
    functions.into_iter().map(|(name, test)| {
        let signature = Signature::exact(vec![DataType::Utf8; 2], Volatility::Immutable);
        ScalarUDF::from(Condition { name, test, signature })
    })
}

/// Returns true if a text passes the test of another one.
type Test = fn(&str, &str) -> bool;

/// Returns true if a list, which is JSON, has a text. A text that is not such a list has nothing.
fn has(list: &str, text: &str) -> bool {
    let list: Vec<String> = serde_json::from_str(list).unwrap_or_default();
    list.iter().any(|item| item == text)
}

/// A function of two texts.
#[derive(Debug)]
struct Condition {
    name: &'static str,
    test: Test,
    signature: Signature,
}

/// The name says which function it is.
impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Condition {}

impl std::hash::Hash for Condition {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Condition {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let are_constants = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let (texts, asked) = (as_string_array(&arrays[0])?, as_string_array(&arrays[1])?);
        let pairs = texts.iter().zip(asked);
        let found: BooleanArray =
            pairs.map(|(text, asked)| Some((self.test)(text?, asked?))).collect();
        Ok(match are_constants {
            true => {
                let found = (found.len() == 1 && found.is_valid(0)).then(|| found.value(0));
                ColumnarValue::Scalar(ScalarValue::Boolean(found))
            }
            false => ColumnarValue::Array(Arc::new(found)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_whole_texts() {
        let list = serde_json::to_string(&["slow", "it's \"odd\", or not"]).expect("a list");
        assert!(has(&list, "slow") && has(&list, "it's \"odd\", or not"));
        assert!(!has(&list, "slo") && !has(&list, "") && !has("slow", "slow"));
    }

    #[test]
    fn words_are_found_in_any_order_and_case() {
        assert!(has_words("gromacs mdrun slow", "SLOW grom*"));
        assert!(!has_words("gromacs mdrun slow", "grom"));
        assert!(has_words("anything", ""));
    }
}
