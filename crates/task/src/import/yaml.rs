//! The YAML of Kickstart, line by line. The parser is lenient, because Kickstart does not write
//! strict YAML: values with colons and quotes are not quoted, and fragments of XML occur. The
//! needed fields are plain and have known paths, which the indentation shows.

use super::record::Record;

/// The first line of a record.
const BEGIN: &str = "- invocation:";

/// The deepest nesting; deeper fields are not needed and ignored.
const MAX_DEPTH: usize = 8;

/// Parses the records of a text.
pub(super) fn records(text: &str) -> Vec<Record> {
    let mut records = Vec::new();
    let mut reader = Reader::default();
    for line in text.lines() {
        let indent = line.len() - line.trim_start_matches(' ').len();
        if indent == 0 {
            // A line with a dash begins another record or another part. Any other line is a
            // fragment of XML, and the record continues.
            if line.starts_with('-') {
                let record = line.starts_with(BEGIN).then(Record::default);
                let before = std::mem::replace(&mut reader, Reader { record, ..Reader::default() });
                records.extend(before.record);
            }
            continue;
        }
        reader.line(indent, line.trim());
    }
    records.extend(reader.record);
    records
}

#[derive(Default)]
struct Reader<'a> {
    record: Option<Record>,
    /// The enclosing fields, with their indentation.
    above: Vec<(usize, &'a str)>,
    /// The indentation of a field whose text follows in deeper lines.
    text_of: Option<usize>,
}

impl<'a> Reader<'a> {
    fn line(&mut self, indent: usize, line: &'a str) {
        let Some(record) = &mut self.record else { return };
        if line.is_empty() || self.text_of.is_some_and(|field| indent > field) {
            return;
        }
        self.text_of = None;
        let above = self.above.iter().take_while(|(depth, _)| *depth < indent).count();
        self.above.truncate(above);
        if let Some(item) = line.strip_prefix("- ") {
            record.item(&path(&self.above, ""), unquoted(item));
            return;
        }
        let Some((key, value)) = line.split_once(':') else { return };
        let value = value.trim();
        if value == "|" {
            self.text_of = Some(indent);
        } else {
            // A field without a value counts too: it shows that the previous field is complete.
            record.field(path(&self.above, key), unquoted(value));
        }
        if self.above.len() < MAX_DEPTH {
            self.above.push((indent, key));
        }
    }
}

fn path(above: &[(usize, &str)], key: &str) -> String {
    let keys = above.iter().map(|(_, key)| *key).chain(Some(key).filter(|k| !k.is_empty()));
    keys.collect::<Vec<_>>().join(".")
}

/// Removes the quotes of a value. If the closing quote is missing, returns the rest.
fn unquoted(value: &str) -> String {
    let Some(inner) = value.strip_prefix('"') else { return value.to_owned() };
    let mut text = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => break,
            '\\' => match chars.next() {
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some('r') => text.push('\r'),
                Some(other) => text.push(other),
                None => {}
            },
            c => text.push(c),
        }
    }
    text
}
