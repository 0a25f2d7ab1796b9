//! Styles and glyphs for the abilities of the terminal.
//!
//! A style never carries meaning alone: a coloured or dimmed text also has a sign or a number.

use ratatui::style::{Color, Modifier, Style};

/// The abilities of the terminal that the user wants to use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    /// Colours, unless `NO_COLOR` is set; without them only bold and reverse are used.
    pub colour: bool,
    /// Block glyphs, in a UTF-8 locale; else ASCII.
    pub unicode: bool,
}

/// A share is high from the first number on, and very high from the second.
const HIGH: f64 = 0.75;
const VERY_HIGH: f64 = 0.9;

impl Theme {
    pub(crate) fn from_environment() -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        let dumb = set("TERM").is_some_and(|term| term == "dumb" || term.starts_with("vt1"));
        // The first variable that is set decides (setlocale(3)).
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        Self {
            colour: std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()) && !dumb,
            unicode: locale.contains("utf-8") || locale.contains("utf8"),
        }
    }

    /// Headings of tables and panes.
    pub(crate) fn title(self) -> Style {
        self.coloured(Style::new().add_modifier(Modifier::BOLD), Color::Cyan)
    }

    /// Labels and help, which must not distract from the numbers.
    pub(crate) fn quiet(self) -> Style {
        if self.colour { Style::new().add_modifier(Modifier::DIM) } else { Style::new() }
    }

    /// Numbers that matter.
    pub(crate) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Warnings; their text begins with `!`.
    pub(crate) fn warning(self) -> Style {
        self.coloured(Style::new().add_modifier(Modifier::BOLD), Color::Yellow)
    }

    /// The chosen row or pane.
    pub(crate) fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// A meter that is full to this ratio.
    pub(crate) fn level(self, ratio: f64) -> Style {
        self.coloured(
            Style::new(),
            match ratio {
                r if r >= VERY_HIGH => Color::Red,
                r if r >= HIGH => Color::Yellow,
                _ => Color::Green,
            },
        )
    }

    /// The parts of the processor's time, in the order of [`Theme::part_glyphs`].
    pub(crate) fn part(self, index: usize) -> Style {
        const COLOURS: [Color; 4] = [Color::Green, Color::Blue, Color::Yellow, Color::Magenta];
        self.coloured(Style::new(), COLOURS[index % COLOURS.len()])
    }

    /// Glyphs that tell the parts of a meter apart without colour.
    pub(crate) fn part_glyphs(self) -> [char; 4] {
        if self.unicode { ['█', '▓', '░', '▒'] } else { ['|', '#', '=', ':'] }
    }

    /// A graph.
    pub(crate) fn graph(self) -> Style {
        self.coloured(Style::new(), Color::Cyan)
    }

    /// Columns of a graph from empty to full.
    pub(crate) fn steps(self) -> &'static [char] {
        const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        const ASCII: [char; 5] = [' ', '.', ':', '|', '#'];
        if self.unicode { &BLOCKS } else { &ASCII }
    }

    /// The unfilled part of a meter.
    pub(crate) fn trough(self) -> char {
        if self.unicode { '·' } else { '.' }
    }

    /// A horizontal rule.
    pub(crate) fn rule(self) -> char {
        if self.unicode { '─' } else { '-' }
    }

    /// Separates the items of a line.
    pub(crate) fn dot(self) -> &'static str {
        if self.unicode { " · " } else { " | " }
    }

    /// The sign at the end of a text that is cut.
    pub(crate) fn ellipsis(self) -> &'static str {
        if self.unicode { "…" } else { "..." }
    }

    fn coloured(self, style: Style, colour: Color) -> Style {
        if self.colour { style.fg(colour) } else { style }
    }
}
