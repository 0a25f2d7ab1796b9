//! Output of data to stdout: for people, for scripts (`--plain`) or as JSON.

use std::io::{self, BufWriter, IsTerminal as _, Write};

use serde::Serialize;

/// The style of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// For people: aligned columns, values in readable units.
    Human,
    /// For scripts: a record on each line, fields separated by tabs, values as they are.
    Plain,
    /// JSON.
    Json,
}

/// Standard output. A write may fail with a broken pipe, which ends the verb without an error.
pub struct Out {
    /// The style that the user chose.
    pub style: Style,
    colour: bool,
    writer: BufWriter<Box<dyn Write + Send>>,
}

impl Out {
    /// Opens standard output. It has colour on a terminal, unless `NO_COLOR` is set.
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

    /// Writes a line of text.
    pub fn line(&mut self, text: impl AsRef<str>) -> io::Result<()> {
        self.writer.write_all(text.as_ref().as_bytes())?;
        self.writer.write_all(b"\n")
    }

    /// Returns the underlying writer.
    pub fn writer(&mut self) -> &mut impl Write {
        &mut self.writer
    }

    /// Writes a JSON document on a line.
    pub fn json(&mut self, document: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.writer, document)?;
        self.writer.write_all(b"\n")
    }

    /// Writes the buffered data.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    /// Returns `text` in bold if the output has colour.
    pub fn bold(&self, text: &str) -> String {
        self.paint("1", text)
    }

    /// Returns `text` dimmed if the output has colour.
    pub fn dim(&self, text: &str) -> String {
        self.paint("2", text)
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Writes rows in aligned columns. The columns in `right` are aligned right.
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

/// Writes a line to stderr and ignores errors: an agent outlives its terminal.
pub fn tell(text: impl AsRef<str>) {
    let _ = writeln!(io::stderr(), "{}", text.as_ref());
}
