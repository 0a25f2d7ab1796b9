//! Splits a text into its statements.

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

/// Returns the statements of a text, which end with `;`. Each has blanks in place of the text before it, so
/// that positions in errors are positions in the whole text. A text that is not SQL, or has no statement, is
/// returned as one statement; the engine says what is wrong with it.
pub fn split(text: &str) -> Vec<String> {
    let whole = || vec![text.to_owned()];
    let Ok(tokens) = Tokenizer::new(&GenericDialect {}, text).tokenize_with_location() else {
        return whole();
    };
    let mut lines = vec![0];
    lines.extend(text.match_indices('\n').map(|(at, _)| at + 1));
    // Lines and columns are counted from one, columns in characters.
    let place = |line: u64, column: u64| {
        let start = *lines.get(usize::try_from(line).ok()?.checked_sub(1)?)?;
        let before = usize::try_from(column).ok()?.checked_sub(1)?;
        let rest = text.get(start..)?;
        Some(start + rest.char_indices().nth(before).map_or(rest.len(), |(at, _)| at))
    };
    let (mut statements, mut from, mut has_any) = (Vec::new(), 0, false);
    for token in &tokens {
        match token.token {
            Token::SemiColon => {
                let at = token.span.start;
                let Some(end) = place(at.line, at.column) else { return whole() };
                if std::mem::take(&mut has_any) {
                    statements.push(blanked(text, from, end));
                }
                from = end + 1;
            }
            Token::Whitespace(_) | Token::EOF => {}
            _ => has_any = true,
        }
    }
    if has_any {
        statements.push(blanked(text, from, text.len()));
    }
    if statements.is_empty() { whole() } else { statements }
}

fn blanked(text: &str, from: usize, to: usize) -> String {
    let blank = |c: char| if c == '\n' { '\n' } else { ' ' };
    let mut statement: String = text[..from].chars().map(blank).collect();
    statement.push_str(&text[from..to]);
    statement
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_semicolon_in_a_text_or_comment_ends_no_statement() {
        for (text, expected) in [
            ("SELECT 1", &["SELECT 1"][..]),
            ("SELECT 1;\n", &["SELECT 1"]),
            ("SELECT 1; SELECT 2", &["SELECT 1", "          SELECT 2"]),
            ("é;\n;x", &["é", "  \n x"]),
            (
                "SELECT ';', \"a;b\" -- c;d\n/* ; */;SELECT 2;",
                &[
                    "SELECT ';', \"a;b\" -- c;d\n/* ; */",
                    "                        \n        SELECT 2",
                ],
            ),
            ("SELECT 'open; SELECT 2", &["SELECT 'open; SELECT 2"]),
            ("", &[""]),
            (" ; -- nothing", &[" ; -- nothing"]),
        ] {
            assert_eq!(split(text), expected, "{text}");
        }
    }
}
