//! The archive: each imported report comes out once, and nothing else does.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use skopos_model::task::{
    ExitType, FILES_VERSION, LimitSet, MAX_FILE_ROWS, SUMMARY_VERSION, Summary, resource,
};
use skopos_store::archive::{
    Archive, ArchivedTask, ConditionError, Conditions, DamagedTask, Error, Field, Filter, Keeper,
};
use skopos_store::estimate::{Minimize, estimate_from};

/// A report of a task that used this many bytes.
fn summary(class: &str, host: &str, at: f64, bytes: f64) -> Summary {
    let reading = |value: Option<f64>, unit: &str, completeness: &str| {
        json!({"value": value, "unit": unit, "method": "procfs", "completeness": completeness,
               "error_bound": null})
    };
    // From JSON, as in reports of earlier versions: fields that they lack must have defaults.
    let report = json!({
        "version": SUMMARY_VERSION,
        "task": {"class": class, "command": [class], "folder": "", "monitor": "skopos 0.1.0"},
        "host": {"node": host, "kernel": "6", "cores": 2, "memory_bytes": 1},
        "start_seconds": at, "end_seconds": at + 2.0,
        "ended": {"exit_type": "normal", "status": 0, "signal": null, "limits": [], "guilty": null},
        "level": 1,
        "resources": {
            "resident_bytes_max": reading(Some(bytes), "bytes", "sampled"),
            "wall_seconds": reading(Some(2.0), "seconds", "all"),
            "swap_bytes_max": reading(None, "bytes", "none"),
        },
        "mechanisms": [], "overhead": {"cpu_seconds": 0.0, "resident_bytes_max": 1, "stops": 0},
        "disturbed": [], "findings": [], "processes": [], "processes_left_out": 0
    });
    serde_json::from_value(report).expect("a report")
}

fn no_foreign(_: &str) -> Result<Vec<Summary>, String> {
    Ok(Vec::new())
}

fn put(folder: &Path, name: &str, summary: &Summary) {
    let place = folder.join(name);
    fs::create_dir_all(&place).expect("a folder");
    let text = serde_json::to_string_pretty(summary).expect("JSON");
    fs::write(place.join("summary.json"), text).expect("written");
}

fn three(folder: &Path) {
    put(folder, "a", &summary("align", "n01", 1.0, 1e9));
    put(folder, "b/deep", &summary("align", "n02", 2.0, 3e9));
    put(folder, "c", &summary("merge", "n01", 3.0, 5e6));
}

#[test]
fn the_same_folder_twice_adds_nothing_and_an_export_comes_back() {
    let folder = tempfile::tempdir().expect("a folder");
    three(folder.path());
    let mut archive = Archive::create(&folder.path().join("new/a.sqlite")).expect("an archive");
    let places = [folder.path().to_owned()];
    let first = archive.import(&places, "", &no_foreign, &|_| {}).expect("imported");
    assert_eq!((first.added, first.known, first.refused), (3, 0, 0), "{first:?}");
    let again = archive.import(&places, "", &no_foreign, &|_| {}).expect("imported");
    assert_eq!((again.added, again.known, again.refused), (0, 3, 0), "{again:?}");
    // White space makes no difference.
    let compact = serde_json::to_string(&summary("align", "n01", 1.0, 1e9)).expect("JSON");
    fs::write(folder.path().join("x.summary.json"), compact).expect("written");
    assert_eq!(archive.import(&places, "", &no_foreign, &|_| {}).expect("imported").known, 4);

    let mut lines = String::new();
    let exported = archive.export(&Conditions::default(), |text| {
        lines += &format!("{text}\n");
        true
    });
    assert_eq!(exported.expect("exported"), 3);
    let file = folder.path().join("all.jsonl");
    fs::write(&file, lines).expect("written");
    let mut other = Archive::create(&folder.path().join("b.sqlite")).expect("an archive");
    assert_eq!(other.import(&[file], "", &no_foreign, &|_| {}).expect("imported").added, 3);
    let all = Conditions::default();
    assert_eq!(other.classes(&all).expect("read"), archive.classes(&all).expect("read"));
    assert_eq!(other.damage().expect("checked"), Vec::<String>::new());
}

#[test]
fn files_that_are_not_reports_are_refused_by_name_and_the_others_imported() {
    let folder = tempfile::tempdir().expect("a folder");
    three(folder.path());
    let good = serde_json::to_value(summary("align", "n03", 9.0, 1.0)).expect("JSON");
    let bad = |name: &str, text: &[u8]| {
        fs::create_dir_all(folder.path().join(name)).expect("a folder");
        fs::write(folder.path().join(name).join("summary.json"), text).expect("written");
    };
    bad("d-empty", b"");
    bad("d-bytes", &[0xff, 0, 1, 2]);
    bad("d-other", br#"{"hello": 1}"#);
    let changed = |path: &str, value: serde_json::Value| {
        let mut json = good.clone();
        *json.pointer_mut(path).expect(path) = value;
        json.to_string()
    };
    bad("d-later", changed("/version", 99.into()).as_bytes());
    bad("d-nameless", changed("/task/class", "".into()).as_bytes());
    bad("d-backward", changed("/end_seconds", 1.into()).as_bytes());
    bad("d-negative", changed("/resources/wall_seconds/value", (-1).into()).as_bytes());
    bad("d-text", changed("/resources/wall_seconds/value", "2".into()).as_bytes());
    bad("d-cut", &good.to_string().as_bytes()[..100]);
    let lines = format!("{good}\n\nnonsense\n{}", changed("/start_seconds", 8.into()));
    fs::write(folder.path().join("z.jsonl"), lines).expect("written");
    let mut archive = Archive::create(&folder.path().join("a.sqlite")).expect("an archive");
    let places = [folder.path().to_owned(), folder.path().join("nowhere")];
    let done = archive.import(&places, "", &no_foreign, &|_| {}).expect("imported");
    assert_eq!((done.added, done.known, done.refused), (5, 0, 11), "{done:#?}");
    let said: Vec<String> =
        done.refusals.iter().map(|r| format!("{} {}", r.place, r.why)).collect();
    for part in [
        "d-later/summary.json a report of version 99",
        "z.jsonl:3 ",
        "nowhere",
        "without a class",
        "ends before",
        "`wall_seconds` is -1",
        "d-empty",
        "d-bytes",
        "d-other",
        "d-cut",
        "d-text",
    ] {
        assert!(said.iter().any(|s| s.contains(part)), "`{part}` is missing in {said:#?}");
    }
}

#[test]
fn reports_of_other_tools_are_read_by_the_foreign_reader() {
    let folder = tempfile::tempdir().expect("a folder");
    let other = |text: &str| match text.trim() {
        "two" => Ok(vec![summary("x", "n01", 1.0, 1.0), summary("x", "n01", 2.0, 1.0)]),
        "bad" => Ok(vec![summary("", "n01", 1.0, 1.0)]),
        _ => Err("it is neither".to_owned()),
    };
    for (name, text) in
        [("a.summary", "two"), ("b.summary", "bad"), ("c.summary", "hm"), ("d.txt", "two")]
    {
        fs::write(folder.path().join(name), text).expect("written");
    }
    let mut archive = Archive::create(&folder.path().join("a.sqlite")).expect("an archive");
    let done = archive.import(&[folder.path().to_owned()], "", &other, &|_| {}).expect("imported");
    assert_eq!((done.added, done.refused), (2, 2), "{done:#?}");
    assert!(done.refusals[1].why.ends_with("nor of another tool: it is neither"), "{done:#?}");
    let named =
        archive.import(&[folder.path().join("d.txt")], "", &other, &|_| {}).expect("imported");
    assert_eq!((named.known, named.refused), (2, 0));
}

#[test]
fn conditions_select() {
    let folder = tempfile::tempdir().expect("a folder");
    three(folder.path());
    let mut archive = Archive::create(&folder.path().join("a.sqlite")).expect("an archive");
    archive.import(&[folder.path().to_owned()], "autumn", &no_foreign, &|_| {}).expect("imported");
    for (text, expected) in [
        ("memory>2GB", 1),
        ("memory>=1GB", 2),
        ("resident_bytes_max<=3000000000, host=n01", 2),
        ("memory!=3GB", 2),
        ("host=n0*", 3),
        ("host!=n01", 1),
        ("name=align,host=n02,memory>1GiB", 1),
        ("host=n0?", 0),
        ("set=autumn", 3),
        ("set=spring", 0),
        ("monitor=skopos*", 3),
        ("exit=normal,status=0", 3),
        ("status!=0", 0),
        ("wall>=2s", 3),
        // An unknown value is neither above nor below another one.
        ("swap>=0", 0),
        ("swap<1GB", 0),
    ] {
        let conditions = Conditions::parse(text).expect(text);
        let tasks: u64 =
            archive.classes(&conditions).expect("read").iter().map(|class| class.tasks).sum();
        assert_eq!(tasks, expected, "{text}");
        assert_eq!(archive.export(&conditions, |_| true).expect("read"), expected, "{text}");
    }
}

#[test]
fn a_wrong_condition_is_refused_with_a_reason() {
    for (text, said) in [
        (
            "memory",
            "`memory` is not a condition; a condition looks like `memory>1GiB` or `host=n01`",
        ),
        ("", "`` is not a condition; a condition looks like `memory>1GiB` or `host=n01`"),
        (">1", "`>1` is not a condition; a condition looks like `memory>1GiB` or `host=n01`"),
        (
            "memory!1",
            "`memory!1` is not a condition; a condition looks like `memory>1GiB` or `host=n01`",
        ),
        ("memroy>1", "there is no field or resource `memroy`"),
        ("memory>lots", "`memory>lots`: a size looks like `4GiB`, `500MB` or `1048576`"),
        ("wall>-1s", "`wall>-1s`: a time looks like `30s`, `1h30m` or `2h`"),
        (
            "host>n01",
            "`host>n01`: a text is compared with `=` or `!=`, and `*` stands for anything",
        ),
        ("status=ok", "`status=ok`: a status looks like `0`"),
        ("exit=well", "`exit=well`: a task ends as `normal`, `signal`, `limit` or is `running`"),
        ("host=n01,processes>x", "`processes>x`: a number looks like `100`"),
    ] {
        assert_eq!(Conditions::parse(text).expect_err(text).to_string(), said);
    }
    let many = vec!["memory>1"; 1_000].join(",");
    assert_eq!(Conditions::parse(&many), Err(ConditionError::Many));
    // A quote is a character like any other.
    assert!(Conditions::parse("host=x' OR '1'='1").is_ok());
}

#[test]
fn merged_values_of_the_hosts_are_those_of_the_class() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut archive = Archive::create(&folder.path().join("a.sqlite")).expect("an archive");
    for n in 0..10 {
        let host = if n % 3 == 0 { "n01" } else { "n02" };
        assert!(
            archive
                .add(&summary("align", host, f64::from(n), 1e6 * f64::from(n)), None)
                .expect("added")
        );
    }
    assert!(!archive.add(&summary("align", "n01", 0.0, 0.0), None).expect("known"));
    let mut failed = summary("align", "n01", 50.0, 7e9);
    failed.ended.status = Some(1);
    archive.add(&failed, None).expect("added");
    let hosts = archive.usage("align", &Conditions::default()).expect("read");
    let mut whole = hosts["n01"]["resident_bytes_max"].clone();
    assert_eq!(whole.distribution.moments.count(), 5);
    whole.merge(&hosts["n02"]["resident_bytes_max"]);
    assert_eq!((whole.distribution.moments.count(), whole.lower_bounds), (11, 11));
    assert_eq!(whole.distribution.moments.max(), Some(7e9));
    let swap = &hosts["n02"]["swap_bytes_max"];
    assert_eq!((swap.distribution.moments.count(), swap.unknown), (0, 6));
    assert!(archive.usage("nothing", &Conditions::default()).expect("read").is_empty());

    // It is unknown how much a failed task would have needed.
    let memory = resource("memory").expect("it is there");
    let found = archive.records("align", memory, &Conditions::default(), None).expect("read");
    assert_eq!((found.records.len(), found.unfinished, found.lower_bounds), (10, 1, 10));
    assert!(found.records.iter().all(|r| r.seconds == 2.0 && r.value < 1e7));
    // The failed task is the latest one.
    let found = archive.records("align", memory, &Conditions::default(), Some(3)).expect("read");
    let values: Vec<f64> = found.evidence.iter().map(|one| one.record.value).collect();
    assert_eq!((values, found.unfinished), (vec![8e6, 9e6], 1));
    let on_n01 = Conditions::parse("host=n01").expect("a condition");
    let found = archive.memory_records("align", Keeper::Kernel, &on_n01, Some(3)).expect("read");
    let values: Vec<f64> = found.records.iter().map(|record| record.value).collect();
    assert_eq!((values, found.unfinished), (vec![6e6, 9e6], 1));
    let wall = resource("wall").expect("it is there");
    let found = archive.records("align", wall, &Conditions::default(), None).expect("read");
    assert!(found.records.iter().all(|r| (r.seconds, r.value) == (1.0, 2.0)));
    let swap = resource("swap").expect("it is there");
    assert_eq!(
        archive.records("align", swap, &Conditions::default(), None).expect("read").unknown,
        10
    );
}

#[test]
fn tasks_before_a_row_of_failures_are_still_records() {
    let mut archive = Archive::in_memory().expect("an archive");
    for n in 0..5 {
        let at = f64::from(n);
        archive.add(&summary("align", "n01", at, 1e6 * (1.0 + at)), None).expect("added");
    }
    let memory = resource("memory").expect("it is there");
    for n in 0..4 {
        let mut ended = summary("align", "n01", 10.0 + f64::from(n), 7e6);
        ended.ended.exit_type = ExitType::Limit;
        ended.ended.status = None;
        ended.ended.limits = vec!["memory: 7 MB > 6 MB".to_owned()];
        let (name, unit) = (memory.name.to_owned(), "bytes".to_owned());
        ended.limits_set = vec![LimitSet { name, most: 6e6, unit }];
        archive.add(&ended, None).expect("added");
    }
    let mut failed = summary("align", "n01", 20.0, 9e6);
    failed.ended.status = Some(1);
    archive.add(&failed, None).expect("added");
    let all = Conditions::default();
    let by_samples = archive.memory_records("align", Keeper::Samples, &all, Some(3));
    for found in [archive.records("align", memory, &all, Some(3)), by_samples] {
        let found = found.expect("read");
        // The latest three tasks that ended well, and then the attempts among the latest three tasks.
        let evidence: Vec<_> =
            found.evidence.iter().map(|one| (one.record.value, one.is_censored)).collect();
        let expected = [(3e6, false), (4e6, false), (5e6, false), (6e6, true), (6e6, true)];
        assert_eq!(evidence, expected);
        assert_eq!((found.records.len(), found.lower_bounds, found.unfinished), (3, 3, 3));
        let estimate = estimate_from(&found.evidence, Minimize::Retries, 1.0).expect("records");
        assert_eq!((estimate.maximum, estimate.count), (12e6, 3));
    }
    // With a record among the latest tasks the older ones do not count.
    let found = archive.records("align", memory, &all, Some(6)).expect("read");
    assert_eq!((found.records.len(), found.evidence.len(), found.unfinished), (1, 5, 5));
}

#[test]
fn other_files_are_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a");
    assert!(matches!(Archive::open(&path), Err(Error::Missing(_))));
    assert!(!path.exists(), "opening creates nothing");
    let text = "some text that is not a database, but long enough to be looked at".repeat(20);
    fs::write(&path, &text).expect("written");
    assert!(matches!(Archive::create(&path), Err(Error::NotAnArchive(_))));
    assert_eq!(fs::read_to_string(&path).expect("there"), text);
    let other = folder.path().join("b");
    let connection = rusqlite::Connection::open(&other).expect("a database");
    connection.execute_batch("CREATE TABLE task (id INTEGER)").expect("a table");
    assert!(matches!(Archive::create(&other), Err(Error::NotAnArchive(_))));
    let later = folder.path().join("c");
    drop(Archive::create(&later).expect("an archive"));
    let connection = rusqlite::Connection::open(&later).expect("a database");
    connection.pragma_update(None, "user_version", 99).expect("set");
    drop(connection);
    let refused = Archive::open(&later).expect_err("later").to_string();
    assert!(refused.contains("version 99 of the archive's format"), "{refused}");
}

#[test]
fn processes_that_create_the_file_together_all_open_it() {
    for _ in 0..30 {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.sqlite");
        let start = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    Archive::create(&path).expect("an archive");
                });
            }
        });
    }
}

#[test]
fn concurrent_writers_lose_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.sqlite");
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let path = &path;
            scope.spawn(move || {
                // Half of the reports are also written by the next writer.
                let mut archive = Archive::create(path).expect("an archive");
                for n in 0..50 {
                    let at = f64::from(25 * writer + n);
                    archive.add(&summary("align", "n01", at, at), None).expect("added");
                }
            });
        }
    });
    let archive = Archive::open(&path).expect("an archive");
    assert_eq!(archive.classes(&Conditions::default()).expect("read")[0].tasks, 125);
    assert_eq!(archive.damage().expect("checked"), Vec::<String>::new());
}

/// A document as `skopos run --level 3 --report` writes it, with so many files, the greatest first.
fn files(count: u64) -> Value {
    let of = |path: &str, bytes: u64| {
        json!({"path": path, "kind": "file", "device": 1, "inode": bytes, "opens": 1, "closes": 1,
               "reads": 2, "writes": 0, "read_bytes": bytes, "written_bytes": 0,
               "stream_read_bytes": 0, "stream_written_bytes": 0, "read_sizes": [0, bytes],
               "write_sizes": [], "maps": 0, "mapped_bytes": 0})
    };
    let all: Vec<Value> = (1..=count).rev().map(|n| of(&format!("/data/{n}"), n)).collect();
    json!({"version": FILES_VERSION, "method": "preload", "completeness": "at_least", "reason": "",
           "read_bytes": 0, "written_bytes": 0, "unattributed_read_bytes": null,
           "unattributed_written_bytes": null, "files_total": count, "files": all,
           "files_left_out": 0, "left_out": of("", 0), "peers": [], "peers_left_out": 0,
           "processes": [], "processes_left_out": 0, "processes_not_seen": 0, "not_seen": []})
}

#[test]
fn the_files_of_a_task_are_kept_with_its_report_and_bounded() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut archive = Archive::create(&folder.path().join("a.sqlite")).expect("an archive");
    let places = [folder.path().join("reports")];
    put(&places[0], "a", &summary("align", "n01", 1.0, 1e9));
    put(&places[0], "b", &summary("merge", "n02", 2.0, 1e9));
    let import = |archive: &mut Archive| {
        archive.import(&places, "", &no_foreign, &|_| {}).expect("imported")
    };
    assert_eq!(import(&mut archive).added, 2);
    assert_eq!(archive.files(&[], i64::MIN, 10).expect("read"), []);
    // The files of a report that is known are added, and those that cannot be read are named.
    let most = MAX_FILE_ROWS as u64;
    let text = files(most + 3).to_string();
    fs::write(places[0].join("a/files.json"), text).expect("written");
    fs::write(places[0].join("b/files.json"), r#"{"version":99}"#).expect("written");
    let again = import(&mut archive);
    assert_eq!((again.added, again.known, again.refused), (0, 2, 1), "{again:?}");
    assert!(again.refusals[0].why.contains("version 99"), "{again:?}");
    let kept = archive.files(&[], i64::MIN, 10).expect("read");
    let [of_align] = &kept[..] else { panic!("{kept:?}") };
    assert_eq!((of_align.node.as_str(), of_align.start_seconds), ("n01", 1.0));
    assert_eq!(
        (of_align.files.class.as_str(), of_align.files.files.len()),
        ("align", MAX_FILE_ROWS)
    );
    assert_eq!((of_align.files.files_left_out, of_align.files.left_out.read_bytes), (3, 6));
    let other = [Filter::OneOf(Field::Class, vec!["merge".to_owned()])];
    assert_eq!(archive.files(&other, i64::MIN, 10).expect("read"), []);
    assert_eq!(archive.files(&[], of_align.number, 10).expect("read"), []);
    assert_eq!(import(&mut archive).known, 2);
    assert_eq!(archive.files(&[], i64::MIN, 10).expect("read"), kept);
    assert_eq!(archive.damage().expect("checked"), Vec::<String>::new());
}

/// An export has the files of tasks, and an import of it takes them.
#[test]
fn the_files_of_tasks_come_back_from_an_export() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut archive = Archive::create(&folder.path().join("a.sqlite")).expect("an archive");
    let counted = serde_json::from_value(files(3)).expect("files");
    archive.add(&summary("align", "n01", 1.0, 1e9), Some(&counted)).expect("added");
    archive.add(&summary("merge", "n02", 2.0, 1e9), None).expect("added");
    let mut lines = Vec::new();
    let exported = archive.export(&Conditions::default(), |text| {
        lines.push(text.to_owned());
        true
    });
    assert_eq!(exported.expect("exported"), 2);
    let of = |line: &str| serde_json::from_str::<Value>(line).expect("JSON")["files"].clone();
    assert_eq!(of(&lines[0])["files"][0]["path"], "/data/3");
    assert_eq!(of(&lines[1]), Value::Null);
    let file = folder.path().join("all.jsonl");
    let wrong = lines[1].replace("\"merge\"", "\"other\"").replacen('{', "{\"files\":[1],", 1);
    fs::write(&file, format!("{}\n{}\n{wrong}\n", lines[0], lines[1])).expect("written");
    let mut other = Archive::create(&folder.path().join("b.sqlite")).expect("an archive");
    let done = other.import(&[file], "", &no_foreign, &|_| {}).expect("imported");
    assert_eq!((done.added, done.refused), (3, 1), "{done:?}");
    assert!(done.refusals[0].place.ends_with("all.jsonl:3"), "{done:?}");
    let of = |archive: &Archive| archive.files(&[], i64::MIN, 10).expect("read");
    assert_eq!(of(&other), of(&archive));
    assert_eq!(of(&other).len(), 1);
}

/// Returns what an archive passes on of each task.
fn tasks(path: &Path, conditions: &str) -> Vec<Result<ArchivedTask, DamagedTask>> {
    let archive = Archive::read(path).expect("an archive");
    let conditions = match conditions {
        "" => Conditions::default(),
        text => Conditions::parse(text).expect("conditions"),
    };
    let mut all = Vec::new();
    let read = archive.for_each_task(&conditions, |task| {
        all.push(task);
        true
    });
    read.expect("read");
    all
}

#[test]
fn tasks_are_read_with_everything_that_is_known_and_damage_costs_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.sqlite");
    let mut archive = Archive::create(&path).expect("an archive");
    let counted = serde_json::from_value(files(2)).expect("files");
    for (number, host) in (1..=6).zip(["n01", "n02"].into_iter().cycle()) {
        let mut task = summary("align", host, f64::from(number), 1e9);
        task.ended.status = (number != 1).then_some(0);
        archive.add(&task, Some(&counted).filter(|_| number < 3)).expect("added");
    }
    drop(archive);
    let whole = tasks(&path, "");
    let first = whole[0].as_ref().expect("whole");
    assert_eq!((first.number, first.summary.host.node.as_str()), (1, "n01"));
    assert_eq!(first.hash[..], Sha256::digest(&first.document)[..]);
    let paths = |task: &ArchivedTask| match &task.files {
        Some(Ok(files)) => files.files.len(),
        _ => 0,
    };
    assert_eq!(whole.iter().map(|task| paths(task.as_ref().expect("whole"))).sum::<usize>(), 4);
    // A condition on a status that is not known is not met, and is no damage.
    assert_eq!((tasks(&path, "status=0").len(), tasks(&path, "host=n01").len()), (5, 3));

    let connection = rusqlite::Connection::open(&path).expect("a database");
    let of_hash: Vec<u8> = Sha256::digest("nonsense").to_vec();
    let changes = [
        connection.execute("UPDATE task SET document = document || ' ' WHERE id = 3", []),
        connection
            .execute("UPDATE task SET document = 'nonsense', hash = ? WHERE id = 4", [of_hash]),
        connection.execute("UPDATE files SET document = '{' WHERE task = 1", []),
        connection.execute("UPDATE task SET document = CAST(X'ff' AS TEXT) WHERE id = 5", []),
    ];
    assert!(changes.into_iter().all(|changed| changed == Ok(1)));
    drop(connection);
    let damaged = tasks(&path, "");
    let told = |at: usize| damaged[at].as_ref().err().map_or("", |damage| damage.why.as_str());
    assert_eq!(told(2), "its report has changed since it was archived");
    assert!(told(3).starts_with("not a report of a task"), "{}", told(3));
    assert!(!told(4).is_empty(), "a text that is not one");
    assert_eq!((&damaged[1], &damaged[5]), (&whole[1], &whole[5]));
    let first = damaged[0].as_ref().expect("its report is whole");
    let why = first.files.as_ref().and_then(|files| files.as_ref().err());
    assert!(why.is_some_and(|why| why.starts_with("not the files of a task")), "{why:?}");
}

#[test]
fn a_damaged_page_of_an_archive_costs_the_tasks_on_it() {
    const TASKS: usize = 60;
    const PAGE: usize = 4096;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.sqlite");
    let mut archive = Archive::create(&path).expect("an archive");
    for number in 0..TASKS {
        let mut task = summary("align", "n01", number as f64, 1e9);
        // Few reports share a page.
        task.task.command = vec![format!("mark-{number:02}-{}", "x".repeat(1500))];
        archive.add(&task, None).expect("added");
    }
    drop(archive);
    let whole = tasks(&path, "");
    let mut bytes = fs::read(&path).expect("there");
    let mark = b"mark-30-";
    let at = bytes.windows(mark.len()).position(|part| part == mark).expect("there");
    bytes[at / PAGE * PAGE..][..PAGE].fill(0);
    fs::write(&path, bytes).expect("written");
    let left = tasks(&path, "");
    let damaged: Vec<&DamagedTask> = left.iter().filter_map(|task| task.as_ref().err()).collect();
    assert!((1..5).contains(&damaged.len()), "{damaged:?}");
    assert!(damaged.iter().all(|damage| damage.why.contains("malformed")), "{damaged:?}");
    assert_eq!(left.len(), TASKS);
    let same = left.iter().zip(&whole).filter(|(left, whole)| left == whole).count();
    assert_eq!(same + damaged.len(), TASKS);
}
