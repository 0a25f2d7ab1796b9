//! Usage errors, broken pipes, and requests that `skopos` never sends.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use crate::support::{Running, run, runtime_dir, skopos};

#[test]
fn a_mistyped_verb_suggests_the_nearest() {
    let dir = runtime_dir();
    let ran = run(dir.path(), &["wacth", "x"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("watch"), "{ran:?}");
}

#[test]
fn a_value_below_zero_is_refused_with_the_one_that_would_be_right() {
    let dir = runtime_dir();
    for (args, why, hint) in [
        (&["jobs", "--since", "-1h"][..], "`-1h` is not a duration", "did you mean `1h`?"),
        (&["rule", "test", "a", "--since", "-6h"][..], "not a duration", "did you mean `6h`?"),
        (&["trace", "gate", "a", "b", "--mean", "-5%"][..], "a rise is", "did you mean `5%`?"),
        (&["trace", "requests", "--over", "-1ms"][..], "not a duration", "did you mean `1ms`?"),
    ] {
        let ran = run(dir.path(), args);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains(why) && ran.stderr.contains(hint), "{ran:?}");
    }
}

#[test]
fn help_of_every_verb_opens_with_an_example() {
    let dir = runtime_dir();
    let help = run(dir.path(), &["--help"]);
    assert!(help.stdout.starts_with("Example: "), "{help:?}");
    let verbs = [
        "up",
        "agent",
        "ls",
        "get",
        "watch",
        "publish",
        "calibrate",
        "doctor",
        "completion",
        "man",
    ];
    for verb in verbs {
        assert!(help.stdout.contains(verb), "{verb} is not listed");
        let ran = run(dir.path(), &[verb, "--help"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.stdout.starts_with("Example: "), "{verb}: {ran:?}");
    }
}

#[test]
fn completion_and_manual_page() {
    let dir = runtime_dir();
    for shell in ["bash", "zsh", "fish"] {
        let ran = run(dir.path(), &["completion", shell]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.stdout.contains("skopos"), "{shell}");
    }
    let page = run(dir.path(), &["man"]);
    assert!(page.stdout.contains(".TH"), "{page:?}");
    let page = run(dir.path(), &["man", "watch"]);
    assert!(page.stdout.contains(".TH skopos-watch"), "{page:?}");
    assert_eq!(run(dir.path(), &["man", "nosuch"]).code, 2);
}

#[test]
fn a_broken_pipe_is_quiet() {
    let agent = Running::start(&[]);
    for args in [&["watch", "self/**"][..], &["watch", "self/**", "--json"]] {
        let mut child = skopos(agent.path(), args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        // The test reads one byte and then closes the pipe.
        let mut stdout = child.stdout.take().expect("piped");
        stdout.read_exact(&mut [0]).expect("a byte");
        drop(stdout);
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
    }
}

#[test]
fn output_without_a_terminal_has_no_colour() {
    let agent = Running::start(&[]);
    for args in [&["ls", "-l"][..], &["doctor"], &["get", "mem/**"]] {
        assert!(!agent.run(args).stdout.contains('\x1b'), "{args:?}");
    }
}

#[test]
fn json_and_plain_exclude_each_other() {
    let dir = runtime_dir();
    assert_eq!(run(dir.path(), &["ls", "--json", "--plain"]).code, 2);
}

/// Sends `bytes` to the agent's socket and returns the answer.
fn send(agent: &Running, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(agent.path().join("agent.sock")).expect("it listens");
    // The agent may close the connection in the middle of a message that is too long.
    let _ = stream.write_all(bytes);
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn malformed_requests_are_refused_and_counted() {
    let agent = Running::start(&[]);
    for bytes in [
        &b"\n"[..],
        b"{}\n",
        b"nonsense\n",
        b"{\"verb\":\"publish\"}\n",
        b"{\"verb\":\"reboot\"}\n",
        b"\xff\xfe\x00\n",
        b"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\n",
    ] {
        let answer = send(&agent, bytes);
        assert!(answer.contains("refused"), "{bytes:?}: {answer}");
    }
    assert_eq!(send(&agent, &vec![b'x'; 1 << 20]), "", "a request that is too long gets no answer");
    crate::support::eventually("the refusals are counted", || {
        let ran = agent.run(&["get", "self/requests_refused_total", "--plain"]);
        let count: Option<u64> = ran.stdout.split('\t').nth(1).and_then(|v| v.parse().ok());
        count.is_some_and(|count| count >= 8)
    });
}

#[test]
fn idle_connections_do_not_keep_others_out() {
    let agent = Running::start(&[]);
    let idle: Vec<UnixStream> =
        (0..40).filter_map(|_| UnixStream::connect(agent.path().join("agent.sock")).ok()).collect();
    crate::support::eventually("the agent closes silent connections", || {
        agent.run(&["publish", "app/a", "1"]).code == 0
    });
    drop(idle);
}
