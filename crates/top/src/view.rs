//! The screen: header, line of panes, the pane itself, line of keys, and the help page over it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Widget as _};

use crate::app::{App, Mode};
use crate::data::{Data, Publisher};
use crate::detail;
use crate::draw::{fitting, put, put_right};
use crate::keys::BINDINGS;
use crate::panes::{self, PANES, Pane, findings, overview};
use crate::text;
use crate::theme::Theme;
use skopos_term::format;

/// The size of the smallest useful screen.
pub(crate) const MIN_WIDTH: u16 = 40;
pub(crate) const MIN_HEIGHT: u16 = 10;

/// Rows of the screen outside the pane: header, line of panes, line of keys.
const FRAME_ROWS: u16 = 3;

/// Draws the whole screen.
pub(crate) fn draw(app: &mut App, data: &Data, theme: Theme, buffer: &mut Buffer) {
    let area = buffer.area;
    if area.width < MIN_WIDTH || area.height < MIN_HEIGHT {
        put(buffer, area, 0, &Line::raw("too small"));
        let needed = format!("needs {MIN_WIDTH}x{MIN_HEIGHT}, q leaves");
        put(buffer, area, 1, &Line::raw(needed));
        return;
    }
    let row = |y: u16| Rect { y, height: 1, ..area };
    header(app, data, theme, buffer, row(0));
    tabs(app, theme, buffer, row(1));
    let pane = Rect { y: 2, height: area.height - FRAME_ROWS, ..area };
    if app.pane() == panes::OVERVIEW {
        overview::draw(data, theme, buffer, pane);
    } else {
        draw_pane(app, data, theme, buffer, pane);
    }
    key_line(app, theme, buffer, row(area.height - 1));
    if let Mode::Help(line) = app.mode {
        help(theme, line, buffer, area);
    }
    if !theme.unicode {
        to_ascii(buffer);
    }
}

/// Replaces the characters that the terminal cannot show; units and texts of users may have any.
fn to_ascii(buffer: &mut Buffer) {
    for cell in buffer.content.iter_mut().filter(|cell| !cell.symbol().is_ascii()) {
        let replacement = match cell.symbol() {
            "µ" => "u",
            "°" => " ",
            _ => "?",
        };
        cell.set_symbol(replacement);
    }
}

/// Draws the agent, the age of the data, and the time of day.
fn header(app: &App, data: &Data, theme: Theme, buffer: &mut Buffer, area: Rect) {
    let clock = format::time_of_day(data.now);
    let mut right = Vec::new();
    if app.paused {
        right.push(Span::styled(" PAUSED ", theme.chosen().patch(theme.strong())));
    }
    right.push(Span::raw(format!("  {} UTC ", clock.get(..8).unwrap_or(&clock))));
    let right = Line::from(right);
    let dot = theme.dot();
    let node = if data.node.is_empty() { "skopos" } else { &data.node };
    let mut groups = vec![vec![Span::styled(format!(" {node}"), theme.strong())]];
    groups.push(match data.agent() {
        Some(agent) => agent_spans(agent, data, theme),
        None => vec![Span::styled(format!("{dot}! no publisher"), theme.warning())],
    });
    if let Some(marker) = findings::marker(data) {
        groups.push(vec![Span::styled(format!("{dot}{marker}"), theme.warning())]);
    }
    if let Some(age) = data.age() {
        groups.push(vec![Span::raw(format!("{dot}{} old", text::age(age)))]);
    }
    groups.push(vec![Span::raw(format!("{dot}{} facts", data.facts.len()))]);
    if let Some(trouble) = &data.trouble {
        groups.push(vec![Span::styled(format!("{dot}! {trouble}"), theme.warning())]);
    }
    let room = usize::from(area.width).saturating_sub(right.width());
    put(buffer, area, 0, &Line::from(fitting(groups, room)));
    put_right(buffer, area, 0, &right);
}

/// Name and process id of the agent, and whether it is alive.
fn agent_spans(agent: &Publisher, data: &Data, theme: Theme) -> Vec<Span<'static>> {
    let name = format!("{}{} {}", theme.dot(), agent.name, agent.pid);
    let state = match agent.gone_at {
        Some(at) => {
            let at = format::time_of_day(at);
            format!("! gone since {}, looking for another", at.get(..8).unwrap_or(&at))
        }
        None if data.is_lost(agent) => format!("! silent for {}", text::age(agent.silent_for)),
        None => return vec![Span::raw(name)],
    };
    vec![Span::styled(format!("{name} {state}"), theme.warning())]
}

/// Draws the panes, with the current one marked; names that do not fit are left out.
fn tabs(app: &App, theme: Theme, buffer: &mut Buffer, area: Rect) {
    let is_current = |pane: &Pane| std::ptr::eq(pane, &PANES[app.pane()]);
    // The width of the line with the names of all ranks up to this one.
    let width_up_to = |rank: u8| -> usize {
        let named = |pane: &Pane| pane.rank <= rank || is_current(pane);
        PANES.iter().map(|pane| 2 + if named(pane) { pane.name.len() + 1 } else { 0 }).sum()
    };
    let ranks = 0..=PANES.iter().map(|pane| pane.rank).max().unwrap_or(0);
    let fits = |rank: &u8| width_up_to(*rank) < area.width.into();
    let most = ranks.take_while(fits).last();
    let mut spans = Vec::new();
    for pane in &PANES {
        let named = is_current(pane) || most.is_some_and(|most| pane.rank <= most);
        let name = if named { format!(" {}", pane.name) } else { String::new() };
        let style = if is_current(pane) { theme.chosen() } else { theme.quiet() };
        spans.push(Span::raw(" "));
        spans.push(Span::styled(format!("{}{name}", pane.key), style));
    }
    put(buffer, area, 0, &Line::from(spans));
}

fn key_line(app: &App, theme: Theme, buffer: &mut Buffer, area: Rect) {
    let cursor = app.cursor();
    let rows = app.table.rows.len();
    let key = |key: &str, what: &str| {
        vec![
            Span::styled(format!(" {key} "), theme.strong()),
            Span::styled(format!("{what} "), theme.quiet()),
        ]
    };
    let filter = Span::styled(format!(" /{}", cursor.filter), theme.strong());
    let count = Span::raw(format!("  {rows} of {} rows ", app.table.unfiltered));
    let mut groups = Vec::new();
    if app.mode == Mode::Filter {
        groups.push(vec![filter, Span::styled(" ", theme.chosen()), count]);
        groups.extend([key("Enter", "keep"), key("Esc", "show all")]);
    } else if !cursor.filter.is_empty() {
        groups.push(vec![filter, count]);
        groups.extend([key("Esc", "show all"), key("/", "change"), key("?", "help")]);
    } else if app.pane() == panes::OVERVIEW {
        let keys = [key("?", "help"), key("q", "leave"), key("0-9 i f", "pane")];
        groups.extend(keys.into_iter().chain([key("/", "find a topic"), key("p", "pause")]));
    } else {
        let sort = format!("sort: {}", app.table.sorted_by());
        let keys =
            [key("?", "help"), key("q", "leave"), key("0-9 i f", "pane"), key("/", "filter")];
        groups.extend(keys.into_iter().chain([key("s", &sort), key("p", "pause")]));
    }
    let place = if rows > 0 { format!(" {}/{rows} ", cursor.index + 1) } else { String::new() };
    let room = usize::from(area.width).saturating_sub(place.len());
    // A long filter is cut and not left out, because the user is typing it.
    let first = groups.first().map_or(0, |group| group.iter().map(Span::width).sum::<usize>());
    put(buffer, area, 0, &Line::from(fitting(groups, room.max(first))));
    put_right(buffer, area, 0, &Line::styled(place, theme.quiet()));
}

/// Draws a pane other than the overview: summary, table, and the history of the chosen row.
fn draw_pane(app: &mut App, data: &Data, theme: Theme, buffer: &mut Buffer, area: Rect) {
    let lines = (PANES[app.pane()].summary)(data, theme, area.width.into());
    // At least half of the rows are for the table.
    let room = area.height / 2;
    let shown = (lines.len() as u16).min(room);
    for (row, line) in lines.iter().take(shown.into()).enumerate() {
        put(buffer, area, row as u16, line);
    }
    let gap = u16::from(shown > 0 && area.height > 16);
    let below =
        Rect { y: area.y + shown + gap, height: area.height.saturating_sub(shown + gap), ..area };
    if app.table.unfiltered == 0 {
        let text = format!("  {}", PANES[app.pane()].empty);
        put(buffer, below, 1, &Line::styled(text, theme.quiet()));
        return;
    }
    if app.table.rows.is_empty() {
        let text = format!("  No row contains `{}`. Esc shows all.", app.cursor().filter);
        put(buffer, below, 1, &Line::styled(text, theme.quiet()));
        return;
    }
    let row = app.chosen().filter(|row| row.topic.is_some() || row.note.is_some()).cloned();
    let detail_rows = if row.is_some() { detail::rows(below.height) } else { 0 };
    let table_rows = below.height - detail_rows;
    let table = std::mem::take(&mut app.table);
    let place = Rect { height: table_rows, ..below };
    table.draw(buffer, place, theme, Some(app.cursor_mut()));
    app.table = table;
    if let Some(row) = row {
        let place = Rect { y: below.y + table_rows, height: detail_rows, ..below };
        detail::draw(data, &row, theme, buffer, place);
    }
}

/// Draws the help page with all bindings.
fn help(theme: Theme, first: usize, buffer: &mut Buffer, area: Rect) {
    let labels = BINDINGS.iter().map(|b| b.label.len()).max().unwrap_or(0);
    let helps = BINDINGS.iter().map(|b| b.help.len()).max().unwrap_or(0);
    let mut lines: Vec<Line<'_>> = BINDINGS
        .iter()
        .map(|binding| {
            let label = text::fit(binding.label, labels, false, "");
            Line::from(vec![
                Span::styled(format!(" {label}  "), theme.strong()),
                Span::raw(binding.help),
            ])
        })
        .collect();
    let notes = [
        "`!` marks stale values: too old, or the publisher",
        "is silent or gone. `~` marks a predicted value.",
    ];
    lines.push(Line::default());
    lines.extend(notes.map(|note| Line::styled(format!(" {note}"), theme.quiet())));
    let width = (labels + helps + 6).max(54).min(area.width.into()) as u16;
    let height = (lines.len() + 2).min(area.height.into()) as u16;
    let page = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    Clear.render(page, buffer);
    let border = if theme.unicode { ratatui::symbols::border::PLAIN } else { ASCII_BORDER };
    let hidden = lines.len().saturating_sub(usize::from(height) - 2);
    let title = if hidden > 0 { " keys (Up and Down scroll) " } else { " keys (any key closes) " };
    let block = Block::bordered().border_set(border).title(title).style(Style::reset());
    let inner = block.inner(page);
    block.render(page, buffer);
    for (row, line) in lines.iter().skip(first.min(hidden)).enumerate() {
        put(buffer, inner, row as u16, line);
    }
}

const ASCII_BORDER: ratatui::symbols::border::Set<'_> = ratatui::symbols::border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};
