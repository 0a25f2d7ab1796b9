//! `skopos top`: the terminal UI.
//!
//! `reader` turns shared memory into `data`, plain structs; `app` is what the user looks at, and
//! `keys` how it changes; `view` draws the two, `panes` has a file for each pane. Of all these only
//! `reader`, `told`, `input` and `terminal` touch the world.

#![forbid(unsafe_code)]
// They panic when the reader is gone; `skopos_term` has what does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod data;
mod rate;
mod history;
mod findings;
mod told;
mod reader;
mod input;
mod keys;
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

use app::{App, Wish};
use input::{Input, Woken};
use reader::Reader;
use skopos_term::Failure;
use skopos_term::Global;
use skopos_term::Style;
use skopos_term::find;
use terminal::Screen;
use theme::Theme;
use told::Asker;

/// How often the screen is made anew: as often as the agent polls unless told otherwise, and as
/// often as numbers can be read.
const REFRESH: Duration = Duration::from_secs(1);

/// Runs until the user leaves.
pub fn run(global: &Global, filter: Option<&str>) -> Result<ExitCode, Failure> {
    if global.style() != Style::Human {
        return Err(Failure::new(
            "`skopos top` is for people: it has no `--json` and no `--plain`",
        )
        .hint("`skopos get '**'` reads once, `skopos watch '**'` follows, both with `--json`"));
    }
    if !io::stdout().is_terminal() {
        return Err(Failure::new("`skopos top` needs a terminal, and its output goes elsewhere")
            .hint("`skopos ls` lists what there is, `skopos watch '**'` follows it"));
    }
    let host = find::open_host(global)?;
    let terminal_trouble = |e: io::Error| {
        Failure::new("cannot use this terminal")
            .because(&e)
            .hint("`skopos ls` and `skopos watch '**'` need none")
    };
    let mut input = Input::open().map_err(terminal_trouble)?;
    let mut screen = Screen::take().map_err(terminal_trouble)?;
    let reader = Reader::new(host, Asker::new(global.dir.clone()));
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
        // Who pauses wants nothing to change.
        if !app.paused {
            reader.ask(app.asks());
        }
        app.update(reader.data());
        reader.load_histories(&app.histories(reader.data()));
        screen
            .terminal
            .draw(|frame| view::draw(&mut app, reader.data(), theme, frame.buffer_mut()))?;
        match input.wait(next)? {
            Woken::Leave => return Ok(()),
            Woken::Keys(keys) => {
                for key in keys {
                    match app.handle(key) {
                        Wish::Quit => return Ok(()),
                        Wish::Suspend => screen.suspend()?,
                        Wish::Stay => {}
                    }
                    // The next key may act on what this one has changed.
                    app.update(reader.data());
                }
            }
            // Drawing asks for the size anyway.
            Woken::Resized | Woken::Tick => {}
        }
        if Instant::now() >= next {
            if !app.paused {
                reader.refresh();
            }
            next = Instant::now() + REFRESH;
        }
    }
}
