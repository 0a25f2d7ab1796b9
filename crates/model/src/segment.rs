//! The segment of a topic: its characters, and the escape that makes a segment of any name.

/// Returns true for the bytes that a segment may hold.
pub(crate) const fn is_segment_byte(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b':' | b'@' | b'+' | b'=' | b'%')
}

/// Turns the name of a device, mount point or control group into one segment.
///
/// A leading `/` is dropped, any other `/` becomes `:`, the root alone becomes `-`, the empty name
/// `%`, and each byte that a segment may not hold (upper case too) becomes `%` and two hexadecimal
/// digits. The result is appended to `into`, so that a sensor can reuse its buffer.
///
/// The mapping is one to one among absolute paths, and among names that do not begin with `/`; `/a`
/// and `a` give the same segment. Therefore each family of facts names its instances in only one of
/// the two ways. A name of many escaped bytes can be longer than a topic may be:
/// [`Topic::new`](crate::Topic::new) then returns an error.
///
/// ```
/// let segment = |name: &str| {
///     let mut s = String::new();
///     skopos_model::escape_segment(name.as_bytes(), &mut s);
///     s
/// };
/// assert_eq!(segment("nvme0n1"), "nvme0n1");
/// assert_eq!(segment("/mnt/Data set"), "mnt:%44ata%20set");
/// assert_eq!(segment("/"), "-");
/// assert_eq!(segment(""), "%");
/// ```
pub fn escape_segment(name: &[u8], into: &mut String) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    match name {
        b"/" => return into.push('-'),
        // Without two digits `%` is not an escaped byte, so no other name gives it.
        b"" => return into.push('%'),
        _ => {}
    }
    let relative = name.strip_prefix(b"/").unwrap_or(name);
    // `-` alone means the root, so the name `-` is escaped.
    let dash_alone = relative == b"-";
    for &byte in relative {
        match byte {
            b'/' => into.push(':'),
            b'-' if dash_alone => into.push_str("%2d"),
            b':' | b'%' => push_escaped(byte, into),
            byte if is_segment_byte(byte) => into.push(byte as char),
            byte => push_escaped(byte, into),
        }
    }
    fn push_escaped(byte: u8, into: &mut String) {
        into.push('%');
        into.push(HEX[usize::from(byte >> 4)] as char);
        into.push(HEX[usize::from(byte & 15)] as char);
    }
}
