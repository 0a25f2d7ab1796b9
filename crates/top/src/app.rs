//! The state of the UI, and its changes by keys. Pure: no terminal, no clock.

use skopos_model::Topic;

use crate::cursor::Cursor;
use crate::data::Data;
use crate::input::Key;
use crate::keys::{self, Action};
use crate::panes::{self, COUNT, PANES, overview};
use crate::table::{Row, Table};

/// The longest filter. Twice the width of an ordinary terminal; a topic has at most 255.
const MAX_FILTER_CHARS: usize = 160;

/// The meaning of the keys at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    #[default]
    Normal,
    /// The filter's line is being typed.
    Filter,
    /// The help page is shown, scrolled down by this number of lines.
    Help(usize),
}

/// The effect of a key on the main loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Stay,
    Suspend,
    Quit,
}

#[derive(Debug, Default)]
pub(crate) struct App {
    pub mode: Mode,
    pub paused: bool,
    pane: usize,
    cursors: [Cursor; COUNT],
    /// The current pane's rows, filtered and sorted.
    pub table: Table,
}

impl App {
    /// Starts at the overview, or with a filter at the topics.
    pub(crate) fn new(filter: Option<&str>) -> Self {
        let mut app = Self::default();
        for (cursor, pane) in app.cursors.iter_mut().zip(&PANES) {
            cursor.sort = pane.first_sort;
        }
        if let Some(filter) = filter {
            app.pane = panes::TOPICS;
            app.cursor_mut().filter = filter.chars().take(MAX_FILTER_CHARS).collect();
        }
        app
    }

    /// Index into [`PANES`].
    pub(crate) fn pane(&self) -> usize {
        self.pane
    }

    pub(crate) fn cursor(&self) -> &Cursor {
        &self.cursors[self.pane]
    }

    pub(crate) fn cursor_mut(&mut self) -> &mut Cursor {
        &mut self.cursors[self.pane]
    }

    pub(crate) fn chosen(&self) -> Option<&Row> {
        self.table.rows.get(self.cursor().index)
    }

    /// Makes the current pane's table from new data, and finds the chosen row in it.
    pub(crate) fn update(&mut self, data: &Data) {
        let cursor = &mut self.cursors[self.pane];
        self.table = (PANES[self.pane].table)(data);
        self.table.filter(&cursor.filter);
        self.table.sort(cursor.sort, cursor.reverse);
        let rows = &self.table.rows;
        let found = cursor.id.as_ref().and_then(|id| rows.iter().position(|r| r.id == *id));
        cursor.index = found.unwrap_or(cursor.index).min(rows.len().saturating_sub(1));
        cursor.id = rows.get(cursor.index).map(|r| r.id.clone());
    }

    /// The topics whose history the screen shows.
    pub(crate) fn histories(&self, data: &Data) -> Vec<Topic> {
        if self.pane == panes::OVERVIEW {
            overview::histories(data)
        } else {
            self.chosen().and_then(|row| row.topic.clone()).into_iter().collect()
        }
    }

    /// True if the screen shows answers of the agent.
    pub(crate) fn asks(&self) -> bool {
        PANES[self.pane].asks
    }

    /// True if the screen shows processes.
    pub(crate) fn scans(&self) -> bool {
        self.pane == panes::PROCESSES
    }

    /// Executes the action of `key`. The caller then calls [`App::update`].
    pub(crate) fn handle(&mut self, key: Key) -> Effect {
        // Leaving works everywhere.
        if key == Key::Control('c') {
            return Effect::Quit;
        }
        match self.mode {
            Mode::Filter => self.edit_filter(key),
            Mode::Help(line) => self.mode = turn_help(key, line),
            Mode::Normal => {
                // In the pane that has it, a key that chooses an order has no other meaning.
                let sort_keys = PANES[self.pane].sort_keys;
                if let Some((_, sort)) = sort_keys.iter().find(|(c, _)| key == Key::Char(*c)) {
                    let cursor = self.cursor_mut();
                    (cursor.sort, cursor.reverse) = (*sort, false);
                    return Effect::Stay;
                }
                if let Some(action) = keys::action(key) {
                    return self.act(action);
                }
            }
        }
        Effect::Stay
    }

    fn act(&mut self, action: Action) -> Effect {
        let page = self.cursor().page.max(1);
        match action {
            Action::Pane(index) => self.pane = index.min(COUNT - 1),
            Action::NextPane => self.pane = (self.pane + 1) % COUNT,
            Action::PreviousPane => self.pane = (self.pane + COUNT - 1) % COUNT,
            Action::Up => self.choose(self.cursor().index.saturating_sub(1)),
            Action::Down => self.choose(self.cursor().index + 1),
            Action::PageUp => self.choose(self.cursor().index.saturating_sub(page)),
            Action::PageDown => self.choose(self.cursor().index + page),
            Action::First => self.choose(0),
            Action::Last => self.choose(usize::MAX),
            Action::Filter => {
                // The overview does not have rows to choose from: the filter searches all topics.
                if self.pane == panes::OVERVIEW {
                    self.pane = panes::TOPICS;
                }
                self.mode = Mode::Filter;
            }
            Action::ClearFilter => self.cursor_mut().filter.clear(),
            Action::Sort => {
                let sorts = self.table.sorts().max(1);
                let cursor = self.cursor_mut();
                (cursor.sort, cursor.reverse) = ((cursor.sort + 1) % sorts, false);
            }
            Action::Reverse => self.cursor_mut().reverse ^= true,
            Action::Pause => self.paused ^= true,
            Action::Help => self.mode = Mode::Help(0),
            Action::Suspend => return Effect::Suspend,
            Action::Quit => return Effect::Quit,
            Action::Ignore => {}
        }
        Effect::Stay
    }

    fn choose(&mut self, index: usize) {
        let index = index.min(self.table.rows.len().saturating_sub(1));
        let id = self.table.rows.get(index).map(|r| r.id.clone());
        let cursor = self.cursor_mut();
        (cursor.index, cursor.id) = (index, id);
    }

    fn edit_filter(&mut self, key: Key) {
        let filter = &mut self.cursors[self.pane].filter;
        match key {
            Key::Char(c) if filter.chars().count() < MAX_FILTER_CHARS => filter.push(c),
            Key::Backspace => {
                filter.pop();
            }
            Key::Control('u') => filter.clear(),
            Key::Enter => self.mode = Mode::Normal,
            Key::Escape => {
                filter.clear();
                self.mode = Mode::Normal;
            }
            Key::Up => self.choose(self.cursor().index.saturating_sub(1)),
            Key::Down => self.choose(self.cursor().index + 1),
            _ => {}
        }
    }
}

/// Scrolls the help page if it is longer than the screen; any other key closes it.
fn turn_help(key: Key, line: usize) -> Mode {
    match keys::action(key) {
        Some(Action::Up) => Mode::Help(line.saturating_sub(1)),
        Some(Action::Down) => Mode::Help((line + 1).min(keys::BINDINGS.len())),
        _ => Mode::Normal,
    }
}
