//! Attacks on a hub, in their short form: `tests/abuse` has the suite. This build is slow, so neither time nor memory is
//! judged: the hub has to survive, and to serve a new client.

use std::process::Command;

#[test]
fn a_hub_survives_abuse_and_serves_a_reader_meanwhile() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/abuse/abuse.py");
    let program = ["--skopos", env!("CARGO_BIN_EXE_skopos")];
    let mut abuse = Command::new("python3");
    abuse.arg(script).args(program).args(["--quick", "--lenient"]);
    let ran = match abuse.output() {
        Ok(ran) => ran,
        Err(e) => {
            println!("skipped: python3 cannot be started: {e}");
            return;
        }
    };
    let told = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{told}\n{}", String::from_utf8_lossy(&ran.stderr));
    println!("{told}");
}
