//! The names of which a tier can have an old file again.

use std::collections::HashMap;

/// Most names of a tier, apart from those of the start. Each write on a tier syncs its folder, so there are more only if it
/// has no write for as many removals; then it is synced for their sake.
pub(super) const MAX_NAMES: usize = 1024;

/// The names whose removal from a tier is not durable, or failed after a write that failed, and those of files that contradict
/// a faster tier.
#[derive(Debug, Default)]
pub(super) struct Unsettled {
    names: HashMap<String, Removal>,
    /// Number of names that the start has found. They are as many as the folder has files, and no sync removes them, so they
    /// take no room from removals.
    found: usize,
    /// Number of syncs that have begun.
    syncs: u64,
}

#[derive(Debug)]
struct Removal {
    /// Number of syncs that had begun before the removal ended. A later one makes it durable.
    after: u64,
    /// False if the file can still be there, so that a sync alone is not enough.
    is_gone: bool,
}

impl Unsettled {
    /// Takes a file that was removed, or may still be there.
    pub(super) fn note(&mut self, name: &str, is_gone: bool) {
        self.names.insert(name.to_owned(), Removal { after: self.syncs, is_gone });
    }

    /// Takes the name of a file that the start has found and that does not count.
    pub(super) fn note_found(&mut self, name: &str) {
        self.found += 1;
        self.note(name, false);
    }

    /// Takes the name of a file that counts again.
    pub(super) fn settled(&mut self, name: &str) {
        self.names.remove(name);
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    pub(super) fn is_full(&self) -> bool {
        self.names.len() >= MAX_NAMES + self.found
    }

    /// Takes the start of a sync, and returns its number.
    pub(super) fn begin_sync(&mut self) -> u64 {
        self.syncs += 1;
        self.syncs
    }

    /// Takes the success of a sync. It does not cover removals that ended while it ran.
    pub(super) fn synced(&mut self, number: u64) {
        self.names.retain(|_, removal| !removal.is_gone || removal.after >= number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_settles_the_removals_before_it() {
        let mut unsettled = Unsettled::default();
        unsettled.note("before", true);
        unsettled.note("stays", false);
        let sync = unsettled.begin_sync();
        unsettled.note("during", true);
        unsettled.synced(sync);
        assert_eq!(["before", "stays", "during"].map(|n| unsettled.has(n)), [false, true, true]);
        let sync = unsettled.begin_sync();
        unsettled.synced(sync);
        assert!(!unsettled.has("during") && unsettled.has("stays"));
        unsettled.note("stays", true);
        let sync = unsettled.begin_sync();
        unsettled.synced(sync);
        assert!(!unsettled.has("stays"));
    }

    #[test]
    fn the_number_of_names_is_bounded() {
        let mut unsettled = Unsettled::default();
        (0..MAX_NAMES).for_each(|n| unsettled.note(&n.to_string(), true));
        assert!(unsettled.is_full());
        unsettled.settled("7");
        assert!(!unsettled.is_full() && !unsettled.has("7"));
    }

    #[test]
    fn names_of_the_start_take_no_room_from_removals() {
        let mut unsettled = Unsettled::default();
        (0..MAX_NAMES).for_each(|n| unsettled.note_found(&n.to_string()));
        assert!(!unsettled.is_full());
        let sync = unsettled.begin_sync();
        unsettled.synced(sync);
        assert!(unsettled.has("7"), "a sync alone does not remove its file");
    }
}
