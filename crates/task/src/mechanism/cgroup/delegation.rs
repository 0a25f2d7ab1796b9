//! Controllers of version 2. A group has those that the one above hands down, and one that has processes
//! in it may hand down none. The group that the monitor is in may be its alone, as in
//! `systemd-run --scope -p Delegate=yes`: then the monitor goes into a group of its own below. Where
//! others are in it, they stay where they are, and nothing is handed down.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::group_name;

/// Controllers that a group was made to hand down; taken back when it is dropped.
#[derive(Debug)]
pub(super) struct Delegation {
    parent: PathBuf,
    controllers: Vec<String>,
    /// Where the monitor went.
    own: Option<PathBuf>,
}

impl Delegation {
    /// Has a group hand these controllers down. `None` if it does, or knows no version 2.
    ///
    /// # Errors
    /// Why it does not.
    pub(super) fn down(parent: &Path, wanted: &[&str]) -> Result<Option<Self>, String> {
        let words = |file: &str| fs::read_to_string(parent.join(file)).ok();
        let (Some(there), Some(down)) =
            (words("cgroup.controllers"), words("cgroup.subtree_control"))
        else {
            return Ok(None);
        };
        let has = |text: &str, name: &str| text.split_whitespace().any(|word| word == name);
        let missing = wanted.iter().filter(|name| has(&there, name) && !has(&down, name));
        let controllers: Vec<String> = missing.map(ToString::to_string).collect();
        if controllers.is_empty() {
            return Ok(None);
        }
        let mut delegation = Self { parent: parent.to_owned(), controllers, own: None };
        let mut done = delegation.write('+');
        if done.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::ResourceBusy) {
            let own = std::process::id().to_string();
            let all = words("cgroup.procs").unwrap_or_default();
            if all.lines().any(|pid| pid != own) {
                let what = parent.display();
                delegation.controllers.clear();
                return Err(format!(
                    "others are in {what}, and a group with processes in it hands no controllers down"
                ));
            }
            done = delegation.step_down(&own).and_then(|()| delegation.write('+'));
        }
        match done {
            Ok(()) => Ok(Some(delegation)),
            Err(e) => Err(format!("{}: {e}", parent.join("cgroup.subtree_control").display())),
        }
    }

    /// The monitor goes into a group of its own.
    fn step_down(&mut self, own: &str) -> io::Result<()> {
        let folder = self.parent.join(group_name::own(group_name::MONITOR)?);
        fs::create_dir(&folder)?;
        self.own = Some(folder.clone());
        fs::write(folder.join("cgroup.procs"), own)
    }

    fn write(&self, sign: char) -> io::Result<()> {
        let all: Vec<String> =
            self.controllers.iter().map(|name| format!("{sign}{name}")).collect();
        fs::write(self.parent.join("cgroup.subtree_control"), all.join(" "))
    }
}

impl Drop for Delegation {
    fn drop(&mut self) {
        // Another group may need what it got by this: only where the monitor was alone nobody does.
        let Some(own) = &self.own else { return };
        let _ = self.write('-');
        let _ = fs::write(self.parent.join("cgroup.procs"), std::process::id().to_string());
        let _ = fs::remove_dir(own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_handed_down_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str| folder.path().join(name);
        let down = |wanted: &[&str]| Delegation::down(folder.path(), wanted);
        assert!(down(&["memory"]).expect("version 1").is_none());
        fs::write(file("cgroup.controllers"), "cpu io memory pids\n").expect("written");
        let told = |text: &str| fs::write(file("cgroup.subtree_control"), text).expect("written");
        let said = || fs::read_to_string(file("cgroup.subtree_control")).expect("read");
        for (before, wanted, after) in [
            ("", &["memory", "pids"][..], "+memory +pids"),
            ("cpu pids\n", &["memory", "pids"], "+memory"),
            ("memory\n", &["memory"], "memory\n"),
            ("", &["rdma"], ""),
            ("", &[], ""),
        ] {
            told(before);
            drop(down(wanted).expect("written"));
            assert_eq!(said(), after, "{before:?} {wanted:?}");
        }
    }

    #[test]
    fn what_the_monitor_went_into_is_taken_away() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("cgroup.subtree_control"), "").expect("written");
        let (parent, controllers) = (folder.path().to_owned(), vec!["memory".to_owned()]);
        let mut delegation = Delegation { parent, controllers, own: None };
        let own = std::process::id().to_string();
        delegation.step_down(&own).expect("made");
        let group = delegation.own.clone().expect("it is there");
        assert_eq!(fs::read_to_string(group.join("cgroup.procs")).expect("written"), own);
        fs::remove_file(group.join("cgroup.procs")).expect("in a group it is no file");
        drop(delegation);
        let said = fs::read_to_string(folder.path().join("cgroup.subtree_control"));
        assert_eq!(said.expect("read"), "-memory");
        assert_eq!(fs::read_to_string(folder.path().join("cgroup.procs")).expect("back"), own);
        assert!(!group.exists());
    }
}
