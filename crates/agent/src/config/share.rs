//! A share of one core.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

/// A share of one core: `1%` or `0.01`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(pub f64);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, scale) = match text.strip_suffix('%') {
            Some(number) => (number.trim_end(), 0.01),
            None => (text, 1.0),
        };
        let wrong = || format!("`{text}` is not a share: try `1%` or `0.01`");
        let share = number.parse::<f64>().map_err(|_| wrong())? * scale;
        if share.is_finite() && share > 0.0 { Ok(Self(share)) } else { Err(wrong()) }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0 * 100.0)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum ShareText {
            Number(f64),
            Text(String),
        }
        let text = match ShareText::deserialize(deserializer)? {
            ShareText::Number(number) => number.to_string(),
            ShareText::Text(text) => text,
        };
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_percentage_or_a_ratio() {
        for (text, share) in [("1%", 0.01), ("0.01", 0.01), ("50 %", 0.5), ("200%", 2.0)] {
            assert_eq!(text.parse(), Ok(Share(share)), "{text}");
        }
        for text in ["", "%", "-1%", "0", "nan", "inf%", "1 percent"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }
}
