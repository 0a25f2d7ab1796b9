//! Structured values: their limits, and their encoding as text and back.

use proptest::prelude::*;
use serde_json::{Value as Json, json};
use skopos_model::{Error, MAX_STRUCTURED_BYTES, MAX_STRUCTURED_DEPTH, Structured};

fn nested(depth: usize, open: &str, close: &str) -> String {
    open.repeat(depth) + "1" + &close.repeat(depth)
}

#[test]
fn shapes() {
    for json in [json!([]), json!({}), json!(""), json!([1, "a", null]), json!({"a": [true]})] {
        let value = Structured::new(json.clone()).expect("a list, a record or a text");
        assert_eq!(value.as_json(), &json);
    }
    for json in [json!(null), json!(true), json!(1), json!(1.5)] {
        let error = Structured::new(json).expect_err("a number is not a structure");
        assert!(matches!(error, Error::StructuredShape(_)), "{error}");
    }
    for text in ["", "[", "[1,]", "{'a':1}", "[1] 2", "NaN", "[1e400]", "\u{0}", "\"\\ud800\""] {
        let error = Structured::from_json(text).expect_err(text);
        assert!(matches!(error, Error::StructuredSyntax(_)), "{text}: {error}");
    }
}

#[test]
fn depth() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("[{\"a\":", "}]")] {
        let levels = if open.len() == 6 { 2 } else { 1 };
        let deepest = nested(MAX_STRUCTURED_DEPTH / levels, open, close);
        Structured::from_json(&deepest).expect("the deepest allowed value");
        let error = Structured::from_json(&nested(MAX_STRUCTURED_DEPTH / levels + 1, open, close));
        assert_eq!(error, Err(Error::StructuredTooDeep), "{open}");
    }
    // Far deeper than any recursion should go.
    for depth in [200, 1000, 2000] {
        assert!(Structured::from_json(&nested(depth, "[", "]")).is_err());
    }
}

#[test]
fn length() {
    let text = |length: usize| format!("\"{}\"", "x".repeat(length - 2));
    Structured::from_json(&text(MAX_STRUCTURED_BYTES)).expect("the longest allowed value");
    for length in [MAX_STRUCTURED_BYTES + 1, 1 << 20] {
        let error = Structured::from_json(&text(length));
        assert_eq!(error, Err(Error::StructuredTooLong(length)));
        let error = Structured::new(Json::String("x".repeat(length - 2)));
        assert_eq!(error, Err(Error::StructuredTooLong(length)));
    }
    // The encoded length counts: a control character takes six bytes.
    let controls = Structured::new(Json::String("\u{1}".repeat(1000)));
    assert_eq!(controls, Err(Error::StructuredTooLong(6002)));
}

fn any_json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<u64>().prop_map(Json::from),
        any::<f64>()
            .prop_filter("JSON has only finite numbers", |v| v.is_finite())
            .prop_map(Json::from),
        "\\PC{0,10}".prop_map(Json::from),
        any::<String>().prop_map(Json::from),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Json::from),
            prop::collection::btree_map(any::<String>(), inner, 0..5)
                .prop_map(|fields| Json::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(crate::cases(2_000))]

    /// A reader decodes the value that a publisher encoded, to the last bit of each double.
    #[test]
    fn an_accepted_value_survives_its_text(json in any_json()) {
        if let Ok(value) = Structured::new(json) {
            let text = value.to_string();
            prop_assert!(text.len() <= MAX_STRUCTURED_BYTES);
            let back = Structured::from_json(&text).unwrap();
            prop_assert_eq!(&back, &value);
            prop_assert_eq!(back.to_string(), text);
        }
    }

    #[test]
    fn any_text_is_a_value_or_an_error(text in any::<String>()) {
        if let Ok(value) = Structured::from_json(&text) {
            prop_assert_eq!(Structured::from_json(&value.to_string()).unwrap(), value);
        }
    }
}
