//! The report of a check.

use std::fmt;

/// One place to mend.
pub(crate) struct Finding {
    /// Relative to the root of the repository.
    pub(crate) path: String,
    /// Counted from 1; 0 if it is about the whole file.
    pub(crate) line: usize,
    pub(crate) fault: String,
    /// The remedy, as an order.
    pub(crate) mend: String,
}

impl Finding {
    /// A finding about the whole file.
    pub(crate) fn in_file(path: &str, fault: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: 0, fault: fault.into(), mend: mend.into() }
    }

    /// A finding about one line, counted from 0.
    pub(crate) fn at(
        path: &str,
        line: usize,
        fault: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self { line: line + 1, ..Self::in_file(path, fault, mend) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.fault)?,
            line => write!(f, "{}:{line}: {}", self.path, self.fault)?,
        }
        write!(f, "\n  mend: {}", self.mend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_place_fault_and_remedy() {
        let finding = Finding::at("crates/shm/src/ring.rs", 11, "it is bent", "straighten it");
        assert_eq!(
            finding.to_string(),
            "crates/shm/src/ring.rs:12: it is bent\n  mend: straighten it"
        );
        assert_eq!(Finding::in_file("a", "b", "c").to_string(), "a: b\n  mend: c");
    }
}
