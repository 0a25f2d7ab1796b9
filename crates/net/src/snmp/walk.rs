//! Reads columns of tables with GETBULK, within bounds. It has no socket and no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::oid::Oid;
use super::pdu::{Request, Response, TOO_BIG};
use super::unknown::{Reading, Unknown};
use super::value::Value;

/// The most rows of a column. A large chassis has 3,300 interfaces.
pub const MAX_ROWS: usize = 4096;

/// The most columns of a request, and the most values of its response: about 1,400 bytes, a packet of Ethernet.
const COLUMNS: usize = 8;
const VALUES: usize = 40;

/// The most parts of an index that is kept. Those of the tables that are read have one.
const MAX_INDEX_PARTS: usize = 4;

/// The index of a row.
pub(super) type Index = Vec<u32>;

/// Some columns of tables.
#[derive(Debug)]
pub(super) struct Walk {
    columns: Vec<Column>,
    /// The columns of the request that waits.
    asked: Vec<usize>,
    values: usize,
    width: usize,
}

#[derive(Debug)]
struct Column {
    base: &'static [u32],
    cells: BTreeMap<Index, Cell>,
    last: Oid,
    /// The way in which the column ended; `None` while it is read.
    end: Option<Unknown>,
}

/// A value and the time at which it came.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) value: Value,
    pub(super) at: Duration,
}

impl Walk {
    /// Begins to read columns.
    pub(super) fn new(bases: &[&'static [u32]]) -> Self {
        let column = |base: &&'static [u32]| Column {
            base,
            cells: BTreeMap::new(),
            last: (*base).into(),
            end: None,
        };
        let columns = bases.iter().map(column).collect();
        Self { columns, asked: Vec::new(), values: VALUES, width: COLUMNS }
    }

    /// Returns the next request; `None` at the end.
    pub(super) fn request(&mut self) -> Option<Request> {
        let open = self.columns.iter().enumerate().filter(|(_, column)| column.end.is_none());
        self.asked = open.map(|(at, _)| at).take(self.width).collect();
        if self.asked.is_empty() {
            return None;
        }
        let oids = self.asked.iter().map(|at| self.columns[*at].last.clone()).collect();
        let repetitions = (self.values / self.asked.len()).clamp(1, 255) as u8;
        Some(Request { oids, repetitions: Some(repetitions) })
    }

    /// Takes the response to the last request.
    pub(super) fn take(&mut self, response: Response, at: Duration) {
        if response.error == TOO_BIG && (self.values > 1 || self.width > 1) {
            (self.values, self.width) = ((self.values / 2).max(1), (self.width / 2).max(1));
            return;
        }
        let asked = std::mem::take(&mut self.asked);
        if response.error != 0 {
            let place = usize::try_from(response.error_index).ok().and_then(|i| i.checked_sub(1));
            let only = place.map(|place| place % asked.len().max(1)).and_then(|i| asked.get(i));
            for column in only.map_or(&*asked, std::slice::from_ref) {
                self.columns[*column].end = Some(Unknown::Refused(response.error));
            }
            return;
        }
        if response.bindings.is_empty() {
            for column in &asked {
                self.columns[*column].end = Some(Unknown::WrongType);
            }
        }
        for ((oid, value), column) in response.bindings.into_iter().zip(asked.iter().cycle()) {
            self.columns[*column].take(oid, value, at);
        }
    }

    /// Ends the columns that are still read.
    pub(super) fn fail(&mut self, why: Unknown) {
        for column in self.columns.iter_mut().filter(|column| column.end.is_none()) {
            column.end = Some(why);
        }
    }

    /// Returns the indices of the first [`MAX_ROWS`] rows: each column has at most so many, and a hostile device gives each
    /// column other ones.
    pub(super) fn rows(&self) -> BTreeSet<&Index> {
        let all: BTreeSet<&Index> =
            self.columns.iter().flat_map(|column| column.cells.keys()).collect();
        all.into_iter().take(MAX_ROWS).collect()
    }

    /// Returns true if there is a row.
    pub(super) fn has_rows(&self) -> bool {
        self.columns.iter().any(|column| !column.cells.is_empty())
    }

    /// Returns a cell.
    pub(super) fn cell(&self, column: usize, row: &[u32]) -> Reading<&Cell> {
        let column = self.columns.get(column).ok_or(Unknown::NotOffered)?;
        column.cells.get(row).ok_or(column.end.unwrap_or(Unknown::NoAnswer))
    }

    /// Returns a number that is not negative.
    pub(super) fn unsigned(&self, column: usize, row: &[u32]) -> Reading<u64> {
        self.cell(column, row)?.value.unsigned().ok_or(Unknown::WrongType)
    }

    /// Returns an integer.
    pub(super) fn integer(&self, column: usize, row: &[u32]) -> Reading<i32> {
        match self.cell(column, row)?.value {
            Value::Integer(number) => Ok(number),
            _ => Err(Unknown::WrongType),
        }
    }

    /// Returns a text without control characters.
    pub(super) fn text(&self, column: usize, row: &[u32]) -> Reading<String> {
        text(&self.cell(column, row)?.value)
    }

    /// Returns the fault with which the first faulty column ended.
    pub(super) fn fault(&self) -> Option<Unknown> {
        self.columns.iter().filter_map(|column| column.end).find(|end| *end != Unknown::NotOffered)
    }
}

/// Returns a value as a text without control characters.
pub(super) fn text(value: &Value) -> Reading<String> {
    let Value::Octets(bytes) = value else {
        return Err(Unknown::WrongType);
    };
    let text = String::from_utf8_lossy(bytes);
    // DisplayString and SnmpAdminString have at most 255 bytes.
    Ok(text.chars().filter(|c| !c.is_control()).take(255).collect::<String>().trim().to_owned())
}

impl Column {
    fn take(&mut self, oid: Oid, value: Value, at: Duration) {
        if self.end.is_some() {
            return;
        }
        let index = match oid.below(self.base) {
            Some(index) if value != Value::EndOfMib => index.to_vec(),
            // A column without an end has no fault: what it lacks, the device does not offer.
            _ => return self.end = Some(Unknown::NotOffered),
        };
        if oid <= self.last {
            self.end = Some(Unknown::NotIncreasing);
        } else if self.cells.len() == MAX_ROWS {
            self.end = Some(Unknown::TooManyRows);
        } else if index.len() > MAX_INDEX_PARTS {
            self.end = Some(Unknown::WrongType);
        } else {
            self.last = oid;
            if value.is_there() {
                self.cells.insert(index, Cell { value, at });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &[u32] = &[1, 3, 1];
    const B: &[u32] = &[1, 3, 2];

    fn oid(parts: &[u32]) -> Oid {
        Oid::new(parts).expect("few parts")
    }

    fn response(bindings: &[(&[u32], i32)]) -> Response {
        let bindings = bindings.iter().map(|(parts, n)| (oid(parts), Value::Integer(*n))).collect();
        Response { is_report: false, id: 0, error: 0, error_index: 0, bindings }
    }

    #[test]
    fn columns_with_holes_are_read_to_their_ends() {
        let mut walk = Walk::new(&[A, B]);
        assert_eq!(walk.request().expect("open").oids, [oid(A), oid(B)]);
        let one = response(&[
            (&[1, 3, 1, 1], 11),
            (&[1, 3, 2, 2], 22),
            (&[1, 3, 1, 2], 12),
            (&[1, 3, 3, 1], 0),
        ]);
        walk.take(one, Duration::ZERO);
        // The second column has ended, the first is asked from its last row on.
        assert_eq!(walk.request().expect("open").oids, [oid(&[1, 3, 1, 2])]);
        walk.take(response(&[(&[1, 3, 2, 2], 22)]), Duration::ZERO);
        assert!(walk.request().is_none());
        assert_eq!(walk.rows(), [&vec![1], &vec![2]].into());
        assert_eq!(walk.integer(0, &[1]), Ok(11));
        assert_eq!(walk.integer(1, &[2]), Ok(22));
        assert_eq!(walk.integer(1, &[1]), Err(Unknown::NotOffered));
        assert_eq!(walk.fault(), None);
    }

    #[test]
    fn an_agent_that_does_not_increase_ends_the_walk() {
        for again in [&[1, 3, 1, 5][..], &[1, 3, 1, 4], &[1, 3, 1]] {
            let mut walk = Walk::new(&[A]);
            assert!(walk.request().is_some());
            walk.take(response(&[(&[1, 3, 1, 5], 1), (again, 1)]), Duration::ZERO);
            assert!(walk.request().is_none(), "{again:?}");
            assert_eq!(walk.fault(), Some(Unknown::NotIncreasing));
            assert_eq!(walk.integer(0, &[5]), Ok(1));
            assert_eq!(walk.integer(0, &[6]), Err(Unknown::NotIncreasing));
        }
    }

    #[test]
    fn a_table_without_an_end_is_bounded() {
        let mut walk = Walk::new(&[A]);
        let mut requests = 0;
        while walk.request().is_some() {
            let first = requests * 40;
            let rows: Vec<[u32; 4]> = (0..40).map(|n| [1, 3, 1, first + n]).collect();
            let bindings: Vec<(&[u32], i32)> = rows.iter().map(|row| (&row[..], 0)).collect();
            walk.take(response(&bindings), Duration::ZERO);
            requests += 1;
        }
        assert_eq!(walk.rows().len(), MAX_ROWS);
        assert_eq!(walk.fault(), Some(Unknown::TooManyRows));
    }

    #[test]
    fn refusals_end_columns_and_too_big_asks_for_less() {
        let mut walk = Walk::new(&[A, B]);
        assert_eq!(walk.request().expect("open").repetitions, Some(20));
        let refusal = |error, error_index| Response { error, error_index, ..response(&[]) };
        walk.take(refusal(TOO_BIG, 0), Duration::ZERO);
        assert_eq!(walk.request().expect("open").repetitions, Some(10));
        walk.take(refusal(5, 2), Duration::ZERO);
        assert_eq!(walk.request().expect("one column").oids.len(), 1);
        walk.take(response(&[]), Duration::ZERO);
        assert!(walk.request().is_none());
        assert_eq!(walk.integer(1, &[1]), Err(Unknown::Refused(5)));
        let mut walk = Walk::new(&[A]);
        for _ in 0..20 {
            if walk.request().is_some() {
                walk.take(refusal(TOO_BIG, 0), Duration::ZERO);
            }
        }
        assert_eq!(walk.fault(), Some(Unknown::Refused(TOO_BIG)));
    }
}
