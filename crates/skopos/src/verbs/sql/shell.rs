//! The shell of `skopos sql`: statements that end with `;`, history, completion.

use std::borrow::Cow;
use std::path::PathBuf;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Context, Editor, Helper};
use skopos_query::split;

use super::answer::Format;
use super::asker::{Asker, EXAMPLES};
use skopos_term::Failure;
use skopos_term::Out;
use skopos_term::state;

/// Lines of history that are kept: some weeks of work.
const MAX_HISTORY: usize = 2000;

const HELP: &str = "\
.help            this text
.tables          what there is to select from
.columns TABLE   the columns of a table
.format FORMAT   table, json, csv, plain, md
.quit            leave (or Ctrl-D)
A statement ends with `;` and may have several lines; several are asked one after the other. Tab completes names.";

/// Asks what the user types until there is no more.
pub(crate) fn shell(asker: &Asker, format: Format, out: &mut Out) -> Result<(), Failure> {
    let broken = |e: ReadlineError| Failure::new("this terminal cannot be read").because(&e);
    let config = Config::builder().max_history_size(MAX_HISTORY).map_err(broken)?.build();
    let mut editor: Editor<Names, _> = Editor::with_config(config).map_err(broken)?;
    editor.set_helper(Some(Names(asker.names())));
    let history = history_file();
    if let Some(file) = &history {
        // There is none the first time.
        let _ = editor.load_history(file);
    }
    greet(out)?;
    let mut format = format;
    loop {
        let line = match editor.readline("skopos> ") {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(e) => return Err(broken(e)),
        };
        let text = line.trim();
        if text.is_empty() {
            continue;
        }
        let _ = editor.add_history_entry(text);
        if let Some(file) = &history {
            // Now, because a terminal may just go. A history that cannot be kept is no failure.
            let _ = editor.append_history(file);
        }
        if let Some(command) = text.strip_prefix('.') {
            let mut words = command.split_whitespace();
            if matches!(words.next(), Some("quit" | "exit")) {
                break;
            }
            told(dot(asker, command, &mut format, out), out)?;
            continue;
        }
        let mut statements = split(text).into_iter();
        told(statements.try_for_each(|one| asker.answer(&one, format, out)), out)?;
    }
    Ok(())
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

/// A mistake is told, and the shell goes on.
fn told(result: Result<(), Failure>, out: &mut Out) -> Result<(), Failure> {
    if let Err(failure) = result {
        out.flush()?;
        let _ = failure.report();
    }
    Ok(())
}

/// A command of the shell's own.
fn dot(asker: &Asker, command: &str, format: &mut Format, out: &mut Out) -> Result<(), Failure> {
    let mut words = command.split_whitespace();
    match (words.next(), words.next()) {
        (Some("help"), _) => out.line(HELP)?,
        (Some("tables"), _) => {
            let sql =
                "SELECT table_name FROM information_schema.tables WHERE table_schema = 'live'";
            return asker.answer(sql, Format::Plain, out);
        }
        (Some("columns"), Some(table)) => {
            return asker.answer(&format!("DESCRIBE \"{table}\""), Format::Table, out);
        }
        (Some("format"), Some(name)) => {
            *format = <Format as clap::ValueEnum>::from_str(name, true)
                .map_err(|_| Failure::new(format!("there is no format `{name}`")).hint(HELP))?;
        }
        _ => {
            return Err(Failure::new(format!("there is no command `.{command}`"))
                .hint("`.help` lists them"));
        }
    }
    out.flush()?;
    Ok(())
}

/// Names of tables and columns, for completion.
struct Names(Vec<String>);

impl Helper for Names {}
impl Hinter for Names {
    type Hint = String;
}

impl Highlighter for Names {
    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        Cow::Borrowed(hint)
    }
}

impl Validator for Names {
    /// A statement is whole when it ends with `;`.
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let text = context.input().trim();
        let is_whole = text.is_empty() || text.ends_with(';') || text.starts_with('.');
        Ok(if is_whole { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

impl Completer for Names {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || "_/-.".contains(c);
        let start = line[..at].rfind(|c| !is_name(c)).map_or(0, |before| before + 1);
        let begun = line[start..at].to_lowercase();
        let names = self.0.iter().filter(|name| !begun.is_empty() && name.starts_with(&begun));
        Ok((start, names.cloned().collect()))
    }
}
