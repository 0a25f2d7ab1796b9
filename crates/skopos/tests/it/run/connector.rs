//! The proc connector, used by an ordinary user.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

#[test]
fn an_ordinary_user_hears_of_every_process() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become an ordinary user");
        return;
    }
    // The other user needs a folder that it may enter.
    let folder = tempfile::tempdir_in("/tmp").expect("a folder");
    let own = folder.path().join("skopos");
    std::fs::copy(env!("CARGO_BIN_EXE_skopos"), &own).expect("copied");
    for path in [folder.path(), &own] {
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(path, open).expect("opened");
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&own);
    command.args(["run", "--json", "--mechanism", "wait4,procfs,connector", "--", "sh", "-c"]);
    command.arg("for n in $(seq 20); do /bin/true; done").current_dir("/");
    let outcome = measure_by(command);
    let mechanisms = outcome.summary["mechanisms"].as_array().expect("a list");
    let connector = mechanisms.iter().find(|m| m["name"] == "connector").expect("it is listed");
    if connector["used"] != true {
        let why = connector["why"].as_str().expect("a reason");
        assert!(why.contains("Linux 6.6") || why.contains("container"), "{why}");
        eprintln!("skipped: {why}");
        return;
    }
    if outcome.of("processes_total", "completeness") == "all" {
        // The shell, `seq`, and twenty times `true`.
        assert_eq!(outcome.value("processes_total"), 22.0);
    } else {
        eprintln!("skipped: the machine was so busy that the kernel dropped events");
    }
}
