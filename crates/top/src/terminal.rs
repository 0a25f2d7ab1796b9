//! Takes over the terminal while the UI runs, and restores it at the end: when the guard is dropped,
//! or in the panic hook.

use std::io::{self, Write as _};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

/// True while the UI has the terminal.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The screen, which is restored when this is dropped.
pub(crate) struct Screen {
    pub terminal: Terminal<CrosstermBackend<io::Stdout>>,
}

impl Screen {
    /// Takes the terminal: alternate screen, no echo, no cursor.
    pub(crate) fn take() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                // Restore the terminal first, so that the message appears on the user's own screen.
                restore();
                before(info);
            }));
        });
        enter()?;
        // From here on the guard restores the terminal, even if the next line fails.
        let guard = Restore;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        std::mem::forget(guard);
        Ok(Self { terminal })
    }

    /// Restores the terminal, stops the process until the shell continues it, and takes the terminal
    /// over again.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        restore();
        let me = rustix::process::getpid();
        rustix::process::kill_process(me, rustix::process::Signal::TSTP)?;
        enter()?;
        self.terminal.clear()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        restore();
    }
}

fn enter() -> io::Result<()> {
    TAKEN.store(true, Ordering::SeqCst);
    let taken = enable_raw_mode().and_then(|()| execute!(io::stdout(), EnterAlternateScreen, Hide));
    if taken.is_err() {
        restore();
    }
    taken
}

/// Restores the terminal, once. Errors are ignored: there is no terminal to show them on.
fn restore() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let _ = disable_raw_mode();
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = io::stdout().flush();
    }
}
