//! Processes of the service begin and end together.

use skopos_dataservice::case::folder::Folder;
use skopos_dataservice::case::servers;
use skopos_dataservice::load::Size;
use skopos_dataservice::process::Work;

use std::process::{Command, Stdio};

use crate::setup::launcher;

#[test]
fn the_folder_of_traces_of_a_server_is_made() {
    let folder = Folder::new().expect("a folder");
    let traces = folder.path().join("new/traces");
    let start = |trace: &std::path::Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_skopos-dataservice"));
        // The socket cannot be made, so the server ends at once.
        command.args(["server", "--name", "kv", "--socket", "/proc/none/s", "--segments"]);
        command.arg(folder.path().join("run")).arg("--trace").arg(trace).stdin(Stdio::null());
        command.output().expect("it runs")
    };
    start(&traces);
    let made = std::fs::read_dir(&traces).expect("made").flatten();
    assert!(made.count() > 0, "the trace has begun");
    let file = folder.path().join("file");
    std::fs::write(&file, "not a folder").expect("written");
    let refused = start(&file.join("traces"));
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && text.contains("make the folder of traces"), "{text}");
}

#[test]
fn a_collector_without_a_recorder_for_it_is_refused() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skopos-dataservice"));
    command.args(["server", "--name", "kv", "--socket", "/proc/none/s"]);
    command.args(["--collector", "http://127.0.0.1:1"]).stdin(Stdio::null());
    let refused = command.output().expect("it runs");
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && text.contains("this program brings none"), "{text}");
}

#[test]
fn a_server_ends_when_its_last_client_is_killed() {
    let folder = Folder::new().expect("a folder");
    let launcher = launcher(None);
    let (mut servers, paths) = servers(&launcher, &folder).expect("a server");
    let size = Size::default();
    let mut clients: Vec<_> = (0..2)
        .map(|number| launcher.client(number, Work::Steady, &size, &paths).expect("a client"))
        .collect();
    clients[0].tell("10").expect("told");
    clients[0].line().expect("a report");
    for client in &mut clients {
        client.kill();
    }
    servers[0].wait().expect("the server ends by itself");
    assert!(!paths[0].exists(), "its socket is removed");
}

#[test]
fn a_client_fails_when_its_server_is_killed() {
    let folder = Folder::new().expect("a folder");
    let launcher = launcher(None);
    let (mut servers, paths) = servers(&launcher, &folder).expect("a server");
    let mut client = launcher.client(0, Work::Steady, &Size::default(), &paths).expect("a client");
    // Longer than the test: the end of the server ends it, and nothing else.
    client.tell("1000").expect("told");
    servers[0].kill();
    assert!(client.line().is_err(), "the load cannot be done");
    assert!(client.wait().is_err(), "the client says that it failed");
}
