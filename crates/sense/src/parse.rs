//! Reads numbers and words from kernel text, without allocation. Text that is not a number is
//! `None`.

use std::io::BufRead as _;

/// Returns the lines of `text` that are not empty, without their line feeds. A last line without a
/// line feed was cut off, and so its last number may be; such a line is left out.
pub(crate) fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let line = rest;
            // For a slice this is memchr(3), many bytes at a time, and cannot fail.
            let (&b'\n', line) = line[..rest.skip_until(b'\n').ok()?].split_last()? else {
                return None;
            };
            if !line.is_empty() {
                return Some(line);
            }
        }
    })
}

/// Returns the words of `line`, split at spaces and tabs.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = line;
    std::iter::from_fn(move || {
        while let [b' ' | b'\t', after @ ..] = rest {
            rest = after;
        }
        let end = rest.iter().position(|&b| b == b' ' || b == b'\t').unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after;
        (!word.is_empty()).then_some(word)
    })
}

/// Returns the numbers of `line` up to the first word that is not a number.
pub(crate) fn numbers(line: &[u8]) -> impl Iterator<Item = u64> {
    words(line).map_while(u64)
}

/// Returns the number that is the first word of `line`, and the rest of the line.
pub(crate) fn leading_u64(line: &[u8]) -> Option<(u64, &[u8])> {
    let line = line.trim_ascii_start();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    Some((u64(&line[..end])?, &line[end..]))
}

/// Reads a decimal number that fills `word`; `None` if it is not a number or does not fit.
pub(crate) fn u64(word: &[u8]) -> Option<u64> {
    if word.is_empty() {
        return None;
    }
    word.iter().try_fold(0u64, |n, &b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        n.checked_mul(10)?.checked_add(digit)
    })
}

/// Reads a decimal number that may be negative.
pub(crate) fn i64(word: &[u8]) -> Option<i64> {
    match word.strip_prefix(b"-") {
        Some(digits) => 0i64.checked_sub_unsigned(u64(digits)?),
        None => u64(word)?.try_into().ok(),
    }
}

/// Reads a decimal number with an optional fraction, such as `0.52`. The result is finite.
pub(crate) fn f64(word: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(word).ok()?.parse().ok()?;
    number.is_finite().then_some(number)
}

/// Splits `line` at the first `separator` and drops the separator.
pub(crate) fn split_once(line: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = line.iter().position(|&b| b == separator)?;
    Some((&line[..at], &line[at + 1..]))
}

/// Removes spaces, tabs and line feeds from both ends of `text`.
pub(crate) fn trim(text: &[u8]) -> &[u8] {
    text.trim_ascii()
}

/// Appends to `into` a file name that the kernel wrote into a table, where a space is `\040`.
pub(crate) fn unescape_octal(word: &[u8], into: &mut Vec<u8>) {
    let digit = |at: usize| word.get(at).filter(|b| (b'0'..=b'7').contains(b)).map(|b| b - b'0');
    let mut at = 0;
    while let Some(&byte) = word.get(at) {
        match (byte, digit(at + 1), digit(at + 2), digit(at + 3)) {
            (b'\\', Some(high @ 0..=3), Some(middle), Some(low)) => {
                into.push(high << 6 | middle << 3 | low);
                at += 4;
            }
            _ => {
                into.push(byte);
                at += 1;
            }
        }
    }
}
