//! Numbers and words out of kernel text, without allocation. Total: what is not a number is `None`.

/// The lines of `text`, without their line feeds.
pub(crate) fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&b| b == b'\n').filter(|line| !line.is_empty())
}

/// The words of `line`, split at spaces and tabs.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&b| b == b' ' || b == b'\t').filter(|word| !word.is_empty())
}

/// A decimal number that is all of `word`; `None` if it is not one or does not fit.
pub(crate) fn u64(word: &[u8]) -> Option<u64> {
    if word.is_empty() {
        return None;
    }
    word.iter().try_fold(0u64, |n, &b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        n.checked_mul(10)?.checked_add(digit)
    })
}

/// A decimal number with an optional fraction, such as `0.52`.
pub(crate) fn f64(word: &[u8]) -> Option<f64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// `line` split at the first `separator`, without it.
pub(crate) fn split_once(line: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = line.iter().position(|&b| b == separator)?;
    Some((&line[..at], &line[at + 1..]))
}

/// `text` without spaces and tabs at both ends.
pub(crate) fn trim(text: &[u8]) -> &[u8] {
    text.trim_ascii()
}
