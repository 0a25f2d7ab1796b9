//! The shell of `skopos sql`: statements that end with `;`, history, completion.

use std::path::PathBuf;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};
use skopos_query::split;

use super::answer::Format;
use super::asker::{Asker, EXAMPLES};
use super::candidates::Names;
use skopos_term::Failure;
use skopos_term::Out;
use skopos_term::state;

/// Entries of history that are kept: some weeks of work.
const MAX_HISTORY: usize = 2000;

/// The prompt of a statement's first line.
const PROMPT: &str = "skopos> ";

/// The prompt of a statement's further lines.
const CONTINUATION: &str = "     -> ";

const HELP: &str = "\
.help            print this text
.tables          list the tables
.columns TABLE   list the columns of a table
.format FORMAT   print answers as table, expanded, json, csv, plain or md
\\x               switch expanded mode on or off: one line for each column
.quit            leave (or Ctrl-D)
A statement ends with `;` and may have several lines; Ctrl-C drops it. Tab completes names. An answer
longer than the screen is shown by $PAGER, or by less.";

type Line = Editor<Completion, DefaultHistory>;

/// Answers the statements that the user types, until the input ends.
pub(crate) fn shell(asker: &Asker, format: Format, out: &mut Out) -> Result<(), Failure> {
    let broken = |e: ReadlineError| Failure::new("this terminal cannot be read").because(&e);
    let config = Config::builder().max_history_size(MAX_HISTORY).map_err(broken)?;
    let config = config.completion_type(CompletionType::List).build();
    let mut editor: Line = Editor::with_config(config).map_err(broken)?;
    editor.set_helper(Some(Completion { names: asker.names(), begun: String::new() }));
    let history = history_file();
    if let Some(file) = &history {
        // The first session has no history yet.
        let _ = editor.load_history(file);
    }
    greet(out)?;
    let mut format = format;
    while let Some(text) = read(&mut editor).map_err(broken)? {
        let _ = editor.add_history_entry(&text);
        if let Some(file) = &history {
            // Saved now, because a terminal may be closed. A history that cannot be saved is not a failure.
            let _ = editor.append_history(file);
        }
        if matches!(text.split_whitespace().next(), Some(".quit" | ".exit")) {
            break;
        }
        // The line of the next prompt stays visible.
        let screen = editor.dimensions().map(|(_, rows)| usize::from(rows).saturating_sub(1));
        let result = match text.starts_with(['.', '\\']) {
            true => command(asker, &text, &mut format, out),
            false => split(&text)
                .iter()
                .try_for_each(|statement| asker.answer_on(statement, format, screen, out)),
        };
        report(result, out)?;
    }
    Ok(())
}

/// Reads a command or a whole statement, which may have several lines; `None` at the end of the input.
fn read(editor: &mut Line) -> Result<Option<String>, ReadlineError> {
    let mut text = String::new();
    loop {
        let line = match editor.readline(if text.is_empty() { PROMPT } else { CONTINUATION }) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => {
                text.clear();
                remember(editor, "");
                continue;
            }
            Err(ReadlineError::Eof) => return Ok(None),
            Err(e) => return Err(e),
        };
        if !text.is_empty() {
            text.push('\n');
        }
        text += line.trim_end();
        let typed = text.trim();
        if typed.ends_with(';') || typed.starts_with(['.', '\\']) {
            remember(editor, "");
            return Ok(Some(typed.to_owned()));
        }
        if typed.is_empty() {
            text.clear();
        }
        remember(editor, &text);
    }
}

/// Stores the lines before the one that is being typed, for completion.
fn remember(editor: &mut Line, text: &str) {
    if let Some(helper) = editor.helper_mut() {
        text.clone_into(&mut helper.begun);
    }
}

fn greet(out: &mut Out) -> Result<(), Failure> {
    out.line(
        "SQL on what is live on this machine. `.help` for help, Ctrl-D to leave. For example:",
    )?;
    for example in EXAMPLES {
        out.line(out.dim(&format!("  {example};")))?;
    }
    out.flush()?;
    Ok(())
}

fn history_file() -> Option<PathBuf> {
    let dir = state::own_folder()?;
    std::fs::create_dir_all(&dir).ok()?;
    Some(dir.join("sql_history"))
}

/// Prints a failure; the shell goes on.
fn report(result: Result<(), Failure>, out: &mut Out) -> Result<(), Failure> {
    if let Err(failure) = result {
        out.flush()?;
        let _ = failure.report();
    }
    Ok(())
}

/// Runs a command of the shell: a line that begins with `.` or `\`.
fn command(asker: &Asker, text: &str, format: &mut Format, out: &mut Out) -> Result<(), Failure> {
    let mut words = text.split_whitespace();
    match (words.next(), words.next().map(|word| word.trim_end_matches(';'))) {
        (Some(".help"), _) => out.line(HELP)?,
        (Some("\\x" | "\\x;"), _) => {
            let is_expanded = *format == Format::Expanded;
            *format = if is_expanded { Format::Table } else { Format::Expanded };
            out.line(format!("expanded mode is {}", if is_expanded { "off" } else { "on" }))?;
        }
        (Some(".tables"), _) => {
            let sql =
                "SELECT table_name FROM information_schema.tables WHERE table_schema = 'live'";
            return asker.answer(sql, Format::Plain, out);
        }
        (Some(".columns"), Some(table)) => {
            return asker.answer(&format!("DESCRIBE \"{table}\""), Format::Table, out);
        }
        (Some(".format"), Some(name)) => {
            *format = <Format as clap::ValueEnum>::from_str(name, true)
                .map_err(|_| Failure::new(format!("there is no format `{name}`")).hint(HELP))?;
        }
        _ => {
            return Err(
                Failure::new(format!("there is no command `{text}`")).hint("`.help` lists them")
            );
        }
    }
    out.flush()?;
    Ok(())
}

/// Completes the line that is being typed.
struct Completion {
    names: Names,
    /// The lines of the statement before this one.
    begun: String,
}

impl Helper for Completion {}
impl Validator for Completion {}
impl Highlighter for Completion {}
impl Hinter for Completion {
    type Hint = String;
}

impl Completer for Completion {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let text = format!("{}\n{}", self.begun, &line[..at]);
        let before = text.len() - at;
        let (start, candidates) = self.names.candidates(&text);
        // A quoted topic may begin in an earlier line, of which nothing can be replaced.
        Ok(match start.checked_sub(before) {
            Some(start) => (start, candidates),
            None => (at, Vec::new()),
        })
    }
}
