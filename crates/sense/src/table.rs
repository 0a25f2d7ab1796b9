//! Files that are tables of named numbers: a name on each line ([`Keyed`]), or a line of names
//! above a line of numbers ([`Columns`]).
//!
//! Both remember the order in which the kernel lists the names, so a tick compares each name once.
//! If a file changes its shape, the order is learned anew.

use skopos_model::schema::Metric;

use crate::facts::Facts;
use crate::parse;
use crate::sensor::Tick;

/// A number of the file and the metric that it feeds. Fields of one metric stand side by side and
/// are summed.
pub(crate) struct Field {
    /// The kernel's name.
    pub(crate) name: &'static [u8],
    /// The metric that it feeds, a `u64`.
    pub(crate) metric: &'static Metric,
    /// The number of the metric's units in one unit of the kernel.
    pub(crate) scale: u64,
}

/// Returns a field in the kernel's own unit.
pub(crate) const fn plain(name: &'static str, metric: &'static Metric) -> Field {
    scaled(name, metric, 1)
}

/// Returns a field in KiB, for a metric in bytes.
pub(crate) const fn kib(name: &'static str, metric: &'static Metric) -> Field {
    scaled(name, metric, 1024)
}

/// Returns a field whose unit is `scale` units of the metric.
pub(crate) const fn scaled(name: &'static str, metric: &'static Metric, scale: u64) -> Field {
    Field { name: name.as_bytes(), metric, scale }
}

/// The last value of each field.
struct Values {
    fields: &'static [Field],
    last: Box<[Option<u64>]>,
}

impl Values {
    fn new(fields: &'static [Field]) -> Self {
        Self { fields, last: vec![None; fields.len()].into() }
    }

    fn get(&self, name: &[u8]) -> Option<u64> {
        let at = self.fields.iter().position(|f| f.name == name)?;
        self.last[at]
    }

    fn hand_over(&self, facts: &mut Facts, tick: &mut Tick<'_>) {
        let mut rest = self.fields.iter().zip(&self.last).peekable();
        while let Some((field, first)) = rest.next() {
            let mut sum = *first;
            while let Some((_, more)) = rest.next_if(|(f, _)| std::ptr::eq(f.metric, field.metric))
            {
                sum = match (sum, *more) {
                    (Some(a), Some(b)) => a.checked_add(b),
                    (a, b) => a.or(b),
                };
            }
            // The kernel writes a number too large for its unit where it has no number.
            if let Some(value) = sum.and_then(|n| n.checked_mul(field.scale)) {
                facts.set(tick, field.metric, value);
            }
        }
    }
}

/// A file of lines `name value`, where a colon may follow the name.
pub(crate) struct Keyed {
    values: Values,
    /// The name of each line, and its field if it has one.
    order: Vec<(Box<[u8]>, Option<usize>)>,
}

/// The most lines whose order is remembered: several times those of `/proc/vmstat`.
const MAX_LINES: usize = 1024;

impl Keyed {
    /// Returns the table of a file of which these fields matter.
    pub(crate) fn new(fields: &'static [Field]) -> Self {
        Self { values: Values::new(fields), order: Vec::new() }
    }

    /// Reads the file's `text`, where each line begins with `prefix`.
    pub(crate) fn take(&mut self, text: &[u8], prefix: &[u8]) {
        self.values.last.fill(None);
        for (at, line) in parse::lines(text).take(MAX_LINES).enumerate() {
            // This is not a matter of style: comparing with an empty prefix made this loop three
            // times as expensive where it was measured, most likely because memcmp touches the
            // address that an empty slice does not have.
            let line =
                if prefix.is_empty() { line } else { line.strip_prefix(prefix).unwrap_or(line) };
            let (field, value) = match self.order.get(at).and_then(|known| after_name(line, known))
            {
                Some(known) => known,
                None => self.learn(at, line),
            };
            if let Some(field) = field {
                self.values.last[field] = parse::words(value).next().and_then(parse::u64);
            }
        }
    }

    fn learn<'a>(&mut self, at: usize, line: &'a [u8]) -> (Option<usize>, &'a [u8]) {
        let name_end = line.iter().position(|b| matches!(b, b' ' | b'\t' | b':'));
        let (name, value) = line.split_at(name_end.unwrap_or(line.len()));
        let field = self.values.fields.iter().position(|f| f.name == name);
        self.order.truncate(at);
        self.order.push((name.into(), field));
        (field, value.strip_prefix(b":").unwrap_or(value))
    }

    /// Returns the value of the field `name` in the kernel's unit, if the file had it.
    pub(crate) fn get(&self, name: &[u8]) -> Option<u64> {
        self.values.get(name)
    }

    /// Sets the fact of every field that the file had.
    pub(crate) fn hand_over(&self, facts: &mut Facts, tick: &mut Tick<'_>) {
        self.values.hand_over(facts, tick);
    }
}

/// Returns the field of a line whose name is `known`, and the text after the name.
fn after_name<'a>(
    line: &'a [u8],
    (known, field): &(Box<[u8]>, Option<usize>),
) -> Option<(Option<usize>, &'a [u8])> {
    match line.strip_prefix(&**known)? {
        [b':', value @ ..] => Some((*field, value)),
        value @ ([] | [b' ' | b'\t', ..]) => Some((*field, value)),
        _ => None,
    }
}

/// Two lines of a file that start with the same word: names, then numbers.
pub(crate) struct Columns {
    prefix: &'static [u8],
    values: Values,
    /// The line of names at the time when `slots` was made.
    names: Vec<u8>,
    /// The field of each column, if it has one.
    slots: Vec<Option<usize>>,
}

impl Columns {
    /// Returns the table of the lines that start with `prefix`, of which these fields matter.
    pub(crate) fn new(prefix: &'static str, fields: &'static [Field]) -> Self {
        let prefix = prefix.as_bytes();
        Self { prefix, values: Values::new(fields), names: Vec::new(), slots: Vec::new() }
    }

    /// Reads the file's `text`.
    pub(crate) fn take(&mut self, text: &[u8]) {
        self.values.last.fill(None);
        let mut lines = parse::lines(text).filter_map(|line| line.strip_prefix(self.prefix));
        let (Some(names), Some(numbers)) = (lines.next(), lines.next()) else { return };
        if *self.names != *names {
            let fields = self.values.fields;
            self.names = names.into();
            self.slots = parse::words(names)
                .map(|name| fields.iter().position(|field| field.name == name))
                .collect();
        }
        for (slot, number) in self.slots.iter().zip(parse::words(numbers)) {
            if let Some(field) = *slot {
                self.values.last[field] = parse::u64(number);
            }
        }
    }

    /// Returns the value of the field `name` in the kernel's unit, if the file had it.
    pub(crate) fn get(&self, name: &[u8]) -> Option<u64> {
        self.values.get(name)
    }

    /// Sets the fact of every field that the file had.
    pub(crate) fn hand_over(&self, facts: &mut Facts, tick: &mut Tick<'_>) {
        self.values.hand_over(facts, tick);
    }
}
