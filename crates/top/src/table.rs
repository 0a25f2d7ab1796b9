//! Tables: rows that can be filtered, sorted, scrolled, and drawn into an area of any size.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use skopos_model::Topic;

use crate::cursor::Cursor;
use crate::data::natural;
use crate::draw::{meter, put};
use crate::text::{self, fit};
use crate::theme::Theme;

/// The least width of a name that is cut.
const MIN_NAME: usize = 8;
/// The width to which names are cut before columns are left out, unless a table sets another.
const WISHED_NAME: usize = 24;
/// The least and the greatest number of blanks between columns.
const MIN_GAP: usize = 1;
const MAX_GAP: usize = 3;
/// The greatest width of a column with a meter.
const MAX_METER: usize = 40;

/// A column after the first; the first has the rows' names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub title: &'static str,
    pub width: usize,
    pub align: Align,
    /// In a narrow terminal, columns with the greatest rank are left out first.
    pub rank: u8,
    /// True if `s` sorts by it.
    pub sorts: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
    /// Takes the room that is left: a meter or a text.
    Fill,
}

/// A column of numbers, by which rows can be sorted.
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
    /// A text in place of a value.
    Quiet(String),
    /// A share from 0 to 1.
    Meter(Option<f64>),
}

impl Cell {
    /// A number and its text.
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
    /// The name of the row.
    pub key: String,
    /// The identity of the row across refreshes: its name, unless other rows have the same.
    pub id: String,
    /// A cell for each column.
    pub cells: Vec<Cell>,
    /// The topic whose history the pane shows when the row is chosen.
    pub topic: Option<Topic>,
    /// Further words for the chosen row.
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
    /// Number of rows without the filter.
    pub unfiltered: usize,
    /// Columns of a name that must be seen before other columns get room.
    pub wished_name: usize,
    /// The order: 0 for the order of [`Table::rows`], else one more than the index of the column.
    sorted_by: usize,
    reversed: bool,
}

impl Table {
    /// A table without the columns that are empty in all rows: the machine does not measure them.
    pub(crate) fn new(title: &'static str, columns: &[Column], mut rows: Vec<Row>) -> Self {
        let is_used = |c: usize| rows.iter().any(|r| r.cells.get(c).is_some_and(Cell::is_known));
        let used: Vec<bool> = (0..columns.len()).map(is_used).collect();
        let columns: Vec<Column> =
            (0..columns.len()).filter(|&c| used[c]).map(|c| columns[c]).collect();
        for row in &mut rows {
            let mut used = used.iter();
            row.cells.retain(|_| used.next().copied().unwrap_or(false));
        }
        Self::with_all_columns(title, &columns, rows)
    }

    /// A table with all columns, so that each order keeps its number.
    pub(crate) fn with_all_columns(
        title: &'static str,
        columns: &[Column],
        rows: Vec<Row>,
    ) -> Self {
        let (columns, unfiltered) = (columns.to_vec(), rows.len());
        Self { title, columns, rows, unfiltered, wished_name: WISHED_NAME, ..Self::default() }
    }

    /// Number of orders in which the rows can be sorted.
    pub(crate) fn sorts(&self) -> usize {
        1 + self.columns.iter().filter(|c| c.sorts).count()
    }

    /// The title of the column by which the rows are sorted.
    pub(crate) fn sorted_by(&self) -> &'static str {
        self.sorted_by.checked_sub(1).map_or(self.title, |column| self.columns[column].title)
    }

    /// Keeps the rows with `text` in the name or the topic; upper and lower case are the same.
    pub(crate) fn filter(&mut self, text: &str) {
        let text = text.to_lowercase();
        self.rows.retain(|row| {
            let topic = row.topic.as_ref().map_or("", Topic::as_str);
            row.key.to_lowercase().contains(&text) || topic.contains(&text)
        });
    }

    /// Order 0 keeps the rows as they are; the other orders sort by a column, the greatest first.
    pub(crate) fn sort(&mut self, order: usize, reverse: bool) {
        let sorting = self.columns.iter().enumerate().filter(|(_, c)| c.sorts);
        let column = order.checked_sub(1).and_then(|nth| sorting.map(|(i, _)| i).nth(nth));
        self.sorted_by = column.map_or(0, |c| c + 1);
        self.reversed = reverse;
        if let Some(column) = column {
            let rank = |row: &Row| row.cells.get(column).map_or(f64::NEG_INFINITY, Cell::order);
            self.rows
                .sort_by(|a, b| rank(b).total_cmp(&rank(a)).then_with(|| natural(&a.key, &b.key)));
        }
        if reverse {
            self.rows.reverse();
        }
    }

    /// Draws heading and rows. With a cursor, the chosen row is marked and kept on the screen.
    /// Without, the last line says how many rows did not fit.
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

    /// The columns that fit into `room`, and all widths.
    fn layout(&self, room: usize, sortable: bool) -> Layout {
        let longest = self.rows.iter().map(|r| text::width(&r.key)).max().unwrap_or(0);
        let longest =
            longest.max(text::width(self.title) + if sortable { 2 } else { 0 }).max(MIN_NAME);
        // A blank for the sign of stale rows.
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

/// The place of the columns.
struct Layout {
    name: usize,
    gap: usize,
    /// Index and width of each column that fits.
    columns: Vec<(usize, usize)>,
}
