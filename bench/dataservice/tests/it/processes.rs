//! Processes of the service begin and end together.

use skopos_dataservice::case::folder::Folder;
use skopos_dataservice::case::servers;
use skopos_dataservice::load::Size;
use skopos_dataservice::process::Work;

use crate::setup::launcher;

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
