//! Builds the text of a page so that no text of a task can become markup: literal markup is known
//! at compile time, and everything else is escaped.

use std::fmt::Write as _;

/// A piece of HTML or SVG.
#[derive(Debug, Default)]
pub(super) struct Html(String);

impl Html {
    /// Adds markup literally.
    pub(super) fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Adds text, in an element or in a quoted attribute.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                c => self.0.push(visible(c)),
            }
        }
        self
    }

    /// Adds a number for a coordinate or an attribute, with two decimals, which is finer than any
    /// screen.
    pub(super) fn number(&mut self, value: f64) -> &mut Self {
        let value = if value.is_finite() { value } else { 0.0 };
        let text = format!("{value:.2}");
        self.0.push_str(text.trim_end_matches('0').trim_end_matches('.'));
        self
    }

    /// Adds a whole number.
    pub(super) fn count(&mut self, value: impl Into<i128>) -> &mut Self {
        let _ = write!(self.0, "{}", value.into());
        self
    }

    /// Begins a table that scrolls by itself, with these columns.
    pub(super) fn table(&mut self, columns: &[&'static str]) -> &mut Self {
        self.raw("<div class=\"scroll\"><table>\n<thead><tr>");
        for column in columns {
            self.raw("<th scope=\"col\">").raw(column).raw("</th>");
        }
        self.raw("</tr></thead>\n<tbody>\n")
    }

    /// Ends a table.
    pub(super) fn end_table(&mut self) -> &mut Self {
        self.raw("</tbody>\n</table></div>\n")
    }

    /// Adds another piece.
    pub(super) fn add(&mut self, piece: Self) -> &mut Self {
        self.0.push_str(&piece.0);
        self
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }
}

/// Replaces control characters, which HTML forbids, by their pictures. Replaces marks that change
/// the direction of text, which could disguise a command line, by the replacement character.
fn visible(c: char) -> char {
    match c {
        '\n' | '\t' => c,
        '\0'..='\x1f' => char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}'),
        '\x7f'..='\u{9f}' | '\u{200e}' | '\u{200f}' => '\u{fffd}',
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_becomes_markup() {
        let mut html = Html::default();
        html.text("<b a=\"1\" b='2'>&amp;\0\x1b[31m\u{202e}\u{85}ü\n");
        let expected = "&lt;b a=&quot;1&quot; b=&#39;2&#39;&gt;&amp;amp;␀␛[31m\u{fffd}\u{fffd}ü\n";
        assert_eq!(html.into_string(), expected);
    }

    #[test]
    fn numbers_are_short_and_finite() {
        let mut html = Html::default();
        html.number(1.0).raw(" ").number(0.126).raw(" ").number(f64::NAN).raw(" ").count(-3);
        assert_eq!(html.into_string(), "1 0.13 0 -3");
    }
}
