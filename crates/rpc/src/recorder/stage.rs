/// The amount of what is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Stage {
    /// Nothing: spans cost a comparison.
    Off = 0,
    /// Requests carry their context, and nothing is written.
    Context = 1,
    /// A record for each side of a call.
    Spans = 2,
    /// Spans with intervals and variables, and samples of the process.
    #[default]
    Full = 3,
}

impl Stage {
    /// All stages, from the smallest to the greatest.
    pub const ALL: [Self; 4] = [Self::Off, Self::Context, Self::Spans, Self::Full];

    /// Returns the name: `off`, `context`, `spans` or `full`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Context => "context",
            Self::Spans => "spans",
            Self::Full => "full",
        }
    }

    /// Returns the stage of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.name() == name)
    }

    /// Returns the stage of a number; a number of a newer version is the greatest stage.
    pub fn from_code(code: u32) -> Self {
        Self::ALL.get(code as usize).copied().unwrap_or(Self::Full)
    }
}
