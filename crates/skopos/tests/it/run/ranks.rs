//! Ranks of one job: each has a report, and the job has one.

use super::*;

/// Returns a monitor with the environment of rank `rank` of `size` in Slurm's job 77.
fn rank(rank: u32, size: u32, args: &[&str]) -> Command {
    let mut command = monitor(args);
    command.env("SLURM_JOB_ID", "77").env("SLURM_PROCID", rank.to_string());
    command.env("SLURM_NTASKS", size.to_string());
    command
}

fn summary(folder: &Path) -> Json {
    let text = std::fs::read_to_string(folder.join("summary.json")).expect("a report");
    serde_json::from_str(&text).expect("JSON")
}

fn value(summary: &Json, name: &str) -> f64 {
    let reading = &summary["resources"][name];
    reading["value"].as_f64().unwrap_or_else(|| panic!("{name}: {reading}"))
}

/// Checks that the job wrote `bytes`, and the bytes with which each child joined its control groups.
fn wrote(job: &Json, bytes: f64, ranks: u32) {
    let more = value(job, "written_bytes") - bytes;
    assert!((0.0..=f64::from(ranks) * 16.0).contains(&more), "{more}: {job}");
}

/// Checks that the job's report has the sums over its ranks, and returns the report.
fn adds_up(folder: &Path, ranks: u32) -> Json {
    let job = summary(folder);
    let each: Vec<Json> = (0..ranks).map(|n| summary(&folder.join(format!("rank-{n}")))).collect();
    for name in ["cpu_seconds", "written_bytes", "processes_total", "resident_bytes_max"] {
        let sum: f64 = each.iter().map(|summary| value(summary, name)).sum();
        assert!((value(&job, name) - sum).abs() <= 1e-6 * sum, "{name}: {job}");
    }
    let longest = each.iter().map(|summary| value(summary, "wall_seconds")).fold(0.0, f64::max);
    assert_eq!(value(&job, "wall_seconds"), longest);
    assert_eq!(job["job"]["ranks"].as_array().map(Vec::len), Some(ranks as usize), "{job}");
    job
}

#[test]
fn ranks_that_end_together_join_one_complete_report() {
    const RANKS: u32 = 12;
    let folder = tempfile::tempdir().expect("a folder");
    let archive = folder.path().join("tasks.sqlite");
    let place = folder.path().join("out");
    let script =
        "head -c $((1000 * (SLURM_PROCID + 1))) /dev/zero >/dev/null; exit $((SLURM_PROCID == 5))";
    let started: Vec<_> = (0..RANKS)
        .map(|number| {
            let args = ["--report", text(&place), "--archive", text(&archive), "--name", "solver"];
            let args: Vec<&str> = args.into_iter().chain(["--", "sh", "-c", script]).collect();
            rank(number, RANKS, &args).spawn().expect("it starts")
        })
        .collect();
    for (number, mut child) in started.into_iter().enumerate() {
        let code = child.wait().expect("it ends").code();
        assert_eq!(code, Some(i32::from(number == 5)), "each monitor exits like its task");
    }
    let job = adds_up(&place, RANKS);
    crate::json::check("summary", &job);
    assert_eq!(job["job"]["missing_total"], 0, "{job}");
    assert_eq!((&job["job"]["id"], &job["job"]["launcher"]), (&"77".into(), &"slurm".into()));
    wrote(&job, 78_000.0, RANKS);
    assert_eq!(job["resources"]["written_bytes"]["completeness"], "all", "{job}");
    assert_eq!(
        (&job["ended"]["exit_type"], &job["ended"]["status"]),
        (&"normal".into(), &1.into())
    );
    let first = job["findings"][0]["what"].as_str().expect("a finding");
    assert!(first.starts_with("rank 5 on "), "{first}");
    let page = std::fs::read_to_string(place.join("report.html")).expect("a page");
    assert!(page.contains("<h2>Ranks") && page.contains("All of them have a report"));
    // The archive has the job but not its ranks, and an import of the folder adds nothing.
    let outcome = Command::new(env!("CARGO_BIN_EXE_skopos"))
        .args(["archive", "import", "--json", "--archive", text(&archive), text(&place)])
        .output()
        .expect("it starts");
    let outcome: Json = serde_json::from_slice(&outcome.stdout).expect("JSON");
    assert_eq!((&outcome["added"], &outcome["known"]), (&0.into(), &1.into()), "{outcome}");
}

#[test]
fn the_files_of_all_ranks_are_in_the_report_of_the_job_and_in_the_archive() {
    const RANKS: u32 = 3;
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let (archive, place, input) = (path("tasks.sqlite"), path("out"), path("input"));
    std::fs::write(&input, [7; 5000]).expect("written");
    let own = path("own").display().to_string();
    let script = format!("head -c 1000 {} >{own}-$SLURM_PROCID", input.display());
    for number in 0..RANKS {
        assert!(!place.join("files.json").exists(), "not before all ranks have a report");
        let args = ["--level", "3", "--report", text(&place), "--archive", text(&archive)];
        let args = [&args[..], &["--", "sh", "-c", &script]].concat();
        assert!(rank(number, RANKS, &args).status().expect("it starts").success());
    }
    let read = std::fs::read_to_string(place.join("files.json")).expect("files");
    let files: Json = serde_json::from_str(&read).expect("JSON");
    crate::json::check("files", &files);
    let exported = Command::new(env!("CARGO_BIN_EXE_skopos"))
        .args(["archive", "export", "--archive", text(&archive)])
        .output()
        .expect("it starts");
    let exported: Json = serde_json::from_slice(&exported.stdout).expect("one report");
    assert_eq!(exported["job"]["ranks_total"], RANKS, "{exported}");
    for of in [&files, &exported["files"]] {
        let used = |path: &str| {
            let files = of["files"].as_array().expect("a list").iter();
            let file = files.filter(|file| file["path"] == path).collect::<Vec<_>>();
            assert_eq!(file.len(), 1, "{path}: {of}");
            ["opens", "read_bytes", "written_bytes"].map(|field| file[0][field].as_u64())
        };
        assert_eq!(used(text(&input)), [Some(3), Some(3000), Some(0)], "{of}");
        for number in 0..RANKS {
            assert_eq!(used(&format!("{own}-{number}"))[2], Some(1000), "{of}");
        }
    }
}

#[test]
fn a_rank_that_is_missing_is_named_and_joins_when_it_comes() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("out");
    let args = ["--report", text(&place), "--", "true"];
    for number in [0, 2] {
        assert!(rank(number, 3, &args).status().expect("it starts").success());
    }
    let job = summary(&place);
    assert_eq!(job["job"]["missing"], serde_json::json!([1]), "{job}");
    assert_eq!(job["resources"]["cpu_seconds"]["completeness"], "at_least", "{job}");
    assert!(rank(1, 3, &args).status().expect("it starts").success());
    assert_eq!(adds_up(&place, 3)["job"]["missing_total"], 0);
    // A second run of the same job, another job, and a task by itself are all refused.
    let again = rank(1, 3, &args);
    let mut other = rank(7, 8, &args);
    other.env("SLURM_JOB_ID", "78");
    for mut refused in [again, other, monitor(&args)] {
        let ran = refused.env_remove("SKOPOS").output().expect("it starts");
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("has a report already"), "{stderr}");
    }
}

#[test]
fn ranks_of_open_mpi_join() {
    let found = Command::new("mpirun").arg("--version").output();
    if !found.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: there is no mpirun here");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("out");
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "-n", "4"]);
    command.args([env!("CARGO_BIN_EXE_skopos"), "run", "--report", text(&place), "--"]);
    command.args(["sh", "-c", "head -c 1000 /dev/zero >/dev/null; /bin/true"]);
    let ran = command.output().expect("it starts");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let job = adds_up(&place, 4);
    wrote(&job, 4000.0, 4);
    assert_eq!(
        (&job["job"]["launcher"], &job["job"]["missing_total"]),
        (&"openmpi".into(), &0.into())
    );
    assert!(job["job"]["id"].as_str().is_some_and(|id| !id.is_empty()), "{job}");
}
