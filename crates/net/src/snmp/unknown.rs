use thiserror::Error;

/// The reason why a value is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Unknown {
    /// The device has no such object.
    #[error("the device does not offer it")]
    NotOffered,
    /// The device did not answer, also not when it was asked again.
    #[error("the device did not answer")]
    NoAnswer,
    /// The poll took as long as the interval, or brought more than its bound of bytes.
    #[error("the poll was too long")]
    TooLong,
    /// The device refused the request with this code (RFC 3416, section 3).
    #[error("the device refused the request with error {0}")]
    Refused(i32),
    /// The device's next object does not come after the one before: a walk would not end.
    #[error("the objects of the device do not increase")]
    NotIncreasing,
    /// The table has more rows than are kept.
    #[error("the table has more rows than are kept")]
    TooManyRows,
    /// The value has another type than its MIB says, or is outside of its range.
    #[error("the value is not of the type that its MIB says")]
    WrongType,
    /// A rate needs two polls.
    #[error("a rate needs two polls")]
    FirstPoll,
    /// The device or the counter began anew since the last poll.
    #[error("the counter began anew")]
    BeganAnew,
    /// The link is so fast that the counter may have wrapped more than once.
    #[error("the counter has 32 bits and may have wrapped more than once")]
    Ambiguous,
    /// The device says that its sensor does not work, or does not know its value.
    #[error("the sensor does not work")]
    Broken,
}

/// A value, or the reason why it is not known.
pub type Reading<T> = Result<T, Unknown>;
