//! All topics: value, growth, age, and publisher.

use super::parts::{name, rate, value};
use crate::data::{Data, Fact};
use crate::table::{Cell, Column, Row, Table, number, words};
use crate::text;

/// The width of a topic: more room for topics than for the columns behind them.
const WISHED_NAME: usize = 40;

const COLUMNS: [Column; 5] = [
    number("value", 12, 0),
    number("growth", 11, 0),
    number("age", 5, 0),
    words("unit", 8, 2),
    words("publisher", 12, 3),
];

pub(super) fn table(data: &Data) -> Table {
    topics(data, data.facts.iter())
}

/// The facts of users and applications; the newest first if there are more than `room`.
pub(super) fn published(data: &Data, room: usize) -> Table {
    let mut facts: Vec<&Fact> = data.published().collect();
    if facts.len() > room {
        facts.sort_by_key(|fact| std::cmp::Reverse(fact.since));
    }
    let mut table = topics(data, facts.into_iter());
    table.title = "published";
    table
}

fn topics<'a>(data: &'a Data, facts: impl Iterator<Item = &'a Fact>) -> Table {
    let rows = facts.map(|fact| {
        let age = fact.value.as_ref().map(|_| fact.age);
        let publisher = data.publishers.get(fact.publisher);
        let cells = vec![
            Cell::Text(value(fact), fact.number()),
            Cell::Text(rate(fact), fact.rate),
            Cell::Text(age.map_or_else(String::new, text::age), age.map(|a| a.as_secs_f64())),
            Cell::words(fact.unit.as_str()),
            Cell::words(publisher.map_or("", |p| p.name.as_str())),
        ];
        let mut row = Row::new(name(data, fact), cells);
        (row.topic, row.stale) = (Some(fact.topic.clone()), fact.stale);
        row
    });
    let mut table = Table::new("topic", &COLUMNS, rows.collect());
    table.wished_name = WISHED_NAME;
    table
}
