//! Views of a Rust source file: code, comments, literals, functions and test modules by line.
//!
//! `proc-macro2` cuts the text into tokens. It drops ordinary comments, but between two tokens there
//! is only white space and comments, so the gaps hold them. Documentation comments arrive as
//! attributes whose span is the comment. All lines count from 0.

mod outline;
mod words;

use std::ops::{Range, RangeInclusive};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

pub(crate) use self::outline::{Import, Outline, Scope};
use self::words::has_test;
pub(crate) use self::words::words;

/// One source file, cut up.
#[derive(Default)]
pub(crate) struct Rust {
    raw: Vec<String>,
    /// Comments and the inside of literals blanked out, the rest in place.
    code: Vec<String>,
    /// Only comments blanked out.
    uncommented: Vec<String>,
    comments: Vec<Comment>,
    literals: Vec<Literal>,
    functions: Vec<Function>,
    test_modules: Vec<RangeInclusive<usize>>,
    outline: Outline,
    /// Line and text of the error if the file cannot be cut into tokens.
    error: Option<(usize, String)>,
}

/// One function with its signature, from `fn` to the closing brace.
#[derive(Clone)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) lines: RangeInclusive<usize>,
}

/// One `//` or `/* */` comment, documentation included.
pub(crate) struct Comment {
    pub(crate) line: usize,
    /// With its slashes.
    pub(crate) text: String,
    /// Whether code stands before it on its line.
    pub(crate) trails: bool,
}

/// One string.
pub(crate) struct Literal {
    pub(crate) line: usize,
    /// With its quotes.
    pub(crate) text: String,
    /// The attribute that it is an argument of: `error` for `#[error("…")]`.
    pub(crate) attribute: Option<String>,
}

impl Rust {
    /// Cuts `text` up, with its outline. A file with an error in its tokens counts as code from end to
    /// end.
    pub(crate) fn new(text: &str) -> Self {
        Self::cut(text, Outline::new)
    }

    /// Cuts `text` up and leaves its outline empty, which saves half of the time.
    pub(crate) fn without_outline(text: &str) -> Self {
        Self::cut(text, |_| Outline::default())
    }

    fn cut(text: &str, outline: impl Fn(TokenStream) -> Outline) -> Self {
        let raw = lines(text);
        let tokens = match text.parse::<TokenStream>() {
            Ok(tokens) => tokens,
            Err(error) => {
                let line = error.span().start().line.saturating_sub(1);
                let (code, uncommented) = (raw.clone(), raw.clone());
                let error = Some((line, error.to_string()));
                return Self { raw, code, uncommented, error, ..Self::default() };
            }
        };
        let mut cutter = Cutter::new(text);
        cutter.stream(tokens.clone(), None);
        cutter.gap(text.len());
        let code = cutter.without(&[&cutter.gaps, &cutter.quoted]);
        let uncommented = cutter.without(&[&cutter.gaps]);
        let outline = outline(tokens);
        // The spans of this file are of no more use, and looking one up takes longer the more there are.
        let Cutter { comments, literals, functions, test_modules, .. } = cutter;
        proc_macro2::extra::invalidate_current_thread_spans();
        Self {
            raw,
            code,
            uncommented,
            comments,
            literals,
            functions,
            test_modules,
            outline,
            error: None,
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

    /// All comments, in their order.
    pub(crate) fn comments(&self) -> &[Comment] {
        &self.comments
    }

    /// All strings and characters, in their order.
    pub(crate) fn literals(&self) -> &[Literal] {
        &self.literals
    }

    /// Functions with a body, also those inside of macros.
    pub(crate) fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// Items, imports and paths of the file; empty if it does not parse.
    pub(crate) fn outline(&self) -> &Outline {
        &self.outline
    }

    /// Line and text of the first error in the file's tokens.
    pub(crate) fn error(&self) -> Option<(usize, &str)> {
        self.error.as_ref().map(|(line, text)| (*line, text.as_str()))
    }

    /// Whether the line lies in a `#[cfg(test)] mod`.
    pub(crate) fn in_test_module(&self, line: usize) -> bool {
        self.test_modules.iter().any(|lines| lines.contains(&line))
    }

    /// Whether a comment with `marker` ends on this line or above it, with at most `reach` lines
    /// of code between. The length of the comment itself does not count.
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

    /// Lines of code on which `word` stands as a whole word.
    pub(crate) fn lines_with_word(&self, word: &str) -> impl Iterator<Item = usize> {
        self.code
            .iter()
            .enumerate()
            .filter(move |(_, code)| words(code, word).next().is_some())
            .map(|(line, _)| line)
    }
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// Walks the tokens of one file and notes what lies where.
struct Cutter<'a> {
    text: &'a str,
    /// Byte offset at which each line begins.
    starts: Vec<usize>,
    /// End of the last token.
    end: usize,
    /// Bytes that are white space or comments.
    gaps: Vec<Range<usize>>,
    /// Bytes of strings and characters.
    quoted: Vec<Range<usize>>,
    comments: Vec<Comment>,
    literals: Vec<Literal>,
    functions: Vec<Function>,
    test_modules: Vec<RangeInclusive<usize>>,
}

impl<'a> Cutter<'a> {
    fn new(text: &'a str) -> Self {
        let starts = text.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            text,
            starts: std::iter::once(0).chain(starts).collect(),
            end: 0,
            gaps: Vec::new(),
            quoted: Vec::new(),
            comments: Vec::new(),
            literals: Vec::new(),
            functions: Vec::new(),
            test_modules: Vec::new(),
        }
    }

    fn line(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at) - 1
    }

    /// Walks `stream`; strings in it are arguments of `attribute` if there is one.
    fn stream(&mut self, stream: TokenStream, attribute: Option<&str>) {
        let trees: Vec<TokenTree> = stream.into_iter().collect();
        let ranges: Vec<Range<usize>> = trees.iter().map(|t| t.span().byte_range()).collect();
        self.find_functions(&trees, &ranges);
        self.find_test_modules(&trees, &ranges);
        for (at, (tree, range)) in trees.iter().zip(&ranges).enumerate() {
            // A documentation comment: `#`, perhaps `!`, and a group, all with the span of the comment.
            if range.start < self.end {
                continue;
            }
            let is_comment = matches!(tree, TokenTree::Punct(p) if p.as_char() == '#')
                && self.text[range.clone()].starts_with('/');
            if is_comment {
                self.gap(range.end);
                continue;
            }
            self.gap(range.start);
            match tree {
                TokenTree::Group(group) => {
                    // Groups without brackets come from macros, never from a file.
                    self.end = range.start + 1;
                    let name = attribute_name(&trees[..at], group).or(attribute.map(str::to_owned));
                    self.stream(group.stream(), name.as_deref());
                    self.gap(range.end - 1);
                }
                TokenTree::Literal(_) => self.literal(range, attribute),
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
            self.end = range.end;
        }
    }

    fn literal(&mut self, range: &Range<usize>, attribute: Option<&str>) {
        let text = &self.text[range.clone()];
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            return;
        }
        self.quoted.push(range.clone());
        let line = self.line(range.start);
        let (text, attribute) = (text.to_owned(), attribute.map(str::to_owned));
        self.literals.push(Literal { line, text, attribute });
    }

    /// Takes the bytes from the last token to `end` as white space and comments.
    fn gap(&mut self, end: usize) {
        let mut at = self.end;
        if at >= end {
            return;
        }
        self.gaps.push(at..end);
        while let Some(slash) = self.text[at..end].find('/') {
            let start = at + slash;
            let rest = &self.text[start..end];
            let len = match rest.strip_prefix("/*") {
                Some(_) => block_comment(rest),
                None => rest.find('\n').unwrap_or(rest.len()),
            };
            let line = self.line(start);
            let before = &self.text[self.starts[line]..start];
            self.comments.push(Comment {
                line,
                text: rest[..len].to_owned(),
                trails: !before.trim().is_empty(),
            });
            at = start + len;
        }
        self.end = end;
    }

    /// The lines of the text with the bytes of `blank` as spaces.
    fn without(&self, blank: &[&[Range<usize>]]) -> Vec<String> {
        let mut bytes = self.text.as_bytes().to_vec();
        for range in blank.iter().copied().flatten() {
            for byte in bytes[range.clone()].iter_mut().filter(|b| **b != b'\n') {
                *byte = b' ';
            }
        }
        // Tokens begin and end between characters, so characters are blanked as a whole.
        lines(&String::from_utf8_lossy(&bytes))
    }

    /// `fn name` up to the brace that closes its body. Nothing if a semicolon comes first, as in a
    /// trait's method without a body.
    fn find_functions(&mut self, trees: &[TokenTree], ranges: &[Range<usize>]) {
        for (at, tree) in trees.iter().enumerate() {
            if !is_word(tree, "fn") {
                continue;
            }
            // `fn(u8)` is a type, `fn $name` stands in a macro.
            let name = match (trees.get(at + 1), trees.get(at + 2)) {
                (Some(TokenTree::Ident(name)), _) => name.to_string(),
                (Some(TokenTree::Punct(p)), Some(TokenTree::Ident(name))) => format!("{p}{name}"),
                _ => continue,
            };
            if let Some(body) = body(&trees[at..]) {
                let lines = self.line(ranges[at].start)..=self.line(ranges[at + body].end - 1);
                self.functions.push(Function { name, lines });
            }
        }
    }

    /// Modules under an attribute like `#[cfg(test)]` or `#[cfg(all(test, loom))]`.
    fn find_test_modules(&mut self, trees: &[TokenTree], ranges: &[Range<usize>]) {
        for at in 1..trees.len() {
            let is_attribute = matches!(&trees[at], TokenTree::Group(g) if is_cfg_test(g));
            if !is_attribute || !is_mark(&trees[at - 1], '#') {
                continue;
            }
            let mut item = at + 1;
            while trees.get(item).is_some_and(|t| is_mark(t, '#')) {
                item += 2;
            }
            let head = trees.get(item..).unwrap_or_default().iter().take(3);
            if head.into_iter().any(|t| is_word(t, "mod"))
                && let Some(body) = body(&trees[item..])
            {
                let end = self.line(ranges[item + body].end - 1);
                self.test_modules.push(self.line(ranges[at].start)..=end);
            }
        }
    }
}

/// The position of the first braces, unless a semicolon comes before them.
fn body(trees: &[TokenTree]) -> Option<usize> {
    let end = trees.iter().position(|t| {
        is_mark(t, ';') || matches!(t, TokenTree::Group(g) if g.delimiter() == Delimiter::Brace)
    })?;
    (!is_mark(&trees[end], ';')).then_some(end)
}

fn is_mark(tree: &TokenTree, mark: char) -> bool {
    matches!(tree, TokenTree::Punct(p) if p.as_char() == mark)
}

fn is_word(tree: &TokenTree, word: &str) -> bool {
    matches!(tree, TokenTree::Ident(i) if i == word)
}

/// `error` if `group` is the bracket of `#[error(…)]`.
fn attribute_name(before: &[TokenTree], group: &proc_macro2::Group) -> Option<String> {
    let is_attribute = group.delimiter() == Delimiter::Bracket
        && before.last().is_some_and(|t| is_mark(t, '#') || is_mark(t, '!'));
    match group.stream().into_iter().next() {
        Some(TokenTree::Ident(name)) if is_attribute => Some(name.to_string()),
        _ => None,
    }
}

/// Whether the bracket says `cfg` with `test` in its condition, and nothing of `not`.
fn is_cfg_test(group: &proc_macro2::Group) -> bool {
    let mut trees = group.stream().into_iter();
    match (trees.next(), trees.next()) {
        (Some(TokenTree::Ident(cfg)), Some(TokenTree::Group(condition))) => {
            cfg == "cfg" && has_test(condition.stream())
        }
        _ => false,
    }
}

/// The length of the block comment at the start of `text`; they may be nested.
fn block_comment(text: &str) -> usize {
    let mut depth = 0usize;
    let mut at = 0;
    while let Some(mark) = text.get(at..).and_then(|rest| rest.find(['/', '*'])) {
        at += mark;
        match text.as_bytes().get(at..at + 2) {
            Some(b"/*") => (depth, at) = (depth + 1, at + 2),
            Some(b"*/") => (depth, at) = (depth.saturating_sub(1), at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
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
    fn comments_have_lines_and_texts() {
        let rust = Rust::new(
            "//! Ä\n\n/// One.\n/// Two.\nfn f() { g(1 /* in */); } // after\n    // alone\n/* a\nb */\n",
        );
        let found: Vec<(usize, &str, bool)> =
            rust.comments().iter().map(|c| (c.line, c.text.as_str(), c.trails)).collect();
        assert_eq!(
            found,
            [
                (0, "//! Ä", false),
                (2, "/// One.", false),
                (3, "/// Two.", false),
                (4, "/* in */", true),
                (4, "// after", true),
                (5, "// alone", false),
                (6, "/* a\nb */", false),
            ]
        );
        assert_eq!(rust.code()[4].trim_end(), "fn f() { g(1         ); }");
        assert!(rust.uncommented()[0].trim().is_empty());
    }

    #[test]
    fn a_string_knows_its_attribute() {
        let rust = Rust::new(
            "enum E {\n    #[error(\"no {0}\")]\n    A(u8),\n}\nconst B: &str = \"b\";\n",
        );
        let found: Vec<(usize, &str, Option<&str>)> = rust
            .literals()
            .iter()
            .map(|l| (l.line, l.text.as_str(), l.attribute.as_deref()))
            .collect();
        assert_eq!(found, [(1, "\"no {0}\"", Some("error")), (4, "\"b\"", None)]);
    }

    #[test]
    fn functions_have_ends() {
        let rust = Rust::new(
            "trait T {\n    fn a(&self) -> [u8; 3];\n    fn b(f: fn(u8)) -> u8\n    where\n        \
             Self: Sized,\n    {\n        if true { 1 } else { 2 }\n    }\n}\n\
             macro_rules! m {\n    ($n:ident) => {\n        fn $n() {\n        }\n    };\n}\n",
        );
        let found: Vec<(&str, RangeInclusive<usize>)> =
            rust.functions().iter().map(|f| (f.name.as_str(), f.lines.clone())).collect();
        assert_eq!(found, [("b", 2..=7), ("$n", 11..=12)]);
    }

    #[test]
    fn test_modules_are_found() {
        let rust = Rust::new(
            "fn a() {}\n#[cfg(all(test, loom))]\n#[allow(x)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n\
             #[cfg(not(test))]\nmod d {\n}\n",
        );
        let inside: Vec<bool> = (0..9).map(|line| rust.in_test_module(line)).collect();
        assert_eq!(inside, [false, true, true, true, true, true, false, false, false]);
    }

    #[test]
    fn a_long_comment_reaches_over_its_own_lines_only() {
        let rust = Rust::new("// SAFETY: a\n// b\n// c\n// d\nlet x =\n    y(\n    z());\n");
        assert!(rust.has_comment_near(4, "SAFETY:", 3));
        assert!(rust.has_comment_near(6, "SAFETY:", 2));
        assert!(!rust.has_comment_near(6, "SAFETY:", 1));
    }

    #[test]
    fn a_file_with_an_open_bracket_tells_its_error() {
        let rust = Rust::new("fn a() {}\nfn b( {\n");
        assert!(rust.error().is_some());
        assert_eq!(rust.code().len(), 2);
        assert!(Rust::new("fn a() {}\n").error().is_none());
    }
}
