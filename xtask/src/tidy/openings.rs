//! A comment opens with its subject or its verb, not with a question word, and names a listener as such.

use crate::rust::{Comment, Rust};
use crate::tidy::finding::Finding;
use crate::tree::Tree;

/// First words that hide the subject of the sentence.
const WORDS: &[&str] = &[
    "What", "Who", "Whose", "Whom", "Those", "As", "Whoever", "Whatever", "How", "Where", "Which",
    "That",
];

/// Further words that no name of a function opens with.
const NAME_WORDS: &[&str] = &["Nobody", "None", "Somebody", "Everybody"];

/// Words that make `One` an opening of that kind.
const AFTER_ONE: &[&str] = &["that", "who", "of which"];

/// Crates with listeners.
const LISTENING: &[&str] = &["crates/serve/", "crates/hub/", "crates/node/"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust_files() {
        findings.extend(openings(&file.path, rust));
        findings.extend(names(&file.path, rust));
        if LISTENING.iter().any(|folder| file.path.starts_with(folder)) {
            findings.extend(doors(&file.path, rust));
        }
    }
    findings
}

/// Names of functions that open with one of the words: tests are named by sentences.
fn names<'a>(path: &'a str, rust: &'a Rust) -> impl Iterator<Item = Finding> + 'a {
    let opening = |name: &str| {
        let (first, rest) = name.split_once('_')?;
        // `as_of_join` is a conversion or a term, not a sentence.
        let is_refused = first != "as"
            && rest.contains('_')
            && NAME_WORDS.iter().chain(WORDS).any(|word| word.to_lowercase() == first);
        is_refused.then(|| first.to_owned())
    };
    let refused = rust.functions().iter().filter_map(move |f| Some((f, opening(&f.name)?)));
    refused.map(|(function, opening)| {
        Finding::at(
            path,
            *function.lines.start(),
            format!("the name of `{}` opens with `{opening}`", function.name),
            "open with the noun that the sentence is about",
        )
    })
}

/// Paragraphs that open with one of the words.
fn openings(path: &str, rust: &Rust) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut paragraph = Paragraph::default();
    for comment in rust.comments() {
        for (line, kind, text) in lines(comment) {
            if let Some(opening) = paragraph.opening(line, kind, comment.trails, text) {
                findings.push(Finding::at(
                    path,
                    line,
                    format!("the comment opens with `{opening}`"),
                    "open with a verb in the third person (\"Returns\", \"Holds\") or with the noun \
                     of the item (\"Number of\", \"The time at which\")",
                ));
            }
        }
    }
    findings
}

/// The kinds of comments that have paragraphs of their own.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Inner,
    Outer,
    Plain,
}

/// The lines of a comment without their slashes and stars.
fn lines(comment: &Comment) -> impl Iterator<Item = (usize, Kind, &str)> {
    let text = comment.text.as_str();
    let is_line = text.starts_with("//");
    let kind = match text.as_bytes().get(2) {
        Some(b'!') => Kind::Inner,
        // Four slashes are an ordinary comment, and so is a box of stars.
        Some(b'/') if is_line && !text.starts_with("////") => Kind::Outer,
        Some(b'*') if !is_line && !text.starts_with("/***") => Kind::Outer,
        _ => Kind::Plain,
    };
    let slashes: &[char] = if is_line { &['/', '!'] } else { &['/', '*', '!', ' '] };
    text.lines().enumerate().map(move |(at, line)| {
        let line = line.trim().trim_start_matches(slashes);
        (comment.line + at, kind, line.trim_end_matches("*/").trim())
    })
}

/// The place in the comments of a file.
#[derive(Default)]
struct Paragraph {
    /// Line and kind of the comment before.
    before: Option<(usize, Kind)>,
    /// Whether the line before was text of a paragraph.
    inside: bool,
    /// Whether the line before was in a block of code.
    code: bool,
}

impl Paragraph {
    /// Takes the next line; returns its opening if it begins a paragraph with one of the words.
    fn opening(&mut self, line: usize, kind: Kind, trails: bool, text: &str) -> Option<String> {
        let goes_on =
            !trails && self.before.is_some_and(|(at, before)| at + 1 == line && before == kind);
        if !goes_on {
            (self.inside, self.code) = (false, false);
        }
        self.before = (!trails).then_some((line, kind));
        if text.starts_with("```") {
            (self.inside, self.code) = (false, !self.code);
            return None;
        }
        if kind != Kind::Plain && text.starts_with("# ") {
            self.inside = false;
            return None;
        }
        // Blank lines and headings separate paragraphs of documentation; an ordinary comment opens once.
        let begins = !self.inside && !self.code && !text.is_empty();
        self.inside = !text.is_empty() || kind == Kind::Plain && goes_on && self.inside;
        if begins { opening(text) } else { None }
    }
}

/// The opening words of `text` if they are to be refused.
fn opening(text: &str) -> Option<String> {
    let first = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    if WORDS.contains(&first) {
        return Some(first.to_owned());
    }
    let rest = text.strip_prefix("One ")?;
    let is_whole = |word: &&&str| {
        rest.strip_prefix(**word).is_some_and(|after| !after.starts_with(char::is_alphanumeric))
    };
    AFTER_ONE.iter().find(is_whole).map(|word| format!("One {word}"))
}

/// Comments and errors that call a listener a door.
fn doors(path: &str, rust: &Rust) -> Vec<Finding> {
    let comments = rust
        .comments()
        .iter()
        .flat_map(|comment| lines(comment).map(|(line, _, text)| (line, text)));
    let is_error = |attribute: &Option<String>| attribute.as_deref() == Some("error");
    let errors = rust.literals().iter().filter(|l| is_error(&l.attribute));
    let texts = comments.chain(errors.map(|l| (l.line, l.text.as_str())));
    // Between backticks stands a name, such as that of a topic.
    let says_door = |text: &str| {
        let prose = text.split('`').step_by(2);
        let mut words =
            prose.flat_map(|part| part.split(|c: char| !c.is_alphanumeric() && c != '_'));
        words.any(|word| matches!(word, "door" | "doors" | "Door" | "Doors"))
    };
    texts
        .filter(|(_, text)| says_door(text))
        .map(|(line, _)| {
            let mend = "write `listener`, the word of the code";
            Finding::at(path, line, "a listener is called a door", mend)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "crates/new/src/a.rs";

    fn faults(path: &str, text: &str) -> Vec<String> {
        let found = check(&Tree::of(&[(path, text)]));
        found.into_iter().map(|f| format!("{} {}", f.line, f.fault)).collect()
    }

    fn refused(text: &str) -> Vec<String> {
        let found = faults(PATH, text).into_iter();
        found.map(|fault| fault.replace("the comment opens with ", "")).collect()
    }

    #[test]
    fn each_opening_is_refused() {
        for word in WORDS {
            assert_eq!(
                refused(&format!("/// {word} it is.\nstruct S;\n")),
                [format!("1 `{word}`")]
            );
        }
        for word in AFTER_ONE {
            let text = format!("//! One {word} waits.\n");
            assert_eq!(refused(&text), [format!("1 `One {word}`")]);
        }
        for good in ["Returns what it is", "Whatsoever", "Asks", "One thatch", "One value", "`As`"]
        {
            assert!(refused(&format!("/// {good}.\nstruct S;\n")).is_empty(), "{good}");
        }
    }

    #[test]
    fn a_test_is_named_by_its_subject() {
        let named = |name: &str| faults(PATH, &format!("fn {name}() {{}}\n")).len();
        for bad in ["what_is_refused_is_counted", "nobody_is_asked", "how_it_ends"] {
            assert_eq!(named(bad), 1, "{bad}");
        }
        for good in ["a_refused_value_is_counted", "as_of_join", "whatever"] {
            assert_eq!(named(good), 0, "{good}");
        }
    }

    #[test]
    fn a_heading_ends_a_paragraph() {
        let text = "/// Reads.\n///\n/// # Errors\n/// Those of `read`.\nfn f() {}\n";
        assert_eq!(refused(text), ["4 `Those`"]);
    }

    #[test]
    fn every_paragraph_of_documentation_is_read() {
        let text = "//! A module.\n//!\n//! What it does.\n//! Who reads it.\n//!\n//! ```\n//! What?\n\
                    //!\n//! Who?\n//! ```\n//! Those end.\n\n/// As a rule.\nfn f() {}\n";
        assert_eq!(refused(text), ["3 `What`", "11 `Those`", "13 `As`"]);
        assert_eq!(refused("/** Holds.\n *\n * What it is.\n */\nstruct S;\n"), ["3 `What`"]);
    }

    #[test]
    fn an_ordinary_comment_is_read_at_its_start() {
        let text = "fn f() {\n    // Whose it is.\n    // Who asks.\n    //\n    // As before.\n    \
                    g(); // What g gives.\n    // What h gives.\n    h();\n}\n";
        assert_eq!(refused(text), ["2 `Whose`", "6 `What`", "7 `What`"]);
        assert!(refused("const A: &str = \"// What\";\n").is_empty());
    }

    #[test]
    fn a_listener_is_not_called_a_door() {
        let text = "// The door, not `a/door/b`.\n#[derive(Error)]\nenum E {\n    #[error(\"no doors\")]\n    A,\n}\n\
                    const B: &str = \"door\";\n/// Indoors.\nfn door() {}\n";
        let expected = ["1 a listener is called a door", "4 a listener is called a door"];
        assert_eq!(faults("crates/serve/src/a.rs", text), expected);
        assert!(faults(PATH, text).is_empty());
    }
}
