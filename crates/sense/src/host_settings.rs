//! Settings of sensors that a user may choose.

use std::path::PathBuf;

use serde::Deserialize;

use crate::root::Root;

/// The most watched files. The kernel walks the pages of a file: about a millisecond for each cached GiB.
pub const MAX_WATCHED: usize = 64;

/// The sensors of the host that are off by default, because they cost more than others or need names. Unknown keys are
/// refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostSettings {
    /// Files whose part in the page cache is measured (family `page_cache`), by absolute path.
    pub watched_files: Vec<PathBuf>,
    /// Counts hits of the page cache by file system (family `page_cache_hits`), at about 50 ns for each page that is read
    /// or written. Needs BPF.
    pub page_cache_hits: bool,
}

impl HostSettings {
    /// Checks the number of files and their paths.
    ///
    /// # Errors
    /// There are more than [`MAX_WATCHED`] files, or a path is not absolute. The text says which, and what would be right.
    pub fn check(&self) -> Result<(), String> {
        let files = &self.watched_files;
        if files.len() > MAX_WATCHED {
            let count = files.len();
            return Err(format!("{count} files are watched; watch {MAX_WATCHED} at most"));
        }
        match files.iter().find(|path| !path.is_absolute()) {
            Some(path) => Err(format!("`{}` is not an absolute path", path.display())),
            None => Ok(()),
        }
    }

    /// Applies the settings to `root`.
    ///
    /// # Errors
    /// The errors of [`check`](Self::check).
    pub fn apply(&self, root: &mut Root) -> Result<(), String> {
        self.check()?;
        root.watched.clone_from(&self.watched_files);
        root.page_cache_hits = self.page_cache_hits;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_bounded_and_absolute_and_unknown_keys_are_refused() {
        let read = |text: &str| serde_json::from_str::<HostSettings>(text);
        let settings =
            read(r#"{"watched_files": ["/a"], "page_cache_hits": true}"#).expect("valid");
        let mut root = Root::default();
        settings.apply(&mut root).expect("valid");
        assert_eq!((root.watched, root.page_cache_hits), (vec![PathBuf::from("/a")], true));
        assert_eq!(read("{}").expect("all have defaults"), HostSettings::default());
        assert!(read(r#"{"watched": []}"#).is_err());
        let relative = HostSettings { watched_files: vec!["a/b".into()], ..Default::default() };
        assert_eq!(relative.check(), Err("`a/b` is not an absolute path".to_owned()));
        let many = HostSettings { watched_files: vec!["/a".into(); 65], ..Default::default() };
        assert!(many.check().expect_err("too many").contains("64 at most"));
    }
}
