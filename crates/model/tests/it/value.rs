//! Values, scalars and their types as bits, text and JSON, and back.

use proptest::prelude::*;
use serde_json::Value as Json;
use skopos_model::{Error, Scalar, Structured, Value, ValueType};

const TYPES: [ValueType; 4] =
    [ValueType::F64, ValueType::I64, ValueType::U64, ValueType::Structured];

fn scalars() -> impl Strategy<Value = Scalar> {
    prop_oneof![
        any::<u64>().prop_map(|bits| Scalar::F64(f64::from_bits(bits))),
        any::<i64>().prop_map(Scalar::I64),
        any::<u64>().prop_map(Scalar::U64),
    ]
}

proptest! {
    #![proptest_config(crate::cases(1_000))]

    #[test]
    fn scalars_survive_their_bits(scalar in scalars()) {
        let back = Scalar::from_bits(scalar.value_type(), scalar.to_bits()).unwrap();
        prop_assert_eq!(back.to_bits(), scalar.to_bits());
        prop_assert_eq!(back.value_type(), scalar.value_type());
        prop_assert_eq!(Value::from(scalar).value_type(), scalar.value_type());
        prop_assert_eq!(Scalar::from_bits(ValueType::Structured, scalar.to_bits()), None);
    }

    #[test]
    fn values_survive_their_text(scalar in scalars()) {
        let value = Value::from(scalar);
        let back = value.value_type().parse_value(&value.to_string()).unwrap();
        match (&back, &value) {
            // All NaNs have the same text.
            (Value::F64(a), Value::F64(b)) if b.is_nan() => prop_assert!(a.is_nan()),
            (Value::F64(a), Value::F64(b)) => prop_assert_eq!(a.to_bits(), b.to_bits()),
            _ => prop_assert_eq!(&back, &value),
        }
        prop_assert_eq!(value.as_f64().map(f64::to_bits), Some(scalar.as_f64().to_bits()));
    }

    #[test]
    fn any_text_is_a_value_or_an_error(text in prop_oneof![any::<String>(), "[-+0-9.einfa]{0,12}"]) {
        for value_type in TYPES {
            match value_type.parse_value(&text) {
                Ok(value) => prop_assert_eq!(value.value_type(), value_type),
                Err(Error::Value { text: wrong, wanted }) => {
                    prop_assert_eq!((wrong, wanted), (text.clone(), value_type));
                }
                Err(e) => prop_assert_eq!(value_type, ValueType::Structured, "{}", e),
            }
        }
    }
}

#[test]
fn numbers_out_of_range_are_refused() {
    for (value_type, text) in [
        (ValueType::U64, "-1"),
        (ValueType::U64, "18446744073709551616"),
        (ValueType::U64, "1.0"),
        (ValueType::I64, "9223372036854775808"),
        (ValueType::I64, ""),
        (ValueType::F64, "1,5"),
        (ValueType::F64, " 1"),
    ] {
        assert!(value_type.parse_value(text).is_err(), "{text}");
    }
    let largest = ValueType::U64.parse_value("18446744073709551615");
    assert_eq!(largest, Ok(Value::U64(u64::MAX)));
}

#[test]
fn json_has_null_for_numbers_that_are_not_finite() {
    assert_eq!(Value::F64(f64::NAN).to_json(), Json::Null);
    assert_eq!(Value::F64(f64::INFINITY).to_json(), Json::Null);
    assert_eq!(Value::U64(u64::MAX).to_json().to_string(), "18446744073709551615");
    assert_eq!(Value::F64(0.1).to_json().to_string(), "0.1");
    let list = Structured::from_json("[1]").expect("JSON");
    assert_eq!(Value::from(list.clone()).to_json(), *list.as_json());
    assert_eq!(Value::from(list).as_f64(), None);
}

#[test]
fn types_have_names_and_codes() {
    let all: Vec<ValueType> = (0..=255).filter_map(ValueType::from_code).collect();
    assert_eq!(all, TYPES);
    for value_type in TYPES {
        assert_eq!(ValueType::from_code(value_type.code()), Some(value_type));
        assert_eq!(value_type.name().parse(), Ok(value_type));
        assert_eq!(value_type.to_string(), value_type.name());
    }
    assert!(matches!("F64".parse::<ValueType>(), Err(Error::ValueType(_))));
}
