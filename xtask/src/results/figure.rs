//! Numbers in cells.

use serde::Deserialize;

/// A number, or the reason why it is unknown.
#[derive(Deserialize, Clone, Debug)]
#[serde(untagged)]
pub(super) enum Figure {
    Known(f64),
    Unknown(String),
}

impl Figure {
    pub(super) fn cell(&self) -> String {
        match self {
            Self::Known(number) => figure(*number),
            Self::Unknown(_) => "unknown".to_owned(),
        }
    }

    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Self::Known(number) => Some(*number),
            Self::Unknown(_) => None,
        }
    }
}

/// Three significant digits, or all digits of an integer, with commas between thousands.
pub(super) fn figure(number: f64) -> String {
    match number.abs() {
        size if size >= 100.0 || size == 0.0 => thousands(number),
        size if size >= 10.0 => format!("{number:.1}"),
        size if size >= 1.0 => format!("{number:.2}"),
        size if size >= 0.01 => format!("{number:.3}"),
        _ => format!("{number:.4}"),
    }
}

fn thousands(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = String::from(if number < 0.0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        for (number, expected) in [
            (0.0, "0"),
            (6.25, "6.25"),
            (28.8, "28.8"),
            (8583.0, "8,583"),
            (1_234_567.0, "1,234,567"),
            (-280.4, "-280"),
            (0.069, "0.069"),
            (0.00154, "0.0015"),
        ] {
            assert_eq!(figure(number), expected);
        }
    }
}
