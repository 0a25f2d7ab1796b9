//! A view of Rust source that is good enough for tidiness: what is code, what is a comment, what
//! is a literal, and where functions and test modules begin and end. No parser: it never refuses
//! a file, and on code that is being edited it errs by a line, not by a file.

use std::ops::RangeInclusive;

/// One source file, cut up. All lines count from 0.
pub(crate) struct Rust {
    raw: Vec<String>,
    /// Comments and the inside of literals blanked out, the rest in place.
    code: Vec<String>,
    /// Only comments blanked out.
    uncommented: Vec<String>,
    test_modules: Vec<RangeInclusive<usize>>,
}

/// One function with its signature, from `fn` to the closing brace.
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) lines: RangeInclusive<usize>,
}

#[derive(Clone, Copy, PartialEq)]
enum Class {
    Code,
    Comment,
    Literal,
}

impl Rust {
    pub(crate) fn new(text: &str) -> Self {
        let classes = classify(text);
        let keep = |wanted: &[Class]| -> Vec<String> {
            let masked: String = text
                .chars()
                .zip(&classes)
                .map(|(c, class)| if c == '\n' || wanted.contains(class) { c } else { ' ' })
                .collect();
            masked.lines().map(str::to_owned).collect()
        };
        let code = keep(&[Class::Code]);
        let test_modules = test_modules(&code);
        Self {
            raw: text.lines().map(str::to_owned).collect(),
            uncommented: keep(&[Class::Code, Class::Literal]),
            code,
            test_modules,
        }
    }

    /// Lines with nothing but code.
    pub(crate) fn code(&self) -> &[String] {
        &self.code
    }

    /// Lines with code and literals, without comments.
    pub(crate) fn uncommented(&self) -> &[String] {
        &self.uncommented
    }

    /// Whether the line lies in a `#[cfg(test)] mod`.
    pub(crate) fn in_test_module(&self, line: usize) -> bool {
        self.test_modules.iter().any(|lines| lines.contains(&line))
    }

    /// Whether a comment with `marker` ends on this line or above it, with at most `reach` lines
    /// of code between. The comment itself may be as long as it likes.
    pub(crate) fn has_comment_near(&self, line: usize, marker: &str, reach: usize) -> bool {
        let marked = |at: usize| {
            let (raw, code) = (&self.raw[at], &self.uncommented[at]);
            raw.contains(marker) && !code.contains(marker)
        };
        let mut code_lines = 0;
        for at in (0..=line).rev() {
            if marked(at) {
                return true;
            }
            let is_comment = self.uncommented[at].trim().is_empty() && !self.raw[at].is_empty();
            if at < line && !is_comment {
                code_lines += 1;
                if code_lines > reach {
                    return false;
                }
            }
        }
        false
    }

    /// Every function with a body.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let mut found = Vec::new();
        for (line, code) in self.code.iter().enumerate() {
            for at in words(code, "fn") {
                let rest = code[at + 2..].trim_start();
                let name: String = rest
                    .chars()
                    .take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '$' | '#'))
                    .collect();
                // `fn(u8)` is a type.
                if name.is_empty() {
                    continue;
                }
                if let Some(end) = body_end(&self.code, line, at) {
                    found.push(Function { name, lines: line..=end });
                }
            }
        }
        found
    }

    /// Lines of code on which `word` stands as a whole word.
    pub(crate) fn lines_with_word(&self, word: &str) -> impl Iterator<Item = usize> {
        self.code
            .iter()
            .enumerate()
            .filter(move |(_, code)| words(code, word).next().is_some())
            .map(|(line, _)| line)
    }
}

/// Byte offsets in `line` at which `word` stands as a whole word.
pub(crate) fn words<'a>(line: &'a str, word: &'a str) -> impl Iterator<Item = usize> {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        !line[..at].ends_with(part_of_word) && !line[at + word.len()..].starts_with(part_of_word)
    })
}

/// The line of the brace that closes the first brace after (`line`, `column`); nothing if a
/// semicolon outside of brackets comes first, as in a trait's method without a body.
fn body_end(code: &[String], line: usize, column: usize) -> Option<usize> {
    let mut braces = 0usize;
    let mut brackets = 0usize;
    for (at, text) in code.iter().enumerate().skip(line) {
        let text = if at == line { &text[column..] } else { text.as_str() };
        for c in text.chars() {
            match c {
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets = brackets.saturating_sub(1),
                ';' if braces == 0 && brackets == 0 => return None,
                '{' => braces += 1,
                '}' => {
                    braces = braces.saturating_sub(1);
                    if braces == 0 {
                        return Some(at);
                    }
                }
                _ => {}
            }
        }
    }
    None
}

/// Modules under an attribute like `#[cfg(test)]` or `#[cfg(all(test, loom))]`.
fn test_modules(code: &[String]) -> Vec<RangeInclusive<usize>> {
    let mut found = Vec::new();
    for (line, text) in code.iter().enumerate() {
        if !text.trim_start().starts_with("#[cfg(") || words(text, "test").next().is_none() {
            continue;
        }
        let item = (line + 1..code.len()).find(|&l| {
            let text = code[l].trim();
            !text.is_empty() && !text.starts_with("#[")
        });
        if let Some(item) = item.filter(|&l| words(&code[l], "mod").next().is_some())
            && let Some(end) = body_end(code, item, 0)
        {
            found.push(line..=end);
        }
    }
    found
}

/// The class of every character.
fn classify(text: &str) -> Vec<Class> {
    let chars: Vec<char> = text.chars().collect();
    let mut classes = Vec::with_capacity(chars.len());
    while classes.len() < chars.len() {
        let at = classes.len();
        let (len, class) = token(&chars, at);
        let end = (at + len.max(1)).min(chars.len());
        classes.resize(end, class);
    }
    classes
}

/// Length and class of the comment, literal or single character of code that begins at `at`.
fn token(chars: &[char], at: usize) -> (usize, Class) {
    let next = chars.get(at + 1).copied();
    match chars[at] {
        '/' if next == Some('/') => {
            (chars[at..].iter().take_while(|&&c| c != '\n').count(), Class::Comment)
        }
        '/' if next == Some('*') => (block_comment(&chars[at..]), Class::Comment),
        '"' => (quoted(&chars[at..], '"'), Class::Literal),
        'r' if !follows_word(chars, at) => match raw_string(&chars[at..]) {
            Some(len) => (len, Class::Literal),
            None => (1, Class::Code),
        },
        // The `b` or `c` before a raw string, so that `br"` is not taken for the end of a word.
        'b' | 'c' if !follows_word(chars, at) && next == Some('r') => {
            match raw_string(&chars[at + 1..]) {
                Some(len) => (len + 1, Class::Literal),
                None => (1, Class::Code),
            }
        }
        // `'a'` and `'\n'` are characters, `'a` is a lifetime.
        '\'' if next == Some('\\') || chars.get(at + 2) == Some(&'\'') => {
            (quoted(&chars[at..], '\''), Class::Literal)
        }
        _ => (1, Class::Code),
    }
}

fn follows_word(chars: &[char], at: usize) -> bool {
    at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_')
}

fn block_comment(chars: &[char]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at + 1 < chars.len() {
        match (chars[at], chars[at + 1]) {
            ('/', '*') => {
                depth += 1;
                at += 2;
            }
            ('*', '/') => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    chars.len()
}

fn quoted(chars: &[char], quote: char) -> usize {
    let mut at = 1;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            c if c == quote => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// The length of `r"..."` or `r##"..."##`, if that is what begins here.
fn raw_string(chars: &[char]) -> Option<usize> {
    let hashes = chars[1..].iter().take_while(|&&c| c == '#').count();
    if chars.get(1 + hashes) != Some(&'"') {
        return None;
    }
    let body = 2 + hashes;
    let end = (body..chars.len()).find(|&at| {
        let after = &chars[at + 1..];
        chars[at] == '"' && after.iter().take_while(|&&c| c == '#').count() >= hashes
    });
    Some(end.map_or(chars.len(), |end| end + 1 + hashes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_not_code() {
        let rust = Rust::new(
            "let a = \"unsafe { \\\" }\"; // unsafe\nlet b = r#\"un\"safe\"#; /* x /* y */ unsafe */\n\
             let c = '{'; let d = b'\"'; fn f<'a>(x: &'a u8) {}\n",
        );
        assert_eq!(rust.lines_with_word("unsafe").count(), 0);
        assert!(rust.code()[1].trim_end().ends_with(';'));
        assert!(!rust.code()[2].contains("'{'"));
        assert!(rust.code()[2].contains("fn f<'a>(x: &'a u8) {}"));
        assert!(rust.uncommented()[0].contains("unsafe {"));
        assert!(!rust.uncommented()[0].contains("// unsafe"));
    }

    #[test]
    fn functions_have_ends() {
        let rust = Rust::new(
            "trait T {\n    fn a(&self) -> [u8; 3];\n    fn b(f: fn(u8)) -> u8\n    where\n        \
             Self: Sized,\n    {\n        if true { 1 } else { 2 }\n    }\n}\n",
        );
        let functions = rust.functions();
        assert_eq!(functions.len(), 1);
        assert_eq!(functions[0].name, "b");
        assert_eq!(functions[0].lines, 2..=7);
    }

    #[test]
    fn test_modules_are_found() {
        let rust = Rust::new(
            "fn a() {}\n#[cfg(all(test, loom))]\n#[allow(x)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n",
        );
        let inside: Vec<bool> = (0..7).map(|line| rust.in_test_module(line)).collect();
        assert_eq!(inside, [false, true, true, true, true, true, false]);
    }

    #[test]
    fn a_long_comment_reaches_over_its_own_lines_only() {
        let rust = Rust::new("// SAFETY: a\n// b\n// c\n// d\nlet x =\n    y(\n    z());\n");
        assert!(rust.has_comment_near(4, "SAFETY:", 3));
        assert!(rust.has_comment_near(6, "SAFETY:", 2));
        assert!(!rust.has_comment_near(6, "SAFETY:", 1));
    }
}
