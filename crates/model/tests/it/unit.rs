//! Units and kinds: by name, by code, and back.

use proptest::prelude::*;
use skopos_model::{Error, Kind, MAX_UNIT_BYTES, Unit};

proptest! {
    #![proptest_config(crate::cases(1_000))]

    #[test]
    fn any_text_is_a_unit_or_an_error(text in prop_oneof![any::<String>(), "[a-z0-9_/%]{0,18}"]) {
        let allowed = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '_' | '/' | '%');
        let expected = text.len() <= MAX_UNIT_BYTES && text.chars().all(allowed);
        match Unit::new(&text) {
            Ok(unit) => {
                prop_assert!(expected);
                prop_assert_eq!(unit.as_str(), &text);
                prop_assert_eq!(unit.to_string().parse::<Unit>().unwrap(), unit);
            }
            Err(e) => {
                prop_assert!(!expected);
                prop_assert_eq!(e, Error::Unit(text));
            }
        }
    }

    #[test]
    fn any_text_is_a_kind_or_an_error(text in any::<String>()) {
        prop_assert_eq!(text.parse::<Kind>(), Err(Error::Kind(text)));
    }
}

#[test]
fn known_units_are_units() {
    for unit in [Unit::NONE, Unit::BYTES, Unit::SECONDS, Unit::RATIO] {
        assert_eq!(Unit::new(unit.as_str()), Ok(unit));
    }
    assert_eq!(format!("[{:>7}]", Unit::BYTES), "[  bytes]", "padding works");
}

#[test]
fn kinds_have_names_and_codes() {
    let all: Vec<Kind> = (0..=255).filter_map(Kind::from_code).collect();
    assert_eq!(all, [Kind::Counter, Kind::Gauge, Kind::State]);
    for kind in all {
        assert_eq!(Kind::from_code(kind.code()), Some(kind));
        assert_eq!(kind.name().parse(), Ok(kind));
        assert_eq!(kind.to_string(), kind.name());
    }
    assert!("Gauge".parse::<Kind>().is_err());
}
