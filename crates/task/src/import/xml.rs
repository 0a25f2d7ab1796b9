//! The XML of older versions of Kickstart: only elements and attributes are parsed. Fields get the
//! names of the YAML, so that both formats share the rest of the code.

use super::record::Record;

/// The deepest nesting; needed elements are less deep. Bounds a text of nothing but opening tags.
const MAX_DEPTH: usize = 64;

/// Parses the records of a text. A record that is cut off lacks its last field.
pub(super) fn records(text: &str) -> Vec<Record> {
    let mut reader = Reader::default();
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        let before = &rest[..at];
        reader.text(before);
        rest = &rest[at..];
        let skipped = [("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>"), ("<!", ">")];
        if let Some((_, end)) = skipped.iter().find(|(begin, _)| rest.starts_with(begin)) {
            let Some(at) = rest.find(end) else { break };
            rest = &rest[at + end.len()..];
            continue;
        }
        let Some(end) = tag_end(rest) else { break };
        if !reader.tag(&rest[1..end]) {
            break;
        }
        rest = &rest[end + 1..];
    }
    reader.records.extend(reader.record);
    reader.records
}

/// Returns the end of the tag at the beginning of the text: a `>` outside of quotes.
fn tag_end(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            (None, '>') => return Some(at),
            _ => {}
        }
    }
    None
}

#[derive(Default)]
struct Reader<'a> {
    records: Vec<Record>,
    record: Option<Record>,
    above: Vec<&'a str>,
    /// The text of the open element.
    text: String,
}

impl<'a> Reader<'a> {
    fn text(&mut self, text: &str) {
        if matches!(self.above.last(), Some(&("cwd" | "arg"))) {
            self.text.push_str(&decoded(text));
        }
    }

    /// Parses a tag, given without `<` and `>`. Returns false to stop the parser.
    fn tag(&mut self, tag: &'a str) -> bool {
        if let Some(name) = tag.strip_prefix('/') {
            self.close(local(name.trim()));
            return true;
        }
        let (tag, is_empty) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let name = local(tag.split_whitespace().next().unwrap_or_default());
        self.open(name, &tag[tag.find(char::is_whitespace).unwrap_or(tag.len())..]);
        if is_empty {
            self.close(name);
        }
        self.above.len() < MAX_DEPTH
    }

    fn open(&mut self, name: &'a str, attributes: &str) {
        if name == "invocation" {
            self.records.extend(self.record.replace(Record::default()));
            self.above.clear();
        }
        self.above.push(name);
        self.text.clear();
        let Some(record) = &mut self.record else { return };
        let prefix = match self.above.get(1..).unwrap_or_default() {
            [] => "",
            ["mainjob"] => "mainjob.",
            ["mainjob", "usage"] => "mainjob.usage.",
            ["mainjob", "status"] => "mainjob.status.",
            ["mainjob", "status", "regular"] => "mainjob.status.regular_",
            ["mainjob", "status", "signalled"] => "mainjob.status.signalled_",
            ["mainjob", "status", "failure"] => "mainjob.status.failure_",
            ["mainjob", "statcall", "file"] => "mainjob.executable.file_",
            ["mainjob", "proc"] => {
                record.begin_process();
                "mainjob.proc."
            }
            ["machine", "uname"] => "machine.uname_",
            ["machine", "cpu"] => "machine.cpu_",
            _ => return,
        };
        each_attribute(attributes, |key, value| record.field(format!("{prefix}{key}"), value));
    }

    fn close(&mut self, name: &str) {
        if !self.above.contains(&name) {
            return;
        }
        while let Some(open) = self.above.pop() {
            let text = std::mem::take(&mut self.text);
            if let Some(record) = &mut self.record {
                match open {
                    "arg" if self.above.get(1) == Some(&"mainjob") => {
                        record.item("mainjob.argument_vector", text);
                    }
                    "cwd" if self.above.len() == 1 => record.field("cwd".to_owned(), text),
                    "mainjob" => record.field("mainjob.end".to_owned(), String::new()),
                    _ => {}
                }
            }
            if open == name {
                break;
            }
        }
        if self.above.is_empty() {
            self.records.extend(self.record.take());
        }
    }
}

/// Removes the namespace of a name.
fn local(name: &str) -> &str {
    name.rsplit(':').next().unwrap_or(name)
}

fn each_attribute(mut text: &str, mut found: impl FnMut(&str, String)) {
    while let Some((key, rest)) = text.split_once('=') {
        let rest = rest.trim_start();
        let Some(quote) = rest.chars().next().filter(|c| "\"'".contains(*c)) else { return };
        let Some((value, rest)) = rest[1..].split_once(quote) else { return };
        found(local(key.trim()), decoded(value));
        text = rest;
    }
}

/// Decodes entities; unknown ones stay as they are.
fn decoded(text: &str) -> String {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        decoded.push_str(&rest[..at]);
        rest = &rest[at..];
        let entity = rest.split_once(';').and_then(|(name, after)| Some((entity(name)?, after)));
        match entity {
            Some((c, after)) => {
                decoded.push(c);
                rest = after;
            }
            None => {
                decoded.push('&');
                rest = &rest[1..];
            }
        }
    }
    decoded + rest
}

fn entity(name: &str) -> Option<char> {
    match name {
        "&lt" => Some('<'),
        "&gt" => Some('>'),
        "&amp" => Some('&'),
        "&quot" => Some('"'),
        "&apos" => Some('\''),
        _ => {
            let code = name.strip_prefix("&#")?;
            let code = match code.strip_prefix('x') {
                Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                None => code.parse().ok()?,
            };
            char::from_u32(code)
        }
    }
}
