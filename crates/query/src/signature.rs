//! What a function takes, where it was given something else, in fewer words than the planner's.

/// The function, and what is wrong; `None` if a message is about something else.
///
/// The planner says: `Function 'sum' failed to match any signature, errors: Error during planning: Function
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
            format!("`{name}` takes {}, and is given {given}", types.join(", "))
        }
        _ => {
            let (takes, rest) = errors.split_once(" expects ")?.1.split_once(" arguments")?;
            let given: String =
                rest.split_once("received ")?.1.chars().take_while(char::is_ascii_digit).collect();
            let plural = if takes == "1" { "" } else { "s" };
            format!("`{name}` takes {takes} argument{plural}, and is given {given}")
        }
    };
    Some((name, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_and_what_is_given() {
        let of = "Function 'sum' failed to match any signature, errors: ";
        let types = format!(
            "{of}Error during planning: Function 'sum' requires Int64, but received String (DataType: Utf8).,\
             Error during planning: Function 'sum' requires Float64, but received String (DataType: Utf8).."
        );
        let told = mismatch(&types);
        assert_eq!(
            told,
            Some(("sum", "`sum` takes Int64, Float64, and is given String".to_owned()))
        );
        let one = "Error during planning: Function 'sum' expects 1 arguments but received 2";
        let count = format!("{of}{one},{one}.");
        let told = mismatch(&count);
        assert_eq!(told, Some(("sum", "`sum` takes 1 argument, and is given 2".to_owned())));
        assert_eq!(mismatch("Function 'sum' is none"), None);
    }
}
