//! How a verb fails: what went wrong, why, and what the user can do.

use std::error::Error as StdError;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use skopos_shm::Error as ShmError;

/// Exit code for "the answer is no".
pub const EXIT_NO: u8 = 1;
/// Exit code for wrong usage or a failure.
pub const EXIT_FAILURE: u8 = 2;

/// The end of a verb that did not do what was asked.
#[derive(Debug)]
pub struct Failure {
    message: String,
    causes: Vec<String>,
    hint: Option<String>,
    code: u8,
    quiet: bool,
    refusal: bool,
}

impl Failure {
    /// The agent's own "no".
    pub fn refusal(message: impl Into<String>) -> Self {
        Self { refusal: true, ..Self::new(message) }
    }

    /// True if the agent answered, and its answer was no.
    pub fn is_refusal(&self) -> bool {
        self.refusal
    }

    /// True if the reader of the output has closed the pipe, which is not a failure.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// What the user can do, if anything.
    pub fn the_hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// What went wrong, in one line.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// All of it, where there is one line for it.
    pub fn in_one_line(&self) -> String {
        let parts = std::iter::once(&self.message).chain(&self.causes).chain(&self.hint);
        parts.map(String::as_str).collect::<Vec<_>>().join("; ")
    }

    /// A failure with exit code 2.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            causes: Vec::new(),
            hint: None,
            code: EXIT_FAILURE,
            quiet: false,
            refusal: false,
        }
    }

    /// An answer "no", with exit code 1.
    pub fn no(message: impl Into<String>) -> Self {
        Self { code: EXIT_NO, ..Self::new(message) }
    }

    /// What the user can do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// What it came from.
    #[must_use]
    pub fn because(mut self, cause: &dyn StdError) -> Self {
        let mut next = Some(cause);
        while let Some(cause) = next {
            self.causes.push(cause.to_string());
            next = cause.source();
        }
        self
    }

    /// In which file it is, if it is in one.
    #[must_use]
    pub fn in_file(mut self, path: Option<&Path>) -> Self {
        if let Some(path) = path {
            self.message = format!("{}: {}", path.display(), self.message);
        }
        self
    }

    /// Prints it to stderr and gives the exit code.
    pub fn report(&self) -> ExitCode {
        if self.quiet {
            return ExitCode::SUCCESS;
        }
        let mut text = format!("error: {}\n", self.message);
        for cause in &self.causes {
            text += &format!("  because: {cause}\n");
        }
        if let Some(hint) = &self.hint {
            text += &format!("hint: {hint}\n");
        }
        let _ = std::io::stderr().write_all(text.as_bytes());
        ExitCode::from(self.code)
    }
}

/// Output errors. A reader that has seen enough (`skopos ls | head`) is no failure.
impl From<std::io::Error> for Failure {
    fn from(e: std::io::Error) -> Self {
        let quiet = e.kind() == std::io::ErrorKind::BrokenPipe;
        Self { quiet, ..Self::new("cannot write the output").because(&e) }
    }
}

impl From<ShmError> for Failure {
    fn from(e: ShmError) -> Self {
        let hint = match &e {
            ShmError::Held { pid, .. } => Some(format!(
                "read what it publishes with `skopos top`, or end it first: `kill {pid}`"
            )),
            ShmError::Owner { .. } | ShmError::Permissions { .. } => Some(
                "name a directory of your own: `SKOPOS_DIR=$XDG_RUNTIME_DIR/skopos`".to_owned(),
            ),
            ShmError::Full { .. } => Some(
                "free some memory there, or name a directory elsewhere with SKOPOS_DIR".to_owned(),
            ),
            ShmError::LayoutVersion { .. } => {
                Some("use the version of Skopos that wrote it".to_owned())
            }
            ShmError::Io { .. } => Some(
                "the directory of segments is $SKOPOS_DIR, else /dev/shm/skopos-<uid>; `skopos doctor` looks at it"
                    .to_owned(),
            ),
            _ => None,
        };
        let failure = Self::new(e.to_string());
        let failure = match StdError::source(&e) {
            Some(source) => failure.because(source),
            None => failure,
        };
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<skopos_model::Error> for Failure {
    fn from(e: skopos_model::Error) -> Self {
        Self::new(e.to_string())
            .hint("a topic looks like `node/subsystem/instance/metric`; `skopos ls` shows them")
    }
}
