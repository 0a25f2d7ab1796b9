//! Intervals of one call, by the names of the paper.

/// A part of one call, in ns. The moments t1 to t14 are those of the execution model: t1 request generated, t3 sent, t4
/// arrived at the target, t5 handler starts, t8 handler ends, t13 response sent, t12 response noticed, t14 callback runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum Interval {
    /// t1 to t14: the whole call, seen from the caller.
    OriginExecution = 1,
    /// t2 to t3: the caller turns the input into bytes.
    InputSerialization = 2,
    /// t3 to t4: the target fetches input that did not fit the first message.
    TargetInternalRdmaTransfer = 3,
    /// t4 to t5: the request waits in a queue of the target.
    TargetHandler = 4,
    /// t6 to t7: the target turns bytes into the input.
    InputDeserialization = 5,
    /// t5 to t8 without the target's own calls to others.
    TargetExecutionExclusive = 6,
    /// t9 to t10: the target turns the output into bytes.
    OutputSerialization = 7,
    /// t8 to t13: from the end of the handler until the response is sent.
    TargetCompletionCallback = 8,
    /// t12 to t14: from the arrival of the response until the caller's callback runs.
    OriginCompletionCallback = 9,
    /// Time of a target that its own calls to others cover. Not in the paper.
    Children = 10,
}

impl Interval {
    /// All intervals, in the order of their tags.
    pub const ALL: [Self; 10] = [
        Self::OriginExecution,
        Self::InputSerialization,
        Self::TargetInternalRdmaTransfer,
        Self::TargetHandler,
        Self::InputDeserialization,
        Self::TargetExecutionExclusive,
        Self::OutputSerialization,
        Self::TargetCompletionCallback,
        Self::OriginCompletionCallback,
        Self::Children,
    ];

    /// Returns the number of the interval in records.
    #[inline]
    pub const fn tag(self) -> u16 {
        self as u16
    }

    /// Returns the interval of a tag; `None` for the tag of a variable or of a newer version.
    pub fn from_tag(tag: u16) -> Option<Self> {
        Self::ALL.get(usize::from(tag).checked_sub(1)?).copied()
    }

    /// Returns the name, in the words of the paper: `target_handler`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OriginExecution => "origin_execution",
            Self::InputSerialization => "input_serialization",
            Self::TargetInternalRdmaTransfer => "target_internal_rdma_transfer",
            Self::TargetHandler => "target_handler",
            Self::InputDeserialization => "input_deserialization",
            Self::TargetExecutionExclusive => "target_execution_exclusive",
            Self::OutputSerialization => "output_serialization",
            Self::TargetCompletionCallback => "target_completion_callback",
            Self::OriginCompletionCallback => "origin_completion_callback",
            Self::Children => "children",
        }
    }

    /// Returns true if the origin of a call reports the interval, and not its target.
    pub const fn is_of_origin(self) -> bool {
        matches!(
            self,
            Self::OriginExecution | Self::InputSerialization | Self::OriginCompletionCallback
        )
    }

    /// Returns the interval of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|interval| interval.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_and_names_return_their_interval() {
        for interval in Interval::ALL {
            assert_eq!(Interval::from_tag(interval.tag()), Some(interval));
            assert_eq!(Interval::from_name(interval.name()), Some(interval));
        }
        assert_eq!(Interval::from_tag(0), None);
        assert_eq!(Interval::from_tag(11), None);
    }
}
