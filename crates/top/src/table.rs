//! Tables: rows that can be filtered, sorted, scrolled, and drawn into whatever room there is.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use skopos_model::Topic;

use super::app::Cursor;
use super::data::natural;
use super::draw::{meter, put};
use super::text::{self, fit};
use super::theme::Theme;

/// The narrowest that a name is cut to.
const MIN_NAME: usize = 8;
/// Names longer than this are cut before columns are left out, unless a table says otherwise.
const WISHED_NAME: usize = 24;
/// Blanks between columns, at least and at most.
const MIN_GAP: usize = 1;
const MAX_GAP: usize = 3;
/// The widest that a column with a meter grows.
const MAX_METER: usize = 40;

/// One column after the first, which has the rows' names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub title: &'static str,
    pub width: usize,
    pub align: Align,
    /// Where there is no room for all, those with the greatest number go first.
    pub rank: u8,
    /// Whether `s` sorts by it.
    pub sorts: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
    /// Takes the room that is left: a meter or a text.
    Fill,
}

/// A column of numbers, that rows can be sorted by.
pub(crate) const fn number(title: &'static str, width: usize, rank: u8) -> Column {
    Column { title, width, align: Align::Right, rank, sorts: true }
}

/// A column that takes the room that is left.
pub(crate) const fn fill(title: &'static str, width: usize, rank: u8) -> Column {
    Column { title, width, align: Align::Fill, rank, sorts: false }
}

/// A column of text.
pub(crate) const fn words(title: &'static str, width: usize, rank: u8) -> Column {
    Column { title, width, align: Align::Left, rank, sorts: false }
}

#[derive(Clone, Debug)]
pub(crate) enum Cell {
    /// A text, and the number to sort by.
    Text(String, Option<f64>),
    /// A text that stands where there is no value.
    Quiet(String),
    /// A share from 0 to 1.
    Meter(Option<f64>),
}

impl Cell {
    /// A number and how it reads.
    pub(crate) fn number(number: Option<f64>, show: fn(Option<f64>) -> String) -> Self {
        Self::Text(show(number), number)
    }

    pub(crate) fn words(text: impl Into<String>) -> Self {
        Self::Text(text.into(), None)
    }

    fn is_known(&self) -> bool {
        match self {
            Self::Text(text, _) => !text.is_empty() && text != text::UNKNOWN,
            Self::Quiet(text) => !text.is_empty(),
            Self::Meter(ratio) => ratio.is_some(),
        }
    }

    fn order(&self) -> f64 {
        match self {
            Self::Text(_, number) => number.unwrap_or(f64::NEG_INFINITY),
            Self::Quiet(_) => f64::NEG_INFINITY,
            Self::Meter(ratio) => ratio.unwrap_or(f64::NEG_INFINITY),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// What the row is called.
    pub key: String,
    /// What it is found again by: as it is called, unless others are called the same.
    pub id: String,
    /// One for each column.
    pub cells: Vec<Cell>,
    /// The topic whose history the pane shows when the row is chosen.
    pub topic: Option<Topic>,
    /// What else is to be said when the row is chosen.
    pub note: Option<String>,
    pub stale: bool,
}

impl Row {
    /// A row without a history.
    pub(crate) fn new(key: String, cells: Vec<Cell>) -> Self {
        Self { id: key.clone(), key, cells, topic: None, note: None, stale: false }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// Heading of the first column.
    pub title: &'static str,
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
    /// How many rows there are without the filter.
    pub unfiltered: usize,
    /// How much of a name must be seen before columns get room.
    pub wished_name: usize,
    /// What is sorted by: 0 for the name, else the column before this one.
    sorted_by: usize,
    reversed: bool,
}

impl Table {
    /// Leaves out columns that no row has anything in: what a machine does not measure.
    pub(crate) fn new(title: &'static str, columns: &[Column], mut rows: Vec<Row>) -> Self {
        let unfiltered = rows.len();
        let is_used = |c: usize| rows.iter().any(|r| r.cells.get(c).is_some_and(Cell::is_known));
        let used: Vec<bool> = (0..columns.len()).map(is_used).collect();
        let columns: Vec<Column> =
            (0..columns.len()).filter(|&c| used[c]).map(|c| columns[c]).collect();
        for row in &mut rows {
            let mut used = used.iter();
            row.cells.retain(|_| used.next().copied().unwrap_or(false));
        }
        Self { title, columns, rows, unfiltered, wished_name: WISHED_NAME, ..Self::default() }
    }

    /// In how many ways the rows can be sorted.
    pub(crate) fn sorts(&self) -> usize {
        1 + self.columns.iter().filter(|c| c.sorts).count()
    }

    /// What the rows are sorted by.
    pub(crate) fn sorted_by(&self) -> &'static str {
        self.sorted_by.checked_sub(1).map_or(self.title, |column| self.columns[column].title)
    }

    /// Keeps the rows whose name or topic holds `text`, whatever its case.
    pub(crate) fn filter(&mut self, text: &str) {
        let text = text.to_lowercase();
        self.rows.retain(|row| {
            let topic = row.topic.as_ref().map_or("", Topic::as_str);
            row.key.to_lowercase().contains(&text) || topic.contains(&text)
        });
    }

    /// Way 0 is the order that the rows came in; the others are by a column, the greatest first.
    pub(crate) fn sort(&mut self, way: usize, reverse: bool) {
        let sorting = self.columns.iter().enumerate().filter(|(_, c)| c.sorts);
        let column = way.checked_sub(1).and_then(|nth| sorting.map(|(i, _)| i).nth(nth));
        self.sorted_by = column.map_or(0, |c| c + 1);
        self.reversed = reverse;
        if let Some(column) = column {
            let order = |row: &Row| row.cells.get(column).map_or(f64::NEG_INFINITY, Cell::order);
            self.rows.sort_by(|a, b| {
                order(b).total_cmp(&order(a)).then_with(|| natural(&a.key, &b.key))
            });
        }
        if reverse {
            self.rows.reverse();
        }
    }

    /// Draws heading and rows; with a cursor the chosen row is marked and kept on the screen,
    /// without one the last line says how many rows did not fit.
    pub(crate) fn draw(
        &self,
        buffer: &mut Buffer,
        area: Rect,
        theme: Theme,
        cursor: Option<&mut Cursor>,
    ) {
        let layout = self.layout(area.width.into(), cursor.is_some());
        put(buffer, area, 0, &self.heading(&layout, theme, cursor.is_some()));
        let room = usize::from(area.height.saturating_sub(1));
        let (offset, shown, chosen) = match cursor {
            Some(cursor) => {
                cursor.page = room;
                cursor.offset = cursor.offset.min(self.rows.len().saturating_sub(room));
                cursor.offset = cursor.offset.min(cursor.index);
                cursor.offset = cursor.offset.max((cursor.index + 1).saturating_sub(room));
                (cursor.offset, room, Some(cursor.index))
            }
            None if self.rows.len() > room => (0, room.saturating_sub(1), None),
            None => (0, room, None),
        };
        for (at, row) in self.rows.iter().enumerate().skip(offset).take(shown) {
            let y = (at - offset + 1) as u16;
            put(buffer, area, y, &self.line(row, &layout, theme));
            if chosen == Some(at) {
                let line = Rect { y: area.y + y, height: 1, ..area };
                buffer.set_style(line.intersection(area), theme.chosen());
            }
        }
        if chosen.is_none() && shown < self.rows.len() && room > 0 {
            let more = format!(" {} {} more", theme.ellipsis(), self.rows.len() - shown);
            put(buffer, area, room as u16, &Line::styled(more, theme.quiet()));
        }
    }

    fn heading(&self, layout: &Layout, theme: Theme, sortable: bool) -> Line<'static> {
        let mark = match (sortable, self.reversed) {
            (false, _) => "",
            (true, false) => "v",
            (true, true) => "^",
        };
        let marked = |title: &str, column: usize| {
            if column == self.sorted_by && (column > 0 || self.reversed) {
                format!("{title} {mark}")
            } else {
                title.to_owned()
            }
        };
        let name = marked(self.title, 0);
        let mut text = format!(" {}", fit(&name, layout.name, false, theme.ellipsis()));
        for &(column, width) in &layout.columns {
            let Column { title, align, .. } = self.columns[column];
            text += &" ".repeat(layout.gap);
            text += &fit(&marked(title, column + 1), width, align == Align::Right, "");
        }
        Line::styled(text, theme.title())
    }

    fn line(&self, row: &Row, layout: &Layout, theme: Theme) -> Line<'static> {
        let style = if row.stale { theme.quiet() } else { Style::new() };
        let sign = if row.stale { "!" } else { " " };
        let name = fit(&row.key, layout.name, false, theme.ellipsis());
        let mut spans = vec![Span::styled(format!("{sign}{name}"), style)];
        for &(column, width) in &layout.columns {
            spans.push(Span::raw(" ".repeat(layout.gap)));
            match row.cells.get(column) {
                Some(Cell::Meter(Some(ratio))) => spans.extend(meter(theme, width, *ratio)),
                Some(Cell::Text(text, _)) => {
                    let right = self.columns[column].align == Align::Right;
                    spans.push(Span::styled(fit(text, width, right, theme.ellipsis()), style));
                }
                Some(Cell::Quiet(text)) => {
                    let text = fit(text, width, false, theme.ellipsis());
                    spans.push(Span::styled(text, theme.quiet()));
                }
                Some(Cell::Meter(None)) | None => spans.push(Span::raw(" ".repeat(width))),
            }
        }
        Line::from(spans)
    }

    /// Which columns fit into `room`, and how wide everything is.
    fn layout(&self, room: usize, sortable: bool) -> Layout {
        let longest = self.rows.iter().map(|r| text::width(&r.key)).max().unwrap_or(0);
        let longest =
            longest.max(text::width(self.title) + if sortable { 2 } else { 0 }).max(MIN_NAME);
        // One column for the sign of stale rows.
        let room = room.saturating_sub(1);
        let mut kept: Vec<usize> = (0..self.columns.len()).collect();
        let width = |kept: &[usize]| -> usize {
            kept.iter().map(|&c| self.columns[c].width + MIN_GAP).sum()
        };
        let wished = longest.min(self.wished_name);
        while width(&kept) + wished > room
            && let Some(at) = (0..kept.len()).max_by_key(|&at| self.columns[kept[at]].rank)
            && self.columns[kept[at]].rank > 0
        {
            kept.remove(at);
        }
        let mut left = room.saturating_sub(width(&kept));
        let name = left.min(longest);
        left -= name;
        let gap = if kept.is_empty() { 0 } else { (left / kept.len()).min(MAX_GAP - MIN_GAP) };
        left -= gap * kept.len();
        let columns = kept.iter().map(|&c| {
            let column = &self.columns[c];
            let is_meter = self.rows.iter().any(|r| matches!(r.cells.get(c), Some(Cell::Meter(_))));
            let most = if is_meter { MAX_METER } else { usize::MAX };
            let grown = if column.align == Align::Fill {
                let grown = (column.width + left).min(most.max(column.width));
                left -= grown - column.width;
                grown
            } else {
                column.width
            };
            (c, grown)
        });
        Layout { name, gap: gap + MIN_GAP, columns: columns.collect() }
    }
}

/// How the columns lie.
struct Layout {
    name: usize,
    gap: usize,
    /// Index and width of those that fit.
    columns: Vec<(usize, usize)>,
}
