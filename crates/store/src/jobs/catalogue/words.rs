//! Free text as words, the same for every database.
//!
//! A word is a run of letters and digits in lower case. An entry has a set of words; a question names words, each of
//! which must be there. `grom*` asks for words that begin with `grom`.

use std::collections::{BTreeSet, HashSet};

use super::super::entry::JobEntry;

/// The most words of an entry. A command of the longest kind has two thousand.
pub const MAX_WORDS: usize = 4096;

/// The longest word; the rest of a longer one is not looked at. The longest checksums have this length.
pub const MAX_WORD_BYTES: usize = 128;

/// A word of a question.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Word {
    /// Letters and digits.
    pub text: String,
    /// True if longer words count that begin with this one.
    pub is_beginning: bool,
}

/// Room for the words of most entries: those of a script of two kilobytes, twice over.
const USUAL_WORDS: usize = 256;

/// Returns the words of the name, command, tags, details and findings of an entry, each once and with a blank between two, and
/// the number of words for which there was no room.
pub(super) fn of_entry(entry: &JobEntry) -> (String, u64) {
    let mut text = String::new();
    // No word goes on beyond the end of a line.
    let mut add = |part: &str| text.extend([part, "\n"]);
    entry.all_tags().into_iter().for_each(&mut add);
    if let Some(start) = entry.start.as_ref().map(|start| &start.value) {
        add(&start.name);
        start.command.iter().for_each(|part| add(part));
        start.details.iter().flat_map(|(name, value)| [name, value]).for_each(|part| add(part));
    }
    entry.findings.iter().for_each(|part| add(part));
    let text = text.to_lowercase();
    // A script has most of its words many times, and each entry comes with its words again whenever it changes.
    let mut known: HashSet<&str> = HashSet::with_capacity(USUAL_WORDS);
    let (mut words, mut left_out) = (String::new(), 0);
    for word in split(&text) {
        if known.len() >= MAX_WORDS {
            left_out += u64::from(!known.contains(word));
        } else if known.insert(word) {
            words.push_str(if words.is_empty() { "" } else { " " });
            words.push_str(word);
        }
    }
    (words, left_out)
}

/// Returns the words by which an entry is found.
pub fn words_of(entry: &JobEntry) -> BTreeSet<String> {
    of_entry(entry).0.split_whitespace().map(str::to_owned).collect()
}

/// Returns the words of a question.
pub(super) fn of_question(text: &str) -> BTreeSet<Word> {
    let text = text.to_lowercase();
    let runs = text.split_whitespace().flat_map(|run| {
        let words: Vec<&str> = split(run).collect();
        let last = words.len().saturating_sub(1);
        let is_beginning = move |at: usize| at == last && run.ends_with('*');
        words.into_iter().enumerate().map(move |(at, word)| (word, is_beginning(at)))
    });
    runs.map(|(word, is_beginning)| Word { text: word.to_owned(), is_beginning }).collect()
}

/// Returns true if a text has the words of a question, each of which is a word or, as `grom*`, the beginning of one. Case does
/// not count.
pub fn has_words(text: &str, question: &str) -> bool {
    let text = text.to_lowercase();
    are_among(&of_question(question), &split(&text).map(str::to_owned).collect())
}

/// Returns true if each word of a question is among those of an entry.
pub(super) fn are_among(asked: &BTreeSet<Word>, words: &BTreeSet<String>) -> bool {
    asked.iter().all(|word| match word.is_beginning {
        false => words.contains(&word.text),
        true => {
            let from = words.range(word.text.clone()..).next();
            from.is_some_and(|first| first.starts_with(&word.text))
        }
    })
}

fn split(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(|word| {
        let mut end = word.len().min(MAX_WORD_BYTES);
        while !word.is_char_boundary(end) {
            end -= 1;
        }
        &word[..end]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_words_and_beginnings_of_words() {
        let check = |text: &str, expected: &[(&str, bool)]| {
            let words = of_question(text);
            let found: Vec<_> = words.iter().map(|w| (w.text.as_str(), w.is_beginning)).collect();
            assert_eq!(found, expected, "{text:?}");
        };
        check("", &[]);
        check(" * ! \"", &[]);
        check("Slow GROM*", &[("grom", true), ("slow", false)]);
        check("/opt/run.sh*", &[("opt", false), ("run", false), ("sh", true)]);
        check("über' OR 1=1 --", &[("1", false), ("or", false), ("über", false)]);
        let long = "é".repeat(MAX_WORD_BYTES);
        check(&long, &[("é".repeat(MAX_WORD_BYTES / 2).as_str(), false)]);
    }

    #[test]
    fn words_without_room_are_counted() {
        let mut entry = JobEntry::new("s", skopos_model::job::JobId::new("1", 0).expect("an id"));
        entry.findings = (0..=MAX_WORDS).map(|n| format!("w{n} same")).collect();
        let (words, left_out) = of_entry(&entry);
        assert_eq!((words.split(' ').count(), left_out), (MAX_WORDS, 2));
    }

    #[test]
    fn each_word_of_an_entry_is_there_once_and_ends_with_its_text() {
        let mut entry = JobEntry::new("s", skopos_model::job::JobId::new("1", 0).expect("an id"));
        assert_eq!(of_entry(&entry), (String::new(), 0));
        entry.findings = ["Slow ΟΔΟΣ", "slow-GROMACS slow", "über"].map(str::to_owned).into();
        assert_eq!(of_entry(&entry), ("slow οδος gromacs über".to_owned(), 0));
        let sorted: Vec<String> = words_of(&entry).into_iter().collect();
        assert_eq!(sorted, ["gromacs", "slow", "über", "οδος"]);
    }
}
