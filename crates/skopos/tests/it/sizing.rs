//! Sizes for schedulers: the hub's answer by HTTP, and the hooks in `contrib` that ask for it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use serde_json::Value as Json;

use crate::archive::report;
use crate::client::Up;
use crate::trace::fetched;

/// Starts a hub with thirty tasks of the class `align`, of 100 to 129 MiB.
fn start() -> Up {
    let up = Up::start();
    let file = up.agent.path().join("reports.jsonl");
    let line = |n: u64| report("align", "n01", n, (100 + n) << 20).to_string() + "\n";
    std::fs::write(&file, (0..30).map(line).collect::<String>()).expect("written");
    let imported = up.agent.run(&["archive", "import", file.to_str().expect("UTF-8")]);
    assert_eq!(imported.code, 0, "{imported:?}");
    up
}

fn estimate(up: &Up) -> Json {
    let got = up.get("/api/v1/estimate?class=align&resource=memory&max_risk=0.1");
    assert_eq!(got.status, 200, "{}", got.text());
    got.json()
}

#[test]
fn a_scheduler_gets_what_the_verb_says() {
    let up = start();
    let answer = estimate(&up);
    let verb = up.agent.run(&["estimate", "align", "--max-risk", "0.1", "--json"]).json();
    for name in
        ["class", "resource", "unit", "allocation", "maximum", "risk", "risk_bound", "count"]
    {
        assert_eq!(answer[name], verb[name], "{name}");
    }
    assert_eq!(answer["source"], "tasks");
    // Tasks name no user, so they are not the records of one.
    let got = up.get("/api/v1/estimate?class=align&user=ann");
    assert_eq!(got.status, 404, "{}", got.text());
    let got = up.get("/api/v1/estimate?class=align'%20OR%20'1'='1");
    assert_eq!(got.status, 404, "{}", got.text());
}

fn contrib(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib").join(name)
}

/// Returns the first of these programs that is installed.
fn installed(programs: &[&'static str], version: &str) -> Option<&'static str> {
    let runs = |program: &&&str| {
        let mut command = Command::new(program);
        let command = command.arg(version).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    programs.iter().find(runs).copied()
}

/// Loads the plugin as slurmctld does, submits jobs, and prints what became of each.
const SLURM: &str = r#"
-- Slurm gives its numbers as doubles.
slurm = { SUCCESS = 0, NO_VAL64 = 2.0^64 - 2, MEM_PER_CPU = 2.0^63 }
local told = ""
function slurm.log_user(form, ...) told = string.format(form, ...) end
function slurm.log_info(form, ...) io.stderr:write(string.format(form, ...), "\n") end
assert(loadfile(arg[1]))()
for _, job in ipairs({
  { name = "align", pn_min_memory = slurm.NO_VAL64 },
  { name = "align", pn_min_memory = 1000 },
  { name = "align", pn_min_memory = 150 },
  { name = "other", pn_min_memory = slurm.NO_VAL64 },
  { name = "align'; touch " .. arg[2] .. "; '", pn_min_memory = slurm.NO_VAL64 },
  { name = "$(touch " .. arg[2] .. ")", pn_min_memory = slurm.NO_VAL64 },
  { name = "align", pn_min_memory = slurm.MEM_PER_CPU + 4096 },
  { pn_min_memory = slurm.NO_VAL64 },
}) do
  told = ""
  assert(slurm_job_submit(job, nil, 1000) == slurm.SUCCESS)
  local memory = job.pn_min_memory == slurm.NO_VAL64 and "none" or string.format("%.0f", job.pn_min_memory)
  print(memory .. "|" .. (told ~= "" and "told" or ""))
end
"#;

/// Returns the interpreter of the plugin, if it and curl are there.
fn lua() -> Option<&'static str> {
    let lua = installed(&["lua5.4", "lua5.3", "lua5.1", "lua"], "-v");
    if lua.is_none() {
        println!("skipped: no lua; `apt-get install lua5.4` gets it");
    }
    let curl = installed(&["curl"], "--version");
    if curl.is_none() {
        println!("skipped: no curl, with which the plugin asks");
    }
    lua.filter(|_| curl.is_some())
}

/// Sets a proxy, as login nodes have one. It cannot be reached, and a hook that asks it reaches no hub.
fn set_proxy(command: &mut Command) {
    command.env("http_proxy", "http://127.0.0.1:1").env_remove("no_proxy").env_remove("NO_PROXY");
}

/// Submits jobs to the plugin in a folder, and returns what became of each. `header` is its file with a token.
fn submit(lua: &str, folder: &Path, hub: &str, header: Option<&Path>) -> Vec<String> {
    let script = folder.join("submit.lua");
    std::fs::write(&script, SLURM).expect("written");
    let mut command = Command::new(lua);
    command.arg(&script).arg(contrib("slurm/job_submit.lua")).arg(folder.join("trap"));
    command.env("SKOPOS_HUB", hub).env_remove("SKOPOS_HEADER_FILE");
    set_proxy(&mut command);
    command.envs(header.map(|file| ("SKOPOS_HEADER_FILE", file)));
    let ran = command.output().expect("lua");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("UTF-8").lines().map(str::to_owned).collect()
}

#[test]
fn a_job_of_slurm_gets_a_size_and_without_a_hub_what_its_user_requested() {
    let Some(lua) = lua() else { return };
    let up = start();
    let trap = up.agent.path().join("trap");
    let submit = |hub: &str| submit(lua, up.agent.path(), hub, None);
    // At most a twentieth of the records need more.
    let got = up.get("/api/v1/estimate?class=align&resource=memory&max_risk=0.05").json();
    let bytes = got["allocation"].as_f64().expect("a number");
    let size = (bytes * 1.1 / 1_048_576.0).ceil();
    let sized = format!("{size}|told");
    let lines = submit(&format!("http://{}", up.at));
    let by_cpu = "9223372036854779904|";
    assert_eq!(lines, [&*sized, "1000|told", "150|", "none|", "none|", "none|", by_cpu, "none|"]);
    assert!(!trap.exists(), "a name of a job is not a command");
    let lines = submit("http://127.0.0.1:1");
    assert_eq!(lines, ["none|", "1000|", "150|", "none|", "none|", "none|", by_cpu, "none|"]);
}

/// Answers the first question with 503, and others with a proposal. Returns the first lines of all, when a connection has none.
fn answers_after_a_refusal(hub: &TcpListener) -> Vec<String> {
    let mut asked = Vec::new();
    for stream in hub.incoming() {
        let mut stream = stream.expect("a connection");
        let lines = BufReader::new(&stream).lines().map_while(Result::ok);
        let lines: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        let Some(first) = lines.into_iter().next() else { break };
        let (status, body) = match asked.is_empty() {
            true => ("503 Service Unavailable", r#"{"error":"these lack a copy"}"#),
            false => ("200 OK", r#"{"allocation":104857600.0}"#),
        };
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n", body.len());
        let answer = format!("{head}Connection: close\r\n\r\n{body}");
        stream.write_all(answer.as_bytes()).expect("answered");
        asked.push(first);
    }
    asked
}

#[test]
fn a_class_without_a_record_while_a_copy_is_away_does_not_silence_others() {
    let Some(lua) = lua() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let hub = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = hub.local_addr().expect("bound");
    let asked = thread::spawn(move || answers_after_a_refusal(&hub));
    let lines = submit(lua, folder.path(), &format!("http://{at}"), None);
    drop(TcpStream::connect(at).expect("it listens"));
    let asked = asked.join().expect("no panic");
    assert_eq!(asked.len(), 2, "the other jobs of the first class wait: {asked:?}");
    assert!(asked[1].contains("class=other"), "{asked:?}");
    let size = (104_857_600.0_f64 * 1.1 / 1_048_576.0).ceil();
    assert_eq!((&*lines[0], &*lines[3]), ("none|", &*format!("{size}|told")));
}

/// Returns true if `ask` connects to the hub at its URL, which has this host. The hub does not answer.
fn connects(host: &str, ask: impl FnOnce(&str)) -> bool {
    let hub = TcpListener::bind("127.0.0.1:0").expect("a port");
    hub.set_nonblocking(true).expect("a socket");
    ask(&format!("http://{host}:{}", hub.local_addr().expect("bound").port()));
    hub.accept().is_ok()
}

#[test]
fn a_token_is_not_sent_in_clear_text_to_a_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let (token, header) = (folder.path().join("token"), folder.path().join("header"));
    std::fs::write(&token, "secret\n").expect("written");
    std::fs::write(&header, "Authorization: Bearer secret\n").expect("written");
    let python = |hub: &str| {
        let mut command = Command::new("python3");
        command.args(["-B", "-c", PYTHON]).arg(contrib("snakemake"));
        set_proxy(&mut command);
        let ran = command.env("SKOPOS_HUB", hub).env("SKOPOS_TOKEN_FILE", &token).output();
        let ran = ran.expect("python3");
        assert_eq!(String::from_utf8_lossy(&ran.stdout), "4000 8000 16000\n", "{ran:?}");
    };
    for (host, is_asked) in [("127.0.0.1", true), ("localhost", false)] {
        assert_eq!(connects(host, python), is_asked, "{host}");
    }
    let Some(lua) = lua() else { return };
    for (host, is_asked) in [("127.0.0.1", true), ("localhost", false)] {
        let slurm = |hub: &str| drop(submit(lua, folder.path(), hub, Some(&header)));
        assert_eq!(connects(host, slurm), is_asked, "{host}");
    }
}

/// Prints the memory of a rule for its first three attempts.
const PYTHON: &str = "import sys; sys.path.insert(0, sys.argv[1]); sys.dont_write_bytecode = True\n\
    from skopos_resources import memory_mb\n\
    chosen = memory_mb('align', otherwise=4000, max_risk=0.1)\n\
    print(*[chosen(None, attempt=n) for n in (1, 2, 3)])";

#[test]
fn a_rule_of_snakemake_gets_a_size_for_each_attempt() {
    let up = start();
    let ask = |hub: &str| {
        let mut command = Command::new("python3");
        command.args(["-B", "-c", PYTHON]).arg(contrib("snakemake"));
        let ran = command.env("SKOPOS_HUB", hub).env_remove("SKOPOS_TOKEN_FILE").output();
        let ran = ran.expect("python3");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).expect("UTF-8").trim().to_owned()
    };
    let answer = estimate(&up);
    let size = |name: &str, times: f64| {
        (answer[name].as_f64().expect("a number") * times * 1.1 / 1_048_576.0).ceil()
    };
    let expected =
        format!("{} {} {}", size("allocation", 1.0), size("maximum", 1.0), size("maximum", 2.0));
    assert_eq!(ask(&format!("http://{}", up.at)), expected);
    assert_eq!(ask("http://127.0.0.1:1"), "4000 8000 16000");
}

const SNAKEFILE: &str = r#"
import sys
sys.path.insert(0, config["hooks"])
from skopos_resources import memory_mb

rule align:
    output: "out"
    resources:
        mem_mb=memory_mb("align", otherwise=4000, max_risk=0.1)
    shell: "echo {resources.mem_mb} > {output}"
"#;

#[test]
fn snakemake_itself_runs_a_rule_with_the_size() {
    let program = std::env::var_os("SKOPOS_TEST_SNAKEMAKE").map(PathBuf::from);
    let program = program.or_else(|| fetched("snakemake/bin/snakemake"));
    let program = program.unwrap_or_else(|| PathBuf::from("snakemake"));
    let mut command = Command::new(&program);
    let found = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        println!(
            "skipped: no snakemake; `scripts/setup test` gets it, SKOPOS_TEST_SNAKEMAKE names it"
        );
        return;
    }
    let up = start();
    let folder = up.agent.path().join("workflow");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("Snakefile"), SNAKEFILE).expect("written");
    let mut command = Command::new(&program);
    command
        .args(["--cores", "1", "--config"])
        .arg(format!("hooks={}", contrib("snakemake").display()));
    command.current_dir(&folder).env("SKOPOS_HUB", format!("http://{}", up.at));
    command.env("HOME", &folder).env("PYTHONDONTWRITEBYTECODE", "1");
    let ran = command.env_remove("SKOPOS_TOKEN_FILE").output().expect("it starts");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let size = (estimate(&up)["allocation"].as_f64().expect("a number") * 1.1 / 1_048_576.0).ceil();
    let text = std::fs::read_to_string(folder.join("out")).expect("written");
    assert_eq!(text.trim(), format!("{size}"));
}

/// Packages that the launcher of Nextflow opens to it.
const OPENED: [&str; 17] = [
    "java.io",
    "java.lang",
    "java.net",
    "java.nio",
    "java.nio.file.spi",
    "java.util",
    "java.util.concurrent.atomic",
    "java.util.concurrent.locks",
    "java.util.regex",
    "jdk.internal.misc",
    "jdk.internal.vm",
    "sun.net.www.protocol.file",
    "sun.net.www.protocol.ftp",
    "sun.net.www.protocol.http",
    "sun.net.www.protocol.https",
    "sun.nio.ch",
    "sun.nio.fs",
];

/// Returns the command of Nextflow: that of this machine, or the jars that `scripts/setup test` fetches.
fn nextflow() -> Option<Command> {
    if installed(&["nextflow"], "-version").is_some() {
        return Some(Command::new("nextflow"));
    }
    let (jars, java) = (fetched("nextflow/lib")?, installed(&["java"], "-version")?);
    let mut command = Command::new(java);
    command.args(["-Xmx512m", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]);
    command.args(OPENED.map(|package| format!("--add-opens=java.base/{package}=ALL-UNNAMED")));
    command.arg("-cp").arg(jars.join("*")).arg("nextflow.cli.Launcher");
    Some(command)
}

const PIPELINE: &str = r#"
process align {
    output:
    stdout

    script:
    "echo align ${task.memory.toBytes()}"
}

process other {
    output:
    stdout

    script:
    "echo other ${task.memory.toBytes()}"
}

workflow {
    align().view()
    other().view()
}
"#;

#[test]
fn nextflow_itself_runs_processes_with_their_sizes() {
    let Some(mut command) = nextflow() else {
        println!("skipped: no nextflow; `scripts/setup test` fetches it where Maven can");
        return;
    };
    let up = start();
    let size = (estimate(&up)["allocation"].as_f64().expect("a number") * 1.1) as u64;
    let folder = up.agent.path().join("workflow");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("main.nf"), PIPELINE).expect("written");
    let config = format!(
        "includeConfig '{}'\nparams.skopos_hub = 'http://{}'\nparams.skopos_max_risk = 0.1\n\
         params.skopos_otherwise = '64 MB'\n",
        contrib("nextflow/skopos.config").display(),
        up.at
    );
    std::fs::write(folder.join("nextflow.config"), config).expect("written");
    command.args(["-q", "run", "main.nf"]).current_dir(&folder).stdin(Stdio::null());
    command.env("NXF_HOME", folder.join("home")).env("NXF_OFFLINE", "true");
    let ran = command.output().expect("it starts");
    let said = [ran.stdout, ran.stderr].concat();
    let text = String::from_utf8_lossy(&said).into_owned();
    assert!(ran.status.success(), "{text}");
    // The hub knows no other class.
    for line in [format!("align {size}"), format!("other {}", 64 << 20)] {
        assert!(text.contains(&line), "no `{line}` in {text}");
    }
}
