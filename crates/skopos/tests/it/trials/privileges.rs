//! Set-user-id programs and debuggers inside a task of an ordinary user: they work at the default level, and the
//! report says what that level does without; with tracing it says what is lost.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value as Json;
use tempfile::TempDir;

/// Writes its effective user, and whether it can be traced: 0 is yes.
const PRIVILEGED: &str = r#"
#include <stdio.h>
#include <sys/ptrace.h>
#include <unistd.h>
int main(void) { printf("%d %ld\n", geteuid(), ptrace(PTRACE_TRACEME, 0, 0, 0)); return 0; }
"#;

/// A folder that an ordinary user may enter, with the monitor, a helper of root's and the same program without the
/// bit.
struct Helpers(TempDir);

impl Helpers {
    /// Returns `None` where this user cannot become another, or files give no privileges.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can become an ordinary user");
            return None;
        }
        let folder = tempfile::Builder::new().prefix("skopos-helpers-").tempdir();
        let helpers = Self(folder.expect("a folder"));
        let at = |name: &str| helpers.0.path().join(name);
        std::fs::copy(env!("CARGO_BIN_EXE_skopos"), at("skopos")).expect("copied");
        std::fs::write(at("privileged.c"), PRIVILEGED).expect("written");
        let mut compiler = Command::new("cc");
        compiler.args(["-g", "-o"]).arg(at("privileged")).arg(at("privileged.c"));
        assert!(compiler.status().expect("a C compiler").success());
        std::fs::copy(at("privileged"), at("plain")).expect("copied");
        for (place, mode) in [
            (helpers.0.path().to_owned(), 0o755),
            (at("skopos"), 0o755),
            (at("plain"), 0o755),
            (at("privileged"), 0o4755),
        ] {
            std::fs::set_permissions(place, PermissionsExt::from_mode(mode)).expect("opened");
        }
        let bare = helpers.programs(&[]);
        if bare != BOTH {
            eprintln!("skipped: this file system gives no privileges: {bare}");
            return None;
        }
        Some(helpers)
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// Runs a command as an ordinary user.
    fn as_user(&self, words: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.args(words).current_dir("/").env("HOME", Path::new("/nonexistent"));
        command
    }

    /// Returns the output of both programs, run by a monitor with these arguments or by none.
    fn programs(&self, monitor: &[&str]) -> String {
        let (helper, plain) = (self.at("privileged"), self.at("plain"));
        // A shell in between: no process of an ordinary user may trace one that has gained privileges.
        let task = ["sh", "-c", "$0; $1", &helper, &plain];
        let ran = self.as_user(&[monitor, &task].concat()).output().expect("it starts");
        String::from_utf8(ran.stdout).expect("UTF-8")
    }

    /// Returns the reason that a report gives for a mechanism, and whether it was used.
    fn reason(&self, options: &[&str], name: &str) -> (bool, String) {
        let own = self.at("skopos");
        let words = [&[&*own, "run", "--json"], options, &["--", "true"]].concat();
        let ran = self.as_user(&words).output().expect("it starts");
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        let last = said.lines().last().unwrap_or_default();
        let summary: Json = serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {said}"));
        let all = summary["mechanisms"].as_array().expect("a list");
        let it = all.iter().find(|m| m["name"] == name).expect("each is listed");
        (it["used"] == true, it["why"].as_str().unwrap_or_default().to_owned())
    }
}

/// The output of both programs: the first gains privileges and refuses to be traced.
const BOTH: &str = "0 -1\n65534 0\n";

#[test]
fn set_user_id_programs_and_debuggers_work_unless_tracing_is_requested() {
    let Some(helpers) = Helpers::new() else { return };
    let own = helpers.at("skopos");
    assert_eq!(helpers.programs(&[&own, "run", "--"]), BOTH);
    let lost = "set-user-id programs do not gain their privileges";
    let (is_used, why) = helpers.reason(&[], "ptrace");
    assert!(!is_used && why.contains(lost), "{why}");
    // With tracing it is the kernel's rule that they do not work. The report says so.
    let traced = [&*own, "run", "--level", "2", "--"];
    assert_eq!(helpers.programs(&traced), "65534 -1\n65534 -1\n");
    let (is_used, why) = helpers.reason(&["--level", "2"], "ptrace");
    assert!(is_used && why.contains(lost), "{why}");
}

#[test]
fn a_debugger_works_in_a_task_of_an_ordinary_user() {
    let Some(helpers) = Helpers::new() else { return };
    if Command::new("gdb").arg("--version").output().is_err() {
        eprintln!("skipped: there is no gdb");
        return;
    }
    let (own, plain) = (helpers.at("skopos"), helpers.at("plain"));
    let steps = ["-ex", "break main", "-ex", "run", "-ex", "print 6 * 7", "-ex", "continue"];
    let gdb = [&["gdb", "-nx", "-batch"], &steps[..], &[&plain]].concat();
    let debug = |monitor: &[&str]| {
        let ran = helpers.as_user(&[monitor, &gdb].concat()).output().expect("it starts");
        let out = String::from_utf8_lossy(&ran.stdout).into_owned();
        (out.contains("$1 = 42"), out.contains("exited normally"), out)
    };
    let (bare, ..) = debug(&[]);
    if !bare {
        eprintln!("skipped: gdb cannot start a program here");
        return;
    }
    let (has_stopped, has_ended, out) = debug(&[&own, "run", "--"]);
    assert!(has_stopped && has_ended, "{out}");
}
