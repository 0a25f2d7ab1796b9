//! `skopos publish`.

use crate::support::{Running, signal, skopos};

#[test]
fn a_fact_of_ones_own_reads_like_any_other() {
    let agent = Running::start(&[]);
    let ran =
        agent.run(&["publish", "app/queue/depth", "17", "--unit", "bytes", "--kind", "state"]);
    assert_eq!((ran.code, ran.stdout.trim()), (0, "published n01/app/queue/depth"), "{ran:?}");
    let get = agent.run(&["get", "app/queue/depth", "--json"]);
    let reading = &get.json()["readings"][0];
    assert_eq!(reading["value"], 17.0);
    assert_eq!(reading["unit"], "bytes");
    assert_eq!(reading["kind"], "state");
    // The name of the node in front makes no difference.
    assert_eq!(
        agent
            .run(&["publish", "n01/app/queue/depth", "18", "--unit", "bytes", "--kind", "state"])
            .code,
        0
    );
    assert_eq!(agent.run(&["ls", "app/**"]).stdout.lines().count(), 1);
}

#[test]
fn every_type_of_value() {
    let agent = Running::start(&[]);
    for (topic, value, options, expected) in [
        ("t/double", "-1.5e3", &[][..], "-1500.0"),
        ("t/signed", "-3", &["--type", "i64"], "-3"),
        ("t/large", "18446744073709551615", &["--type", "u64"], "18446744073709551615"),
        ("t/list", r#"["n01","n02"]"#, &[], r#"["n01","n02"]"#),
        ("t/record", r#"{"tier":"nvme","free":12}"#, &[], r#"{"tier":"nvme","free":12}"#),
        ("t/text", r#""degraded""#, &[], r#""degraded""#),
    ] {
        let mut args = vec!["publish", topic, value];
        args.extend(options);
        let ran = agent.run(&args);
        assert_eq!(ran.code, 0, "{topic}: {ran:?}");
        let read = agent.run(&["get", topic, "--json"]).json()["readings"][0]["value"].clone();
        let expected: serde_json::Value = serde_json::from_str(expected).expect("JSON");
        assert_eq!(read, expected, "{topic}");
    }
}

#[test]
fn a_value_that_cannot_be_published_is_refused_with_its_reason() {
    let agent = Running::start(&[]);
    assert_eq!(agent.run(&["publish", "app/a", "1"]).code, 0);
    let long = "x".repeat(300);
    let deep = format!("{}1{}", "[".repeat(9), "]".repeat(9));
    let wide = format!("\"{}\"", "y".repeat(5000));
    for (args, part) in [
        (&["publish", "app/a", r#"["now a list"]"#][..], "of type f64"),
        (&["publish", "app/a", "1", "--unit", "bytes"], "no unit"),
        (&["publish", "mem/total_bytes", "1"], "measured by a sensor"),
        (
            &["publish", "insight/node/system_time", "3"],
            "only the agent publishes topics under `insight/`",
        ),
        (&["publish", "insight/mine", "3"], "only the agent publishes topics under `insight/`"),
        (&["publish", "self/polls", "3"], "only the agent publishes topics under `self/`"),
        (&["publish", "app/b", "nan"], "not a finite number"),
        (&["publish", "app/b", "-inf"], "not a finite number"),
        (&["publish", "app/b", "1e400"], "not"),
        (&["publish", "Mem/Total", "1"], "character 'M'"),
        (&["publish", "app//b", "1"], "empty segment"),
        (&["publish", "", "1"], "empty"),
        (&["publish", &long, "1"], "300 bytes"),
        (&["publish", "app/b", "seventeen"], "not JSON"),
        (&["publish", "app/b", "true"], "not `true`"),
        (&["publish", "app/b", "-1", "--type", "u64"], "not a value of type u64"),
        (&["publish", "app/b", "1", "--type", "f32"], "not a value type"),
        (&["publish", "app/b", "1", "--unit", "Furlongs!"], "not a unit"),
        (&["publish", "app/b", "1", "--kind", "thing"], "not a kind"),
        (&["publish", "app/b", &deep], "nested deeper"),
        (&["publish", "app/b", &wide], "bytes"),
        (&["publish", "app/never", "--remove"], "was not published through"),
    ] {
        let ran = agent.run(args);
        assert_eq!(ran.code, 2, "{args:?} {ran:?}");
        assert!(ran.stderr.contains(part), "no `{part}`: {args:?} {ran:?}");
        assert!(ran.stderr.contains("hint: "), "{args:?} {ran:?}");
    }
    assert_eq!(agent.run(&["ls", "app/b"]).code, 1, "a refused value registers no topic");
}

#[test]
fn a_fact_that_was_taken_away_may_come_back_as_another_type() {
    let agent = Running::start(&[]);
    assert_eq!(agent.run(&["publish", "app/a", "1"]).code, 0);
    assert_eq!(agent.run(&["publish", "app/a", "--remove"]).code, 0);
    assert_eq!(agent.run(&["get", "app/a"]).code, 1);
    assert_eq!(agent.run(&["publish", "app/a", "\"text\""]).code, 0);
    assert!(agent.run(&["get", "app/a"]).stdout.contains("\"text\""));
}

/// There are more publishers at one time than the agent has connections for, so they wait for their
/// turn.
#[test]
fn a_burst_of_publishes_loses_none() {
    let agent = Running::start(&[]);
    signal(&agent.child, "STOP");
    let children: Vec<_> = (0..60)
        .map(|n| {
            let topic = format!("burst/t{n}");
            skopos(agent.path(), &["publish", &topic, "1"]).spawn().expect("it starts")
        })
        .collect();
    std::thread::sleep(std::time::Duration::from_millis(200));
    signal(&agent.child, "CONT");
    for child in children {
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{output:?}");
    }
    assert_eq!(agent.run(&["ls", "burst/**"]).stdout.lines().count(), 60);
}
