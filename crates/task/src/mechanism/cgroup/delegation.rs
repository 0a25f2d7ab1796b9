//! Delegation of controllers in version 2. A group has the controllers that the group above
//! delegates, and a group that contains processes cannot delegate any. If the monitor is alone in
//! its group, as with `systemd-run --scope -p Delegate=yes`, it moves into a new group below. If
//! other processes share the group, they stay there, and nothing is delegated.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::group_name;

/// Returns the group above, if it passes on these controllers where the group itself does not, and belongs to
/// this user. A session manager delegates such a tree to each user: a task then starts beside the group of
/// its monitor, and the monitor need not be alone in that group.
pub(super) fn above(group: &Path, wanted: &[&str], user: u32) -> Option<PathBuf> {
    let passes_on = |group: &Path| {
        let down = fs::read_to_string(group.join("cgroup.subtree_control")).unwrap_or_default();
        wanted.iter().all(|name| down.split_whitespace().any(|word| word == *name))
    };
    let above = group.parent()?;
    let is_own = fs::metadata(above).is_ok_and(|about| about.uid() == user);
    (!wanted.is_empty() && !passes_on(group) && is_own && passes_on(above))
        .then(|| above.to_owned())
}

/// Controllers that a group was made to delegate. Dropping this value reverts the delegation.
#[derive(Debug)]
pub(super) struct Delegation {
    parent: PathBuf,
    controllers: Vec<String>,
    /// The group into which the monitor moved.
    own: Option<PathBuf>,
}

impl Delegation {
    /// Makes a group delegate these controllers. Returns `None` if it already does, or if it is not
    /// a group of version 2.
    ///
    /// # Errors
    /// The reason why it cannot delegate them.
    pub(super) fn request(parent: &Path, wanted: &[&str]) -> Result<Option<Self>, String> {
        let read = |file: &str| fs::read_to_string(parent.join(file)).ok();
        let (Some(there), Some(down)) =
            (read("cgroup.controllers"), read("cgroup.subtree_control"))
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
            let all = read("cgroup.procs").unwrap_or_default();
            if all.lines().any(|pid| pid != own) {
                let what = parent.display();
                delegation.controllers.clear();
                return Err(format!(
                    "other processes are in {what}, and a group with processes delegates no controllers"
                ));
            }
            done = delegation.move_monitor(&own).and_then(|()| delegation.write('+'));
        }
        match done {
            Ok(()) => Ok(Some(delegation)),
            Err(e) => Err(format!("{}: {e}", parent.join("cgroup.subtree_control").display())),
        }
    }

    /// Moves the monitor into a group of its own.
    fn move_monitor(&mut self, own: &str) -> io::Result<()> {
        let folder = self.parent.join(group_name::own_name(group_name::MONITOR)?);
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
        // If the monitor did not move, other groups may use the delegated controllers by now.
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
    fn only_missing_controllers_are_delegated() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str| folder.path().join(name);
        let down = |wanted: &[&str]| Delegation::request(folder.path(), wanted);
        assert!(down(&["memory"]).expect("version 1").is_none());
        fs::write(file("cgroup.controllers"), "cpu io memory pids\n").expect("written");
        let set = |text: &str| fs::write(file("cgroup.subtree_control"), text).expect("written");
        let written = || fs::read_to_string(file("cgroup.subtree_control")).expect("read");
        for (before, wanted, after) in [
            ("", &["memory", "pids"][..], "+memory +pids"),
            ("cpu pids\n", &["memory", "pids"], "+memory"),
            ("memory\n", &["memory"], "memory\n"),
            ("", &["rdma"], ""),
            ("", &[], ""),
        ] {
            set(before);
            drop(down(wanted).expect("written"));
            assert_eq!(written(), after, "{before:?} {wanted:?}");
        }
    }

    #[test]
    fn the_group_above_is_taken_only_if_it_is_delegated_to_this_user() {
        let folder = tempfile::tempdir().expect("a folder");
        let (top, own) = (folder.path(), folder.path().join("own"));
        fs::create_dir(&own).expect("made");
        let set = |group: &Path, text: &str| {
            fs::write(group.join("cgroup.subtree_control"), text).expect("written");
        };
        let user = fs::metadata(top).expect("it exists").uid();
        for (of_top, of_own, wanted, expected) in [
            ("memory pids\n", "", &["memory"][..], true),
            ("memory pids\n", "", &["memory", "pids"], true),
            ("pids\n", "", &["memory"], false),
            ("memory\n", "memory\n", &["memory"], false),
            ("memory\n", "", &[], false),
        ] {
            set(top, of_top);
            set(&own, of_own);
            let found = above(&own, wanted, user);
            assert_eq!(
                found.as_deref(),
                expected.then_some(top),
                "{of_top:?} {of_own:?} {wanted:?}"
            );
            assert_eq!(above(&own, wanted, user + 1), None, "it belongs to another user");
        }
    }

    #[test]
    fn the_monitors_own_group_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("cgroup.subtree_control"), "").expect("written");
        let (parent, controllers) = (folder.path().to_owned(), vec!["memory".to_owned()]);
        let mut delegation = Delegation { parent, controllers, own: None };
        let own = std::process::id().to_string();
        delegation.move_monitor(&own).expect("made");
        let group = delegation.own.clone().expect("it is there");
        assert_eq!(fs::read_to_string(group.join("cgroup.procs")).expect("written"), own);
        fs::remove_file(group.join("cgroup.procs")).expect("in a group it is no file");
        drop(delegation);
        let written = fs::read_to_string(folder.path().join("cgroup.subtree_control"));
        assert_eq!(written.expect("read"), "-memory");
        assert_eq!(fs::read_to_string(folder.path().join("cgroup.procs")).expect("back"), own);
        assert!(!group.exists());
    }
}
