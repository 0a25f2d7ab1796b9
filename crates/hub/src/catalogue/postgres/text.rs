//! Texts that PostgreSQL cannot store: it has no character zero.

/// Returns a text without the character zero. Different texts stay different, and keep their order.
pub(super) fn escaped(text: String) -> String {
    match text.contains(['\0', '\u{1}']) {
        false => text,
        true => text.replace('\u{1}', "\u{1}\u{2}").replace('\0', "\u{1}\u{1}"),
    }
}

/// Returns the text that was escaped.
pub(super) fn unescaped(text: String) -> String {
    match text.contains('\u{1}') {
        false => text,
        true => text.replace("\u{1}\u{1}", "\0").replace("\u{1}\u{2}", "\u{1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_survive_and_keep_their_order() {
        let texts = [
            "",
            "\0",
            "\0\0",
            "\0\u{1}",
            "\0a",
            "\u{1}",
            "\u{1}\0",
            "\u{1}\u{1}",
            "\u{1}\u{2}",
            "\u{2}",
            "\u{2}\0",
            "a",
            "a\0",
            "a\0b",
            "a\u{1}",
            "ab",
        ];
        assert!(texts.is_sorted());
        let all = texts.map(|text| escaped(text.to_owned()));
        assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
        assert!(all.iter().all(|text| !text.contains('\0')));
        assert_eq!(all.map(unescaped), texts);
    }
}
