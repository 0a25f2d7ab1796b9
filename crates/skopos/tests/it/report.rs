//! The files that `skopos run --report` writes.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use skopos_model::task::RESOURCES;

use crate::json::check;
use crate::support::{Running, eventually, run, runtime_dir};

/// Runs a command under the monitor, and returns the folder of its report.
fn report(dir: &Path, args: &[&str]) -> PathBuf {
    let folder = dir.join("report");
    let place = folder.display().to_string();
    let mut all = vec!["run", "--report", &place, "--series", "10ms"];
    all.extend(args);
    run(dir, &all);
    folder
}

fn summary(folder: &Path) -> Json {
    let text = fs::read_to_string(folder.join("summary.json")).expect("a summary");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn summaries_are_as_their_schema_says() {
    for args in [
        ["--level=2", "--", "sh", "-c", "sleep 0.05; exit 3"],
        ["--level=1", "--", "sh", "-c", "kill -TERM $$"],
        ["--limit=wall=50ms,memory=1TiB", "--", "sh", "-c", "sleep 60 & sleep 61"],
    ] {
        let dir = runtime_dir();
        let summary = summary(&report(dir.path(), &args));
        check("summary", &summary);
    }
}

#[test]
fn files_are_as_their_schema_says() {
    let dir = runtime_dir();
    let folder = report(dir.path(), &["--level=3", "--", "sh", "-c", "cat /proc/self/stat | wc"]);
    let text = fs::read_to_string(folder.join("files.json")).expect("files");
    let files: Json = serde_json::from_str(&text).expect("JSON");
    check("files", &files);
    assert_eq!(files["processes_not_seen"], 0, "{files:#}");
    assert_eq!(summary(&folder)["level"], 3);
}

/// The files of a task at level 3 are rows of its job and of the archive.
#[test]
fn files_of_a_task_are_found_in_sql() {
    let up = Running::start_as("up", &[]);
    let folder = tempfile::tempdir().expect("a folder");
    let (written, archive) = (folder.path().join("written"), folder.path().join("tasks.sqlite"));
    let script = format!("echo 12345 > {}", written.display());
    let archive = archive.display().to_string();
    let args = ["run", "--level=3", "--name=writer", "--archive", &archive, "--", "sh", "-c"];
    let ran = up.run(&[&args[..], &[&script]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    let of_file = |table: &str| {
        format!(
            "SELECT class, kind, files, opens, written_bytes FROM {table} WHERE path = '{}'",
            written.display()
        )
    };
    let expected = serde_json::json!(
        [{"class": "writer", "kind": "file", "files": 1, "opens": 1, "written_bytes": 6.0}]
    );
    let rows = |args: &[&str]| {
        let ran = up.run(&[&["sql", "--json"], args].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.json()["rows"].clone()
    };
    let mut job = String::new();
    eventually("the job is found", || {
        let found = rows(&["SELECT job FROM jobs WHERE application = 'writer'"]);
        found[0]["job"].as_str().unwrap_or_default().clone_into(&mut job);
        !job.is_empty()
    });
    let of_job = format!("{} AND job = '{job}'", of_file("job_files"));
    assert_eq!(rows(&[&of_job]), expected);
    assert_eq!(rows(&["--archive", &archive, &of_file("task_files")]), expected);
    let unnamed = up.run(&["sql", "SELECT path FROM job_files"]);
    assert!(unnamed.code != 0 && unnamed.stderr.contains("must name its jobs"), "{unnamed:?}");
}

#[test]
fn limits_that_were_set_are_in_the_summary() {
    let dir = runtime_dir();
    let summary = summary(&report(dir.path(), &["--limit=memory=1GiB,wall=1m", "--", "true"]));
    let expected = serde_json::json!([
        { "name": "resident_bytes_max", "most": 1_073_741_824.0, "unit": "bytes" },
        { "name": "wall_seconds", "most": 60.0, "unit": "seconds" },
    ]);
    assert_eq!(summary["limits_set"], expected);
}

#[test]
fn explained_as_its_schema_says() {
    let dir = runtime_dir();
    for level in ["--level=1", "--level=2"] {
        check("run-explain", &run(dir.path(), &["run", "--explain", "--json", level]).json());
    }
}

/// The published schema names each resource with its unit.
#[test]
fn the_schema_names_every_resource() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json/summary.schema.json");
    let schema: Json =
        serde_json::from_str(&fs::read_to_string(file).expect("a schema")).expect("JSON");
    let published = schema["properties"]["resources"]["properties"].as_object().expect("names");
    assert_eq!(published.len(), RESOURCES.len());
    for r in RESOURCES {
        let found = published.get(r.name).unwrap_or_else(|| panic!("{} is missing", r.name));
        assert_eq!(found["description"], r.help, "{}", r.name);
        assert_eq!(found["allOf"][1]["properties"]["unit"]["const"], r.unit, "{}", r.name);
    }
}

#[test]
fn a_summary_that_is_wrong_is_refused() {
    let dir = runtime_dir();
    let good = summary(&report(dir.path(), &["--", "true"]));
    type Break = fn(&mut Json);
    let wrongs: [Break; 4] = [
        |s| s["resources"]["wall_seconds"]["unit"] = "minutes".into(),
        |s| s["resources"]["cpu_seconds"]["completeness"] = "most".into(),
        |s| s["ended"]["exit_type"] = 0.into(),
        |s| s["invented"] = 1.into(),
    ];
    for wrong in wrongs {
        let mut bad = good.clone();
        wrong(&mut bad);
        assert!(std::panic::catch_unwind(|| check("summary", &bad)).is_err(), "{bad:#}");
    }
}

#[test]
fn the_page_shows_what_the_task_was_called_and_runs_nothing_of_it() {
    let dir = runtime_dir();
    let script = "sleep 0.1; : '<script>alert(1)</script>' \"&\"";
    let folder = report(dir.path(), &["--name", "<b>\"class\"", "--", "sh", "-c", script]);
    let page = fs::read_to_string(folder.join("report.html")).expect("a page");
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{page}");
    assert!(page.contains("<h1>&lt;b&gt;&quot;class&quot;</h1>"), "{page}");
    assert!(!page.contains("<script") && !page.contains("<b>"), "{page}");
    assert!(page.contains("Resident memory</h3>"), "0.1 s with a sample every 10 ms: {page}");
}

/// Returns the values of `series.csv` by column.
fn columns(folder: &Path) -> Vec<(String, Vec<Option<f64>>)> {
    let text = fs::read_to_string(folder.join("series.csv")).expect("a series");
    let mut lines = text.lines();
    let names = lines.next().expect("names").split(',');
    let mut columns: Vec<_> = names.map(|name| (name.to_owned(), Vec::new())).collect();
    for line in lines {
        for ((_, values), value) in columns.iter_mut().zip(line.split(',')) {
            values.push(value.parse().ok());
        }
    }
    columns
}

#[test]
fn the_arrow_file_has_what_the_csv_has() {
    use arrow_array::{Array as _, Float64Array};

    let dir = runtime_dir();
    let folder = report(dir.path(), &["--", "sleep", "2"]);
    let file = fs::File::open(folder.join("series.arrow")).expect("a file");
    let mut reader = arrow_ipc::reader::FileReader::try_new(file, None).expect("an Arrow file");
    let batch = reader.next().expect("a batch").expect("whole");
    assert!(reader.next().is_none());
    let expected = columns(&folder);
    assert_eq!(batch.num_columns(), expected.len());
    assert!(batch.num_rows() > 3, "2 s with a sample every 10 ms, on a machine that may be busy");
    let schema = batch.schema();
    for ((at, (name, values)), field) in expected.iter().enumerate().zip(schema.fields()) {
        let column: &Float64Array = batch.column(at).as_any().downcast_ref().expect("Float64");
        let unit = ["bytes", "seconds"].into_iter().find(|unit| name.ends_with(unit)).unwrap_or("");
        assert_eq!((field.name(), field.is_nullable()), (name, true));
        assert_eq!(field.metadata()["unit"], unit, "{name}");
        assert_eq!(&column.iter().collect::<Vec<_>>(), values, "{name}");
    }
    assert!(batch.columns().iter().any(|c| c.null_count() > 0), "an unknown value is null");
}

/// Reads the file the way that a user of Python would.
#[test]
fn python_reads_the_arrow_file() {
    let python = |code: &str, folder: &Path| {
        let ran = std::process::Command::new("python3").args(["-c", code]).arg(folder).output();
        ran.map(|ran| (ran.status.success(), String::from_utf8_lossy(&ran.stdout).into_owned()))
    };
    let dir = runtime_dir();
    if !python("import pyarrow", dir.path()).is_ok_and(|(is_there, _)| is_there) {
        eprintln!("SKIPPED: python3 has no pyarrow: `pip install pyarrow`");
        return;
    }
    let folder = report(dir.path(), &["--", "sleep", "0.2"]);
    let code = "import pyarrow.ipc, sys; table = pyarrow.ipc.open_file(sys.argv[1] +                 '/series.arrow').read_all(); print(table.num_rows,                 table.schema.field('read_bytes').metadata[b'unit'].decode(),                 table.schema.field('threads').type)";
    let (_, said) = python(code, &folder).expect("python3 ran before");
    let rows = columns(&folder)[0].1.len();
    assert_eq!(said.trim(), format!("{rows} bytes double"));
}

/// Imported reports of other tools are summaries like our own.
#[test]
fn imported_reports_are_as_the_schema_says() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../task/tests/data/import");
    let mut read = 0;
    for file in fs::read_dir(data).expect("recorded reports") {
        let text = fs::read_to_string(file.expect("a file").path()).expect("text");
        for summary in skopos_task::import::import(&text).expect("a report") {
            check("summary", &serde_json::to_value(&summary).expect("JSON"));
            read += 1;
        }
    }
    assert_eq!(read, 8);
}
