//! Files that are tables of named numbers: a name a line ([`Keyed`]), or a line of names above a
//! line of numbers ([`Columns`]).
//!
//! Both remember in which order the kernel lists the names, so that a tick compares each name
//! once; a file that changes its shape is learned anew.

use skopos_model::schema::Metric;

use crate::facts::Facts;
use crate::{Tick, parse};

/// Which number feeds which metric. Fields of one metric stand side by side and are summed.
pub(crate) struct Field {
    /// The kernel's name.
    pub(crate) name: &'static [u8],
    /// What it feeds; a `u64`.
    pub(crate) metric: &'static Metric,
    /// The kernel's unit, in units of the metric.
    pub(crate) scale: u64,
}

/// A field in the kernel's own unit.
pub(crate) const fn plain(name: &'static str, metric: &'static Metric) -> Field {
    scaled(name, metric, 1)
}

/// A field in KiB, for a metric in bytes.
pub(crate) const fn kib(name: &'static str, metric: &'static Metric) -> Field {
    scaled(name, metric, 1024)
}

/// A field whose unit is `scale` units of the metric.
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
            // A number too large for its unit is the kernel's way of saying "no number".
            if let Some(value) = sum.and_then(|n| n.checked_mul(field.scale)) {
                facts.set(tick, field.metric, value);
            }
        }
    }
}

/// A file of lines `name value`, the name possibly followed by a colon.
pub(crate) struct Keyed {
    values: Values,
    /// Each line's name, and its field if it has one.
    order: Vec<(Box<[u8]>, Option<usize>)>,
}

/// The most lines that the order is remembered for: several times those of `/proc/vmstat`.
const MAX_LINES: usize = 1024;

impl Keyed {
    /// A file of which these fields matter.
    pub(crate) fn new(fields: &'static [Field]) -> Self {
        Self { values: Values::new(fields), order: Vec::new() }
    }

    /// Takes the file's `text`, each line less `prefix`.
    pub(crate) fn take(&mut self, text: &[u8], prefix: &[u8]) {
        self.values.last.fill(None);
        for (at, line) in parse::lines(text).take(MAX_LINES).enumerate() {
            // Not for looks: comparing with an empty prefix made this loop three times as dear where
            // it was measured, most likely since memcmp touches the address that it does not have.
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

    /// The value of the field `name` in the kernel's unit, if the file had it.
    pub(crate) fn get(&self, name: &[u8]) -> Option<u64> {
        self.values.get(name)
    }

    /// Hands over every field that the file had.
    pub(crate) fn hand_over(&self, facts: &mut Facts, tick: &mut Tick<'_>) {
        self.values.hand_over(facts, tick);
    }
}

/// The field of a line whose name is `known`, and what follows the name.
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

/// Two lines of a file, both starting with the same word: names, then numbers.
pub(crate) struct Columns {
    prefix: &'static [u8],
    values: Values,
    /// The line of names as it was when `slots` was made.
    names: Vec<u8>,
    /// The field of each column, if it has one.
    slots: Vec<Option<usize>>,
}

impl Columns {
    /// The lines that start with `prefix`, of which these fields matter.
    pub(crate) fn new(prefix: &'static str, fields: &'static [Field]) -> Self {
        let prefix = prefix.as_bytes();
        Self { prefix, values: Values::new(fields), names: Vec::new(), slots: Vec::new() }
    }

    /// Takes the file's `text`.
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

    /// Hands over every field that the file had.
    pub(crate) fn hand_over(&self, facts: &mut Facts, tick: &mut Tick<'_>) {
        self.values.hand_over(facts, tick);
    }
}
