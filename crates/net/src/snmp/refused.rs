/// The reason why a datagram was not taken as the answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is not an SNMP message.
    Malformed,
    /// It has another number than the request: a late answer, a repeated one, or one for a guess.
    WrongNumber,
    /// Its community, user, engine or tag is wrong, or it is not secret although it must be.
    Forged,
    /// It has no tag, and does more than discover an engine.
    Unverified,
    /// Its time is not in the window.
    Old,
    /// It is a report about the request.
    Report,
}
