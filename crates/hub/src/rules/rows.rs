//! Rows of an answer as subjects of a rule.

use serde_json::{Map, Value};
use skopos_query::Answer;
use skopos_query::arrow::array::RecordBatch;
use skopos_query::arrow::datatypes::DataType;
use skopos_steer::rule::Row;

use crate::pieces::rows_json;

/// Most bytes of an answer in memory: a thousand rows of the longest kind.
const MAX_ANSWER_BYTES: usize = 32 << 20;

/// Most bytes of a row as JSON. Entries of the history and environments of programs have room for it.
const MAX_ROW_BYTES: usize = 8 << 10;

/// Longest name of a subject: a few topics.
const MAX_SUBJECT_BYTES: usize = 1024;

/// Returns the rows of an answer. The columns `subject` name a row; without any, all columns of texts.
///
/// # Errors
/// The reason why the answer says nothing about the subjects: a part is missing, it is too large, or a column does not exist.
pub(crate) fn rows(answer: &Answer, subject: &[String]) -> Result<Vec<Row>, String> {
    if let Some(reason) = answer.partial_reason() {
        return Err(reason);
    }
    let bytes: usize = answer.batches.iter().map(RecordBatch::get_array_memory_size).sum();
    if bytes > MAX_ANSWER_BYTES {
        return Err(format!("the answer has more than {} MiB", MAX_ANSWER_BYTES >> 20));
    }
    let columns = columns(answer, subject)?;
    let text = rows_json(&answer.batches).map_err(|e| e.to_string())?;
    let all: Vec<Map<String, Value>> = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    all.into_iter().map(|values| row(&columns, values)).collect()
}

/// Returns the columns that name a subject.
fn columns(answer: &Answer, subject: &[String]) -> Result<Vec<String>, String> {
    let fields = answer.schema.fields();
    if let Some(unknown) = subject.iter().find(|name| fields.iter().all(|f| f.name() != *name)) {
        return Err(format!("the answer has no column `{unknown}`, which `subject` names"));
    }
    if !subject.is_empty() {
        return Ok(subject.to_vec());
    }
    let is_text = |of: &DataType| match of {
        DataType::Dictionary(_, of) => of.is_string(),
        of => of.is_string(),
    };
    let texts = fields.iter().filter(|field| is_text(field.data_type()));
    Ok(texts.map(|field| field.name().clone()).collect())
}

fn row(columns: &[String], values: Map<String, Value>) -> Result<Row, String> {
    let text = |name: &String| match values.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => "null".to_owned(),
    };
    let subject = match columns {
        [only] => text(only),
        several => {
            let named = several.iter().map(|name| format!("{name}={}", text(name)));
            named.collect::<Vec<_>>().join(", ")
        }
    };
    if subject.len() > MAX_SUBJECT_BYTES {
        return Err(format!("the name of a subject has more than {MAX_SUBJECT_BYTES} bytes"));
    }
    match serde_json::to_vec(&values).map_or(0, |bytes| bytes.len()) > MAX_ROW_BYTES {
        true => Err(format!("a row has more than {MAX_ROW_BYTES} bytes; select fewer columns")),
        false => Ok(Row { subject, values }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use skopos_query::Way;
    use skopos_query::arrow::array::{ArrayRef, Float64Array, StringArray};

    use super::*;

    fn answer(missing: &[&str], text: &str) -> Answer {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![text, "b"]));
        let same: ArrayRef = Arc::new(StringArray::from(vec![Some("x"), None]));
        let numbers: ArrayRef = Arc::new(Float64Array::from(vec![0.5, f64::NAN]));
        let columns = [("topic", texts), ("unit", same), ("value", numbers)];
        let batch = RecordBatch::try_from_iter_with_nullable(
            columns.into_iter().map(|(name, array)| (name, array, true)),
        );
        let batch = batch.expect("a batch");
        let missing = missing.iter().map(|node| (*node).to_owned()).collect();
        Answer::new(batch.schema(), vec![batch], Way::Planned, missing)
    }

    fn names(subject: &[&str]) -> Result<Vec<String>, String> {
        let subject: Vec<String> = subject.iter().map(|name| (*name).to_owned()).collect();
        let rows = rows(&answer(&[], "a"), &subject)?;
        Ok(rows.into_iter().map(|row| row.subject).collect())
    }

    #[test]
    fn subjects_are_named_by_texts_or_by_columns_of_the_user() {
        assert_eq!(names(&[]), Ok(vec!["topic=a, unit=x".into(), "topic=b, unit=null".into()]));
        assert_eq!(names(&["topic"]), Ok(vec!["a".into(), "b".into()]));
        assert!(names(&["node"]).is_err_and(|e| e.contains("`node`")));
        let rows = rows(&answer(&[], "a"), &[]).expect("rows");
        assert_eq!(rows[0].values["value"], 0.5);
        assert!(rows[1].values["value"].is_null(), "{:?}", rows[1]);
    }

    #[test]
    fn a_partial_or_oversized_answer_says_nothing() {
        let copy = "the copy of the jobs of hub1, which is still being read";
        let reason = rows(&answer(&["n07", copy], "a"), &[]).expect_err("no rows");
        assert_eq!(reason, format!("the answer is partial; missing: n07, {copy}"));
        let long = "x".repeat(2 * MAX_SUBJECT_BYTES);
        assert!(rows(&answer(&[], &long), &[]).is_err_and(|e| e.contains("name of a subject")));
        let long = "x".repeat(2 * MAX_ROW_BYTES);
        let subject = ["unit".to_owned()];
        assert!(rows(&answer(&[], &long), &subject).is_err_and(|e| e.contains("a row has")));
    }
}
