//! Rewrites the planner's error for wrong arguments of a function in fewer words.

/// Returns the function, and what is wrong with its arguments; `None` if the message is about something else.
///
/// The planner writes: `Function 'sum' failed to match any signature, errors: Error during planning: Function
/// 'sum' requires Int64, but received String (DataType: Utf8).,Error during planning: …`
pub(crate) fn mismatch(text: &str) -> Option<(&str, String)> {
    let (function, errors) = text.split_once("' failed to match any signature, errors: ")?;
    let name = function.rsplit_once('\'')?.1;
    let between = |error: &str, before: &str, after: &str| {
        Some(error.split_once(before)?.1.split_once(after)?.0.to_owned())
    };
    let mut types: Vec<String> = Vec::new();
    for error in errors.split(",Error") {
        types.extend(between(error, "requires ", ", but").filter(|one| !types.contains(one)));
    }
    let message = match between(errors, "but received ", " (") {
        Some(given) if !types.is_empty() => {
            format!("`{name}` takes {}, and {given} was given", types.join(" or "))
        }
        _ => {
            let (takes, rest) = errors.split_once(" expects ")?.1.split_once(" arguments")?;
            let given: String =
                rest.split_once("received ")?.1.chars().take_while(char::is_ascii_digit).collect();
            let plural = if takes == "1" { "" } else { "s" };
            format!("`{name}` takes {takes} argument{plural}, and {given} were given")
        }
    };
    Some((name, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_expected_and_the_given_arguments() {
        let of = "Function 'sum' failed to match any signature, errors: ";
        let types = format!(
            "{of}Error during planning: Function 'sum' requires Int64, but received String (DataType: Utf8).,\
             Error during planning: Function 'sum' requires Float64, but received String (DataType: Utf8).."
        );
        assert_eq!(
            mismatch(&types),
            Some(("sum", "`sum` takes Int64 or Float64, and String was given".to_owned()))
        );
        let one = "Error during planning: Function 'sum' expects 1 arguments but received 2";
        let count = format!("{of}{one},{one}.");
        assert_eq!(
            mismatch(&count),
            Some(("sum", "`sum` takes 1 argument, and 2 were given".to_owned()))
        );
        assert_eq!(mismatch("Function 'sum' is unknown"), None);
    }
}
