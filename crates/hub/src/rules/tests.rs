//! Rules over a source whose values the tests set, with real servers and programs at the other end.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use skopos_model::{Kind, Sample, Timestamp, Topic, Unit, Value, unpoisoned};
use skopos_query::{Described, Engine, Node, Registry, Row, Source, Wanted};
use skopos_shm::Host;
use skopos_steer::rule::Terms;
use skopos_store::history::Error;

use super::history::{History, RuleRecord};
use super::{Rules, RulesPlace};
use crate::config::rules_of;

/// Patience of a test: it only ends a hang.
const PATIENCE: Duration = Duration::from_secs(180);

/// Statement with a subject for each topic below a tenth.
const WHEN: &str =
    "SELECT topic, value FROM latest WHERE topic LIKE '%/free_ratio' AND value < 0.1";

/// Values by topic.
#[derive(Debug, Default)]
struct World(RwLock<Vec<(Topic, Sample)>>);

impl World {
    fn set(&self, topic: &str, value: f64) {
        let topic = Topic::new(topic).expect("a topic");
        let mut all = unpoisoned(self.0.write());
        all.retain(|(other, _)| *other != topic);
        all.push((topic, Sample::measured(skopos_shm::now(), Value::F64(value))));
    }
}

impl Source for World {
    fn now(&self) -> Timestamp {
        skopos_shm::now()
    }

    fn latest(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Row<'_>)) {
        for (topic, sample) in unpoisoned(self.0.read()).iter() {
            if wanted.selects(topic.as_str()) {
                let (kind, value_type) = (Kind::Gauge, sample.value.value_type());
                let of = Described { topic, unit: Unit::NONE, kind, value_type, publisher: "test" };
                visit(&Row { of, sample, checked_at: sample.time, ahead: 0, age: None });
            }
        }
    }

    fn samples(
        &self,
        wanted: &Wanted,
        times: RangeInclusive<Timestamp>,
        visit: &mut dyn FnMut(&Row<'_>),
    ) {
        self.latest(wanted, &mut |row| {
            if times.contains(&row.sample.time) {
                visit(row);
            }
        });
    }

    fn topics(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Described<'_>)) {
        self.latest(wanted, &mut |row| visit(&row.of));
    }

    fn nodes(&self) -> Vec<Node> {
        Vec::new()
    }
}

/// A site with folders of its own.
struct Site {
    world: Arc<World>,
    engine: Arc<Engine>,
    runtime: tokio::runtime::Runtime,
    dir: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let world = Arc::new(World::default());
        let engine = Engine::new(Registry::new(world.clone())).expect("an engine");
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let dir = tempfile::tempdir().expect("a folder");
        Self { world, engine: Arc::new(engine), runtime, dir }
    }

    /// Starts rules, each of which is written without its statement and interval.
    fn start(&self, rules: &[&str]) -> (Rules, RulesPlace) {
        self.start_with(rules, Terms::default().pause)
    }

    /// Starts rules, whose actions are tried again after a first pause.
    fn start_with(&self, rules: &[&str], pause: Duration) -> (Rules, RulesPlace) {
        let written = rules.iter().map(|rule| {
            let when =
                if rule.contains("when =") { String::new() } else { format!("when = \"{WHEN}\"") };
            format!("[[rule]]\nevery = \"100ms\"\n{when}\n{rule}\n")
        });
        let mut rules = rules_of(&written.collect::<String>(), None).expect("rules");
        rules.iter_mut().for_each(|rule| rule.terms.pause = pause);
        let place = RulesPlace::default();
        let folder = self.dir.path().join("rules");
        // Threads of a former run may hold the folder a little longer than its end.
        until("the end of a former run", || match History::open(&folder) {
            Ok(_) => Some(()),
            Err(Error::Busy(_)) => None,
            Err(e) => panic!("{e}"),
        });
        let asked = (self.engine.clone(), self.runtime.handle().clone());
        let folders = (self.dir.path(), Some(folder.as_path()));
        let started = Rules::start(folders, "site", asked, &rules, &place);
        let started = started.unwrap_or_else(|failure| panic!("{}", failure.in_one_line()));
        (started.expect("rules"), place)
    }
}

fn until<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = ready() {
            return found;
        }
        assert!(Instant::now() < end, "{what} did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn records(place: &RulesPlace) -> Vec<RuleRecord> {
    let mut all = Vec::new();
    place.history().expect("a history").read(&mut |record| all.push(record)).expect("read");
    all
}

/// Returns `rule event outcome` of each entry.
fn lines(place: &RulesPlace) -> Vec<String> {
    let line =
        |r: RuleRecord| format!("{} {} {}", r.rule, r.event, r.outcome).trim_end().to_owned();
    records(place).into_iter().map(line).collect()
}

/// Waits for an entry, and returns it.
fn recorded(place: &RulesPlace, rule: &str, event: &str, outcome: &str) -> RuleRecord {
    until(&format!("{rule} {event} {outcome}"), || {
        records(place)
            .into_iter()
            .find(|r| (&*r.rule, &*r.event, &*r.outcome) == (rule, event, outcome))
    })
}

/// A request: its head and its body.
type Request = (String, Vec<u8>);

/// Reads requests and answers each with `status` and `headers`.
fn serve(status: &'static str, headers: &'static str) -> (String, Receiver<Request>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (sender, requests) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            let Some(request) = read_request(&stream) else { continue };
            let _ = write!(
                &stream,
                "HTTP/1.1 {status}\r\n{headers}content-length: 0\r\nconnection: close\r\n\r\n"
            );
            if sender.send(request).is_err() {
                return;
            }
        }
    });
    (url, requests)
}

fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut input = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        input.read_line(&mut line).ok()?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = text.trim().parse().ok()?;
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body).ok()?;
    Some((head, body))
}

fn event(requests: &Receiver<Request>) -> (String, Json) {
    let (head, body) = requests.recv_timeout(PATIENCE).expect("a request");
    (head, serde_json::from_slice(&body).expect("JSON"))
}

#[test]
fn a_webhook_gets_the_events_of_a_subject_and_its_token_is_shown_nowhere() {
    let site = Site::new();
    let (url, requests) = serve("204 No Content", "");
    let token = site.dir.path().join("token");
    std::fs::write(&token, "t0ken\n").expect("written");
    let then = format!(
        "name = \"full\"\nthen = {{ webhook = \"{url}/s3cret\", bearer_file = \"{}\" }}",
        token.display()
    );
    let (rules, place) = site.start(&[&then]);
    site.world.set("n01/fs/a/free_ratio", 0.5);
    site.world.set("n01/fs/b/free_ratio", 0.05);
    let (head, body) = event(&requests);
    assert!(head.starts_with("POST /s3cret HTTP/1.1"), "{head}");
    assert!(head.to_ascii_lowercase().contains("authorization: bearer t0ken"), "{head}");
    assert_eq!(
        (&body["event"], &body["subject"]),
        (&"firing".into(), &"n01/fs/b/free_ratio".into())
    );
    assert_eq!((&body["rule"], &body["site"]), (&"full".into(), &"site".into()));
    assert_eq!(body["values"]["value"], 0.05);
    recorded(&place, "full", "action", "done");
    site.world.set("n01/fs/b/free_ratio", 0.9);
    let (_, body) = event(&requests);
    assert_eq!((&body["event"], &body["firing"]), (&"resolved".into(), &false.into()));
    until("the second outcome", || {
        (lines(&place).iter().filter(|line| *line == "full action done").count() == 2).then_some(())
    });
    assert_eq!(
        lines(&place),
        ["full firing due", "full action done", "full resolved due", "full action done"]
    );
    drop(rules);
    for file in std::fs::read_dir(site.dir.path().join("rules")).expect("a folder") {
        let bytes = std::fs::read(file.expect("a file").path()).expect("readable");
        for secret in ["t0ken", "s3cret"] {
            let is_there = bytes.windows(secret.len()).any(|bytes| bytes == secret.as_bytes());
            assert!(!is_there, "{secret} is in the history");
        }
    }
}

#[test]
fn a_redirect_is_not_followed() {
    let site = Site::new();
    let (other, at_other) = serve("200 OK", "");
    let headers = Box::leak(format!("location: {other}/\r\n").into_boxed_str());
    let (url, requests) = serve("302 Found", headers);
    let (_rules, place) =
        site.start(&[&format!("name = \"r\"\nthen = {{ webhook = \"{url}/x\" }}")]);
    site.world.set("n01/fs/a/free_ratio", 0.0);
    event(&requests);
    let failed = recorded(&place, "r", "action", "failed");
    assert!(failed.why.contains("302") && failed.attempts == 1, "{failed:?}");
    assert!(at_other.try_recv().is_err());
}

/// Returns the URL of a server that accepts no connection, until its listener is dropped.
fn hang() -> (TcpListener, String) {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", silent.local_addr().expect("an address"));
    (silent, url)
}

#[test]
fn webhooks_that_hang_delay_no_other_rule() {
    let site = Site::new();
    let (silent, url) = hang();
    let hangs: Vec<String> = (0..3)
        .map(|n| format!("name = \"hang{n}\"\nthen = {{ webhook = \"{url}\", timeout = \"10m\" }}"))
        .collect();
    let mut all: Vec<&str> = hangs.iter().map(String::as_str).collect();
    all.push("name = \"works\"\nthen = { command = [\"/bin/true\"] }");
    let (_rules, place) = site.start(&all);
    site.world.set("n01/fs/a/free_ratio", 0.0);
    recorded(&place, "works", "action", "done");
    let is_over = |r: RuleRecord| r.rule.starts_with("hang") && r.event == "action";
    assert!(!records(&place).into_iter().any(is_over), "{:?}", lines(&place));
    // Its connections are closed, and the requests end.
    drop(silent);
}

#[test]
fn a_webhook_that_hangs_is_given_up() {
    let site = Site::new();
    let (_silent, url) = hang();
    let then = format!("then = {{ webhook = \"{url}\", timeout = \"300ms\" }}");
    let (_rules, place) = site.start(&[&format!("name = \"hangs\"\n{then}")]);
    site.world.set("n01/fs/a/free_ratio", 0.0);
    let failed = recorded(&place, "hangs", "action", "failed");
    assert!(failed.why.contains("did not answer within") && failed.attempts == 3, "{failed:?}");
}

#[test]
fn an_action_that_failed_is_tried_again_until_it_is_done() {
    let site = Site::new();
    let (go, told) = (site.dir.path().join("go"), site.dir.path().join("told"));
    let program = format!("[ -e {} ] && echo $SKOPOS_EVENT >> {}", go.display(), told.display());
    let rule = format!("{}\nat_most = 1000", shell("c", "", &program));
    let (_rules, place) = site.start_with(&[&rule], Duration::from_millis(10));
    site.world.set("n01/fs/a/free_ratio", 0.0);
    recorded(&place, "c", "action", "failed");
    std::fs::write(&go, "").expect("written");
    recorded(&place, "c", "action", "done");
    // The end is tried again, too.
    std::fs::remove_file(&go).expect("removed");
    site.world.set("n01/fs/a/free_ratio", 1.0);
    until("an end that is not told", || {
        let records = records(&place);
        let end = records.iter().position(|r| r.event == "resolved")?;
        records[end..].iter().any(|r| r.outcome == "failed").then_some(())
    });
    std::fs::write(&go, "").expect("written");
    let text = until("the end", || {
        let text = std::fs::read_to_string(&told).ok()?;
        text.contains("resolved").then_some(text)
    });
    assert_eq!(text, "still_firing\nresolved\n");
}

/// Writes a program for `/bin/sh`, which is given as a word.
fn shell(name: &str, rest: &str, program: &str) -> String {
    format!(
        "name = \"{name}\"\nthen = {{ command = [\"/bin/sh\", \"-c\", '''{program}''', \"x\", \"a b; exit 9\"]{rest} }}"
    )
}

#[test]
fn a_command_gets_variables_and_a_document_and_no_shell_reads_its_words() {
    let site = Site::new();
    let out = site.dir.path().join("out");
    let to = out.display();
    let program = format!(
        "cat > {to}.json; printf '%s|%s|%s|%s|%s' \"$SKOPOS_RULE\" \"$SKOPOS_EVENT\" \"$SKOPOS_SUBJECT\" \
         \"$SKOPOS_VALUE_VALUE\" \"$1\" > {to}; env > {to}.env"
    );
    let (_rules, place) = site.start(&[&shell("c", "", &program)]);
    site.world.set("n01/fs/a/free_ratio", 0.0);
    recorded(&place, "c", "action", "done");
    let text = std::fs::read_to_string(&out).expect("written");
    assert_eq!(text, "c|firing|n01/fs/a/free_ratio|0.0|a b; exit 9");
    let document = std::fs::read(site.dir.path().join("out.json")).expect("written");
    let document: Json = serde_json::from_slice(&document).expect("JSON");
    assert_eq!(document["subject"], "n01/fs/a/free_ratio");
    let variables = std::fs::read_to_string(site.dir.path().join("out.env")).expect("written");
    assert!(!variables.contains("CARGO"), "the environment of the hub: {variables}");
}

fn is_alive(pid_file: &Path) -> Option<bool> {
    let pid: u32 = std::fs::read_to_string(pid_file).ok()?.trim().parse().ok()?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    // A process that nobody has waited for yet is dead, too.
    Some(status.is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().starts_with(" Z")))
}

#[test]
fn a_command_that_forks_and_hangs_is_ended_with_all_of_its_processes() {
    let site = Site::new();
    let file = |name: &str| site.dir.path().join(name);
    let (child, orphan) = (file("child"), file("orphan"));
    let hangs = format!("sleep 1000 & echo $! > {}; wait", child.display());
    let leaves = format!("sleep 1000 & echo $! > {}; exit 3", orphan.display());
    let rules = [shell("hangs", ", timeout = \"1s\"", &hangs), shell("leaves", "", &leaves)];
    let (_rules, place) = site.start(&[&rules[0], &rules[1]]);
    site.world.set("n01/fs/a/free_ratio", 0.0);
    let failed = recorded(&place, "hangs", "action", "failed");
    assert!(failed.why.contains("did not end within 1s"), "{failed:?}");
    let failed = recorded(&place, "leaves", "action", "failed");
    assert!(failed.why.contains("exit status: 3"), "{failed:?}");
    for pid in [&child, &orphan] {
        until("the end of a process", || (is_alive(pid) == Some(false)).then_some(()));
    }
}

#[test]
fn a_command_that_runs_is_ended_with_the_hub_and_its_action_comes_after_the_restart() {
    let site = Site::new();
    let pid = site.dir.path().join("pid");
    let hangs = format!("echo $$ > {}; sleep 1000", pid.display());
    let rule = shell("c", "", &hangs);
    let (rules, place) = site.start(&[&rule]);
    site.world.set("n01/fs/a/free_ratio", 0.0);
    let is_running = || is_alive(&pid).filter(|is_alive| *is_alive);
    until("the program", is_running);
    drop(rules);
    until("its end", || (is_alive(&pid) == Some(false)).then_some(()));
    assert_eq!(lines(&place), ["c firing due"], "an action without an outcome");
    drop(place);
    std::fs::remove_file(&pid).expect("removed");
    let (_rules, place) = site.start(&[&rule]);
    until("the program after the restart", is_running);
    assert_eq!(lines(&place), ["c firing due", "c still_firing due"]);
}

#[test]
fn an_end_that_was_not_told_before_a_restart_is_told_after_it() {
    let site = Site::new();
    let file = |name: &str| site.dir.path().join(name);
    let (begun, go, told) = (file("begun"), file("go"), file("told"));
    let program = format!(
        "if [ $SKOPOS_EVENT = resolved ] && ! [ -e {} ]; then echo > {}; sleep 1000; fi; \
         echo $SKOPOS_EVENT >> {}",
        go.display(),
        begun.display(),
        told.display()
    );
    let rule = shell("c", "", &program);
    let (rules, place) = site.start(&[&rule]);
    site.world.set("n01/fs/a/free_ratio", 0.0);
    recorded(&place, "c", "action", "done");
    site.world.set("n01/fs/a/free_ratio", 1.0);
    until("the program", || begun.exists().then_some(()));
    drop((rules, place));
    std::fs::write(&go, "").expect("written");
    let (_rules, _place) = site.start(&[&rule]);
    let text = until("the end", || {
        let text = std::fs::read_to_string(&told).ok()?;
        text.contains("resolved").then_some(text)
    });
    assert_eq!(text, "firing\nresolved\n");
}

#[test]
fn the_state_of_a_rule_outlives_its_entries_that_others_push_out() {
    let site = Site::new();
    let (url, requests) = serve("200 OK", "");
    let rule = format!("name = \"quiet\"\nthen = {{ webhook = \"{url}/\" }}");
    let (rules, place) = site.start(&[&rule]);
    site.world.set("n01/fs/a/free_ratio", 0.0);
    event(&requests);
    recorded(&place, "quiet", "action", "done");
    let row = serde_json::json!({ "row": "x".repeat(24 << 10) });
    let row = row.as_object().cloned().unwrap_or_default();
    let noise = RuleRecord { rule: "busy".to_owned(), values: row, ..RuleRecord::default() };
    let noise = vec![noise; 64];
    // More than the journal keeps. The evaluation goes on meanwhile.
    for _ in 0..(24 << 20) / (64 * (24 << 10)) {
        assert_eq!(place.history().expect("a history").append(&noise), 0);
        let count = &place.rules()[0].counts.evaluations;
        let before = count.load(Ordering::Relaxed);
        until("an evaluation", || (count.load(Ordering::Relaxed) > before + 1).then_some(()));
    }
    assert!(lines(&place).iter().all(|line| !line.starts_with("quiet")), "{:?}", lines(&place)[0]);
    drop((rules, place));
    let (_rules, place) = site.start(&[&rule]);
    let is_evaluated = || place.rules()[0].name_of_state() == "firing";
    until("an evaluation", || is_evaluated().then_some(()));
    site.world.set("n01/fs/a/free_ratio", 1.0);
    assert_eq!(event(&requests).1["event"], "resolved", "nothing between the two runs");
}

#[test]
fn a_subject_that_fired_before_a_restart_is_told_once() {
    let site = Site::new();
    let (url, requests) = serve("200 OK", "");
    let rule = format!("name = \"full\"\nthen = {{ webhook = \"{url}/\" }}");
    let (rules, place) = site.start(&[&rule]);
    site.world.set("n01/fs/a/free_ratio", 0.0);
    event(&requests);
    recorded(&place, "full", "action", "done");
    drop((rules, place));
    let (_rules, place) = site.start(&[&rule]);
    let is_evaluated = || place.rules()[0].name_of_state() == "firing";
    until("an evaluation", || is_evaluated().then_some(()));
    site.world.set("n01/fs/a/free_ratio", 1.0);
    assert_eq!(event(&requests).1["event"], "resolved", "nothing between the two runs");
    assert_eq!(lines(&place)[..2], ["full firing due", "full action done"]);
}

#[test]
fn a_statement_that_fails_or_returns_too_much_shows_its_reason_and_stops_no_other() {
    let site = Site::new();
    for n in 0..1001 {
        site.world.set(&format!("n01/app/{n}/depth"), 1.0);
    }
    let then = "then = { command = [\"/bin/true\"] }";
    let (_rules, place) = site.start(&[
        &format!("name = \"bad\"\nwhen = \"SELEC\"\n{then}"),
        &format!("name = \"unknown\"\nwhen = \"SELECT x FROM lates\"\n{then}"),
        &format!("name = \"many\"\nwhen = \"SELECT topic FROM latest\"\n{then}"),
        &format!("name = \"millions\"\nwhen = \"SELECT a.topic FROM latest a, latest b, latest c\"\n{then}"),
        &format!("name = \"works\"\n{then}"),
    ]);
    site.world.set("n01/fs/a/free_ratio", 0.0);
    recorded(&place, "works", "action", "done");
    for (name, why) in [
        ("bad", "SELEC"),
        ("unknown", "did you mean `latest`?"),
        ("many", "more than 1000 rows"),
        ("millions", ""),
    ] {
        let failed = recorded(&place, name, "failed", "");
        assert!(failed.why.contains(why) && !failed.why.is_empty(), "{failed:?}");
        let rule = place.rules().iter().find(|rule| rule.config.name == name).expect("a rule");
        assert_eq!(rule.name_of_state(), "failing", "{name}");
    }
}

#[test]
fn a_rule_publishes_the_number_of_firing_subjects() {
    let site = Site::new();
    let (_rules, place) = site.start(&["name = \"full\"\nthen = { publish = \"app/full\" }"]);
    site.world.set("n01/fs/a/free_ratio", 0.0);
    site.world.set("n01/fs/b/free_ratio", 0.0);
    recorded(&place, "full", "firing", "published");
    let topic = Topic::new("site/app/full").expect("a topic");
    until("the fact", || {
        let host = Host::open_dirs(vec![site.dir.path().to_path_buf()]).ok()?;
        let reading = host.find(&topic).ok()?.latest().ok()?;
        (reading.sample.value == Value::U64(2)).then_some(())
    });
}

#[test]
fn a_dry_run_does_nothing_and_says_what_was_due() {
    let site = Site::new();
    let (url, requests) = serve("200 OK", "");
    let rule = format!("name = \"dry\"\ndry_run = true\nthen = {{ webhook = \"{url}/\" }}");
    let (_rules, place) = site.start(&[&rule]);
    site.world.set("n01/fs/a/free_ratio", 0.0);
    recorded(&place, "dry", "action", "dry_run");
    assert!(requests.try_recv().is_err());
}

#[test]
fn a_dry_run_publishes_nothing_and_says_that_it_was_due() {
    let site = Site::new();
    let rule = "name = \"dry\"\ndry_run = true\nthen = { publish = \"app/full\" }";
    let (_rules, place) = site.start(&[rule]);
    site.world.set("n01/fs/a/free_ratio", 0.0);
    recorded(&place, "dry", "action", "dry_run");
    assert_eq!(lines(&place), ["dry firing due", "dry action dry_run"]);
    assert_eq!(place.rules()[0].counts.done.load(Ordering::Relaxed), 0);
}

#[test]
#[should_panic(expected = "the folder cannot be made")]
fn a_start_that_fails_ends_its_test_with_the_reason() {
    let site = Site::new();
    std::fs::write(site.dir.path().join("rules"), "").expect("written");
    site.start(&["name = \"full\"\nthen = { publish = \"app/full\" }"]);
}
