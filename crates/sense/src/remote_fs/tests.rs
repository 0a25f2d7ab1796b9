//! Mounts that hang, refuse and come back, with an `ask` that the test controls.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use skopos_model::schema::Metric;
use skopos_model::{Scalar, Structured};

use super::askers::Answer;
use super::*;
use crate::sensor::{FactId, Sink};

/// The behaviour of each mount, by path, and the mounts that were asked.
#[derive(Default)]
struct Servers {
    moods: Mutex<BTreeMap<&'static str, Mood>>,
    changed: Condvar,
    asked: Mutex<Vec<String>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Hangs,
    Refuses,
    Sizeless,
}

impl Servers {
    /// Sets the behaviour from now on. A mount without a mood answers.
    fn set(&self, path: &'static str, mood: Option<Mood>) {
        let mut moods = self.moods.lock().expect("whole");
        match mood {
            Some(mood) => moods.insert(path, mood),
            None => moods.remove(path),
        };
        self.changed.notify_all();
    }

    fn ask(&self, path: &CStr) -> Answer {
        let path = path.to_str().expect("UTF-8");
        self.asked.lock().expect("whole").push(path.to_owned());
        let hangs = |moods: &mut BTreeMap<_, _>| moods.get(path) == Some(&Mood::Hangs);
        let moods = self.moods.lock().expect("whole");
        let moods = self.changed.wait_while(moods, hangs).expect("whole");
        match moods.get(path) {
            Some(Mood::Refuses) => Err(Errno::NOTCONN),
            Some(Mood::Sizeless) => Ok(None),
            _ => Capacity::ask(c"/"),
        }
    }

    fn questions(&self, path: &str) -> usize {
        self.asked.lock().expect("whole").iter().filter(|asked| *asked == path).count()
    }
}

/// Facts by `instance/metric`; a text as NaN.
#[derive(Default)]
struct Table(Vec<Option<(String, f64)>>);

impl Sink for Table {
    fn register(&mut self, metric: &'static Metric, instance: &str) -> FactId {
        self.0.push(Some((format!("{instance}/{}", metric.name), f64::NAN)));
        FactId::from_index(self.0.len() as u32 - 1)
    }

    fn unregister(&mut self, id: FactId) {
        self.0[id.index().expect("registered") as usize] = None;
    }

    fn set(&mut self, id: FactId, value: Scalar) {
        let fact = &mut self.0[id.index().expect("registered") as usize];
        fact.as_mut().expect("registered").1 = value.as_f64();
    }

    fn set_structured(&mut self, _: FactId, _: &Structured) {}

    fn register_list(&mut self, metric: &'static Metric, instance: &str) -> FactId {
        self.register(metric, instance)
    }

    fn set_list(&mut self, _: FactId, _: &[Option<Scalar>]) {}
}

impl Table {
    fn get(&self, fact: &str) -> Option<f64> {
        self.0.iter().flatten().find(|(name, _)| name == fact).map(|(_, value)| *value)
    }
}

struct Setting {
    folder: tempfile::TempDir,
    servers: Arc<Servers>,
    sensor: RemoteFs,
    table: Table,
    now: u64,
}

impl Setting {
    /// Makes a sensor with one mount for each path.
    fn new(paths: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let servers = Arc::new(Servers::default());
        fs::create_dir_all(folder.path().join("self")).expect("writable");
        mount(&folder, paths);
        let patience = Duration::from_millis(200);
        let root = Root { proc: folder.path().into(), patience, ..Root::default() };
        let asked = Arc::clone(&servers);
        let opened = RemoteFs::with(&root, Box::new(move |path| asked.ask(path)));
        let sensor = opened.expect("mountinfo is there");
        Self { folder, servers, sensor, table: Table::default(), now: 1000 }
    }

    /// Polls, this many seconds after the last poll.
    fn poll(&mut self, seconds: u64) {
        self.now += seconds;
        let monotonic = Duration::from_secs(self.now);
        let mut tick = Tick { monotonic, sink: &mut self.table };
        self.sensor.poll(&mut tick).expect("readable");
    }

    /// Polls until `ready`.
    fn until(&mut self, what: &str, ready: impl Fn(&Self) -> bool) {
        // Longer than the threads need for their turn on a busy machine.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(30) {
            self.poll(0);
            if ready(self) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("never: {what}");
    }

    fn reason(&self, what: &str) -> Option<String> {
        self.sensor.skips().into_iter().find(|skip| skip.what == what).map(|skip| skip.reason)
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        // Threads that hang end with the test.
        self.servers.moods.lock().expect("whole").clear();
        self.servers.changed.notify_all();
    }
}

fn mount(folder: &tempfile::TempDir, paths: &[&str]) {
    let lines = paths.iter().enumerate().map(|(n, path)| {
        let n = n + 1;
        format!("{n} 0 0:{n} / {path} rw - lustre 10.0.0.1@tcp:/fs{n} rw\n")
    });
    fs::write(folder.path().join("self/mountinfo"), lines.collect::<String>()).expect("writable");
}

#[test]
fn a_mount_that_hangs_does_not_delay_others_and_comes_back() {
    let mut all = Setting::new(&["/hung", "/data"]);
    all.until("both answer", |all| {
        ["hung", "data"].iter().all(|mount| all.table.get(&format!("{mount}/responding")).is_some())
    });
    let total = all.table.get("hung/total_bytes").expect("measured");
    assert!(total > 0.0);
    assert_eq!(all.sensor.skips(), []);

    all.servers.set("/hung", Some(Mood::Hangs));
    let (hung, data) = (all.servers.questions("/hung"), all.servers.questions("/data"));
    all.poll(5);
    all.poll(5);
    all.poll(7);
    assert_eq!(all.servers.questions("/hung"), hung + 1, "it is not asked again");
    assert!(all.servers.questions("/data") > data);
    assert_eq!(all.table.get("hung/responding"), Some(0.0));
    assert_eq!(all.table.get("hung/total_bytes"), Some(total), "facts grow old");
    assert_eq!(all.reason("remote_fs/hung").as_deref(), Some("has not answered for 12 s"));
    all.until("the other answers", |all| all.servers.questions("/data") >= data + 3);
    assert_eq!(all.table.get("data/responding"), Some(1.0));

    // Another mount appears and the table is read again. The same mount still hangs.
    mount(&all.folder, &["/hung", "/data", "/more"]);
    all.sensor.read_table().expect("readable");
    all.until("the new one answers", |all| all.table.get("more/total_bytes").is_some());
    assert_eq!(all.servers.questions("/hung"), hung + 1, "it is not asked again");
    assert!(all.reason("remote_fs/hung").is_some());

    all.servers.set("/hung", None);
    all.until("it comes back", |all| all.table.get("hung/responding") == Some(1.0));
    assert_eq!(all.sensor.skips(), []);
    assert!(all.servers.questions("/hung") > hung);
}

#[test]
fn many_hanging_mounts_do_not_keep_the_last_one_from_being_asked() {
    let hanging = ["/a", "/b", "/c", "/d", "/e", "/f", "/g", "/h", "/i", "/j"];
    let mut paths = hanging.to_vec();
    paths.push("/last");
    let mut all = Setting::new(&paths);
    hanging.iter().for_each(|path| all.servers.set(path, Some(Mood::Hangs)));
    all.until("the last one answers", |all| all.table.get("last/total_bytes").is_some());
    assert!(hanging.iter().all(|path| all.servers.questions(path) == 1));
    assert_eq!(all.table.get("a/total_bytes"), None);
    assert!(all.table.get("a/mount_point").is_some(), "its mount point is known");
    all.poll(5);
    assert_eq!(all.reason("remote_fs/h").as_deref(), Some("has not answered for 5 s"));
    let more = all.reason("remote_fs/*").expect("a reason");
    assert_eq!(more, "2 more without facts, or with old ones");
}

#[test]
fn a_mount_that_refuses_or_has_no_size_is_a_skip_with_its_reason() {
    let mut all = Setting::new(&["/dead", "/portal"]);
    all.servers.set("/portal", Some(Mood::Sizeless));
    all.until("it answers", |all| all.table.get("dead/total_bytes").is_some());
    all.servers.set("/dead", Some(Mood::Refuses));
    all.until("it refuses", |all| all.table.get("dead/total_bytes").is_none());
    assert_eq!(all.table.get("dead/responding"), Some(1.0), "an error is an answer");
    assert!(all.table.get("dead/type").is_some(), "it is still mounted");
    let reason = all.reason("remote_fs/dead").expect("a reason");
    assert!(reason.starts_with("statvfs /dead: Transport endpoint is not connected"), "{reason}");
    all.until("the other answers", |all| all.reason("remote_fs/portal").is_some());
    assert!(all.table.0.iter().flatten().all(|(fact, _)| !fact.starts_with("portal/")));
    all.servers.set("/dead", None);
    all.until("it comes back", |all| all.table.get("dead/total_bytes").is_some());
    assert_eq!(all.reason("remote_fs/dead"), None);
}

#[test]
fn mounts_beyond_the_limit_are_not_asked() {
    let paths: Vec<String> = (0..MAX_MOUNTS + 3).map(|n| format!("/m{n}")).collect();
    let mut all = Setting::new(&paths.iter().map(String::as_str).collect::<Vec<_>>());
    all.poll(1);
    assert_eq!(all.sensor.table.len(), MAX_MOUNTS);
    let reason = all.reason("remote_fs/*").expect("a reason");
    assert_eq!(reason, "3 mounts beyond the first 64");
}
