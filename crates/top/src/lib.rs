//! `skopos top`: the terminal UI.
//!
//! `reader` turns shared memory into `data`, plain structs, and `proc_scan` turns `/proc` into
//! `processes`. `app` is the state of the UI, and `keys` holds the actions that change it. `view`
//! draws both; `panes` has a file for each pane. Only `reader`, `answers`, `proc_scan`, `input` and
//! `terminal` do input and output.

#![forbid(unsafe_code)]
// These macros panic when the reader of stdout is gone; the functions of `skopos_term` do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod data;
mod rate;
mod window;
mod members;
mod history;
mod findings;
mod answers;
mod processes;
mod proc_scan;
mod reader;
mod input;
mod keys;
mod cursor;
mod app;
mod theme;
mod text;
mod draw;
mod table;
mod detail;
mod panes;
mod view;
mod terminal;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use answers::AgentClient;
use app::{App, Effect};
use input::{Event, Input};
use reader::Reader;
use skopos_term::Failure;
use skopos_term::Global;
use skopos_term::Style;
use skopos_term::find;
use terminal::Screen;
use theme::Theme;

/// Time between two refreshes: the agent's shortest interval by default, and the time that a person
/// needs to read numbers.
const REFRESH: Duration = Duration::from_secs(1);

/// Runs the UI until the user leaves it.
pub fn run(global: &Global, filter: Option<&str>) -> Result<ExitCode, Failure> {
    if global.style() != Style::Human {
        return Err(Failure::new(
            "`skopos top` is for people: it does not support `--json` and `--plain`",
        )
        .hint("`skopos get '**'` reads once, `skopos watch '**'` follows, both with `--json`"));
    }
    if !io::stdout().is_terminal() {
        return Err(Failure::new(
            "`skopos top` needs a terminal, and its output is not a terminal",
        )
        .hint("`skopos ls` lists the topics, `skopos watch '**'` follows them"));
    }
    let host = find::open_host(global)?;
    let terminal_trouble = |e: io::Error| {
        Failure::new("cannot use this terminal")
            .because(&e)
            .hint("`skopos ls` and `skopos watch '**'` do not need a terminal")
    };
    let mut input = Input::open().map_err(terminal_trouble)?;
    let mut screen = Screen::take().map_err(terminal_trouble)?;
    let reader = Reader::new(host, AgentClient::new(global.dir.clone()));
    let ended = watch(reader, App::new(filter), &mut input, &mut screen);
    drop(screen);
    match ended {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(e) => Err(terminal_trouble(e)),
    }
}

fn watch(
    mut reader: Reader,
    mut app: App,
    input: &mut Input,
    screen: &mut Screen,
) -> io::Result<()> {
    let theme = Theme::from_environment();
    let mut next = Instant::now() + REFRESH;
    loop {
        // During a pause nothing changes.
        if !app.paused {
            reader.ask(app.asks());
            reader.scan_processes(app.scans());
        }
        app.update(reader.data());
        reader.load_histories(&app.histories(reader.data()));
        screen
            .terminal
            .draw(|frame| view::draw(&mut app, reader.data(), theme, frame.buffer_mut()))?;
        match input.wait(next)? {
            Event::Leave => return Ok(()),
            Event::Keys(keys) => {
                for key in keys {
                    match app.handle(key) {
                        Effect::Quit => return Ok(()),
                        Effect::Suspend => screen.suspend()?,
                        Effect::Stay => {}
                    }
                    // The next key may depend on the change.
                    app.update(reader.data());
                }
            }
            // Drawing reads the size each time.
            Event::Resized | Event::Tick => {}
        }
        if Instant::now() >= next {
            if !app.paused {
                reader.refresh();
            }
            next = Instant::now() + REFRESH;
        }
    }
}
