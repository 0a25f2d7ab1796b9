//! Parameters of statements: `?`, counted from the left, or `$1`, `$2` and so on.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::Error;
use crate::limits::MAX_PARAMETERS;

/// Returns the number of a parameter that is written `$n`.
pub(crate) fn number(name: &str) -> Option<usize> {
    name.strip_prefix('$')?.parse().ok().filter(|n| (1..=MAX_PARAMETERS).contains(n))
}

/// Replaces every `?` by `$n`, counted from the left, and returns the number of parameters.
///
/// # Errors
/// A parameter is neither `?` nor `$n`, the statement mixes both kinds, it leaves out a number, or it has
/// more than [`MAX_PARAMETERS`].
pub(crate) fn number_parameters(tokens: &mut [TokenWithSpan]) -> Result<usize, Error> {
    let (mut questions, mut numbers) = (0, Vec::new());
    for token in tokens {
        let Token::Placeholder(name) = &mut token.token else { continue };
        if name == "?" {
            questions += 1;
            *name = format!("${questions}");
        } else if let Some(number) = number(name) {
            numbers.push(number);
        } else {
            return Err(Error::Parameter(name.clone()));
        }
        if questions > MAX_PARAMETERS || (questions > 0 && !numbers.is_empty()) {
            return Err(Error::Parameter(name.clone()));
        }
    }
    let count = numbers.iter().copied().max().unwrap_or(questions);
    match (1..=count).find(|n| questions == 0 && !numbers.contains(n)) {
        Some(missing) => Err(Error::Parameter(format!("${missing}"))),
        None => Ok(count),
    }
}
