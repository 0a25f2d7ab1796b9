//! The failure of a verb: a message, its causes, and a hint for the user.

use std::error::Error as StdError;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use skopos_shm::Error as ShmError;

/// Exit code for "the answer is no".
pub const EXIT_NO: u8 = 1;
/// Exit code for wrong usage or a failure.
pub const EXIT_FAILURE: u8 = 2;

/// The reason why a verb did not do its work.
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
    /// Makes a failure for a request that the agent refused.
    pub fn refusal(message: impl Into<String>) -> Self {
        Self { refusal: true, ..Self::new(message) }
    }

    /// Returns true if the agent answered and refused the request.
    pub fn is_refusal(&self) -> bool {
        self.refusal
    }

    /// Returns true if the reader of the output has closed the pipe, which is not a failure.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Returns the hint for the user.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Returns the message, a single line without causes and hint.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Formats message, causes and hint as a single line.
    pub fn in_one_line(&self) -> String {
        let parts = std::iter::once(&self.message).chain(&self.causes).chain(&self.hint);
        parts.map(String::as_str).collect::<Vec<_>>().join("; ")
    }

    /// Makes a failure with exit code 2.
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

    /// Makes a negative answer, with exit code 1.
    pub fn no(message: impl Into<String>) -> Self {
        Self { code: EXIT_NO, ..Self::new(message) }
    }

    /// Adds a hint for the user.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds `cause` and the causes below it.
    #[must_use]
    pub fn because(mut self, cause: &dyn StdError) -> Self {
        let mut next = Some(cause);
        while let Some(cause) = next {
            self.causes.push(cause.to_string());
            next = cause.source();
        }
        self
    }

    /// Puts the path of the file that contains the mistake, if any, in front of the message.
    #[must_use]
    pub fn in_file(mut self, path: Option<&Path>) -> Self {
        if let Some(path) = path {
            self.message = format!("{}: {}", path.display(), self.message);
        }
        self
    }

    /// Prints the failure to stderr and returns the exit code.
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

/// Converts output errors. A reader that closes the pipe early (`skopos ls | head`) is not a failure.
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
                "read its topics with `skopos top`, or end it first: `kill {pid}`"
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
                "the directory of segments is $SKOPOS_DIR, else /dev/shm/skopos-<uid>; `skopos doctor` checks it"
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
