//! Data to stdout: for people, for scripts (`--plain`) or as JSON.

use std::io::{self, BufWriter, IsTerminal as _, Write};

use serde::Serialize;

/// What the output is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Aligned columns, values in readable units.
    Human,
    /// One record a line, fields between tabs, values as they are.
    Plain,
    /// JSON.
    Json,
}

/// Standard output. Every write may fail with a broken pipe, which ends the verb in peace.
pub struct Out {
    pub style: Style,
    colour: bool,
    writer: BufWriter<Box<dyn Write + Send>>,
}

impl Out {
    /// Colour only on a terminal, and only if nobody objects.
    pub fn new(style: Style) -> Self {
        let stdout = io::stdout();
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        let colour = style == Style::Human && wanted && stdout.is_terminal();
        Self { style, colour, writer: BufWriter::new(Box::new(stdout)) }
    }

    /// The same style and colour, written to `writer`, such as the input of a pager.
    pub fn redirected(&self, writer: Box<dyn Write + Send>) -> Self {
        Self { style: self.style, colour: self.colour, writer: BufWriter::new(writer) }
    }

    /// One line of text.
    pub fn line(&mut self, text: impl AsRef<str>) -> io::Result<()> {
        self.writer.write_all(text.as_ref().as_bytes())?;
        self.writer.write_all(b"\n")
    }

    /// For what writes by itself.
    pub fn writer(&mut self) -> &mut impl Write {
        &mut self.writer
    }

    /// One JSON document on one line.
    pub fn json(&mut self, document: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.writer, document)?;
        self.writer.write_all(b"\n")
    }

    /// Hands everything to the reader now.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    /// `text` in bold, where there is colour.
    pub fn bold(&self, text: &str) -> String {
        self.paint("1", text)
    }

    /// `text` dimmed, where there is colour.
    pub fn dim(&self, text: &str) -> String {
        self.paint("2", text)
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Rows in aligned columns, the last one free; the columns in `right` are aligned right.
    pub fn table(&mut self, rows: &[Vec<String>], right: &[usize]) -> io::Result<()> {
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |c: usize| {
            rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in rows {
            let mut line = String::new();
            for (c, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[c].saturating_sub(cell.chars().count()));
                if right.contains(&c) {
                    line += &format!("{pad}{cell}  ");
                } else {
                    line += &format!("{cell}{pad}  ");
                }
            }
            self.line(line.trim_end())?;
        }
        Ok(())
    }
}

/// A line to stderr. That nobody reads it is no reason to fail: an agent outlives its terminal.
pub fn tell(text: impl AsRef<str>) {
    let _ = writeln!(io::stderr(), "{}", text.as_ref());
}
