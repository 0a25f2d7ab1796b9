//! A sink that keeps facts by topic and checks the contract of sensors, and trees of kernel files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use skopos_model::schema::{self, Metric};
use skopos_model::{Error, Scalar, Structured, Topic, ValueType};
use skopos_sense::{FactId, Opened, Root, Sensor, Sink, Skip, Tick, open_all};

/// The facts that are registered, and their last values.
#[derive(Default)]
pub(crate) struct Table {
    facts: Vec<Option<Fact>>,
    /// Number of registrations and removals.
    pub(crate) changes: usize,
    /// Number of facts that can be registered before the sink refuses; unlimited by default.
    pub(crate) room: Option<usize>,
}

struct Fact {
    topic: Topic,
    metric: &'static Metric,
    value: Option<Scalar>,
    structured: Option<Structured>,
    /// The members, if it is a list.
    list: Option<Vec<Option<Scalar>>>,
    /// Number of times it was set.
    sets: usize,
}

impl Table {
    fn add(
        &mut self,
        metric: &'static Metric,
        instance: &str,
        list: Option<Vec<Option<Scalar>>>,
    ) -> FactId {
        let topic = match metric.topic("n", instance) {
            // The agent refuses a name that is too long for a topic, too.
            Err(Error::TopicTooLong(_)) => return FactId::REFUSED,
            topic => topic.expect("sensors make valid topics"),
        };
        let known = schema::lookup(&topic).expect("a topic leads back to its metric");
        assert!(std::ptr::eq(known, metric), "{topic}");
        assert!(
            self.facts.iter().flatten().all(|f| f.topic != topic),
            "{topic} is registered twice"
        );
        self.changes += 1;
        if let Some(room) = &mut self.room {
            match room.checked_sub(1) {
                Some(left) => *room = left,
                None => return FactId::REFUSED,
            }
        }
        let fact = Fact { topic, metric, value: None, structured: None, list, sets: 0 };
        self.facts.push(Some(fact));
        FactId::from_index(u32::try_from(self.facts.len() - 1).expect("few facts"))
    }
}

impl Sink for Table {
    fn register(&mut self, metric: &'static Metric, instance: &str) -> FactId {
        self.add(metric, instance, None)
    }

    fn register_list(&mut self, metric: &'static Metric, instance: &str) -> FactId {
        self.add(metric, instance, Some(Vec::new()))
    }

    fn unregister(&mut self, id: FactId) {
        let index = id.index().expect("refused facts are not unregistered") as usize;
        self.facts[index].take().expect("a fact is unregistered once");
        self.changes += 1;
    }

    fn set(&mut self, id: FactId, value: Scalar) {
        let Some(index) = id.index() else { return };
        let fact = self.facts[index as usize].as_mut().expect("unregistered facts are not set");
        assert!(fact.list.is_none(), "{} is a list", fact.topic);
        assert_eq!(value.value_type(), fact.metric.value_type, "{}", fact.topic);
        assert!(value.as_f64().is_finite(), "{} = {value:?}", fact.topic);
        fact.value = Some(value);
        fact.sets += 1;
    }

    fn set_structured(&mut self, id: FactId, value: &Structured) {
        let Some(index) = id.index() else { return };
        let fact = self.facts[index as usize].as_mut().expect("unregistered facts are not set");
        assert_eq!(fact.metric.value_type, ValueType::Structured, "{}", fact.topic);
        if fact.structured.as_ref() != Some(value) {
            fact.structured = Some(value.clone());
        }
    }

    fn set_list(&mut self, id: FactId, values: &[Option<Scalar>]) {
        let Some(index) = id.index() else { return };
        let fact = self.facts[index as usize].as_mut().expect("unregistered facts are not set");
        let known = values.iter().flatten();
        known.for_each(|v| assert_eq!(v.value_type(), fact.metric.value_type, "{}", fact.topic));
        let list = fact.list.as_mut().expect("it was registered as a list");
        list.clear();
        list.extend_from_slice(values);
        fact.sets += 1;
    }
}

impl Table {
    fn find(&self, topic: &str) -> Option<&Fact> {
        let mut facts = self.facts.iter().flatten();
        facts.find(|f| f.topic.as_str().strip_prefix("n/") == Some(topic))
    }

    /// Returns true if `topic`, which is given without the node, is registered.
    pub(crate) fn has(&self, topic: &str) -> bool {
        self.find(topic).is_some()
    }

    /// Returns the number of `topic`, which is given without the node.
    pub(crate) fn get(&self, topic: &str) -> Option<f64> {
        let fact = self.find(topic).filter(|f| f.structured.is_none() && f.list.is_none())?;
        Some(fact.value.expect("a registered fact has a value").as_f64())
    }

    /// Returns how often the number of `topic` was set, which makes it younger each time.
    pub(crate) fn sets(&self, topic: &str) -> usize {
        self.find(topic).map_or(0, |fact| fact.sets)
    }

    /// Returns the list, record or text of `topic`.
    pub(crate) fn json(&self, topic: &str) -> Option<&serde_json::Value> {
        Some(self.find(topic)?.structured.as_ref()?.as_json())
    }

    /// Returns the members of the list `topic`.
    pub(crate) fn list(&self, topic: &str) -> Vec<Option<f64>> {
        let list = self.find(topic).and_then(|fact| fact.list.as_ref());
        let list = list.unwrap_or_else(|| panic!("no list {topic} in {:#?}", self.topics("")));
        list.iter().map(|value| value.map(Scalar::as_f64)).collect()
    }

    /// Returns the text of `topic`.
    pub(crate) fn text(&self, topic: &str) -> Option<&str> {
        self.json(topic)?.as_str()
    }

    /// Returns the number of `topic`, which must be there.
    pub(crate) fn value(&self, topic: &str) -> f64 {
        self.get(topic).unwrap_or_else(|| panic!("no {topic} in {:#?}", self.topics("")))
    }

    /// Returns the topics below `prefix`, without the node.
    pub(crate) fn topics(&self, prefix: &str) -> Vec<&str> {
        let topics = self.facts.iter().flatten().map(|f| &f.topic.as_str()[2..]);
        topics.filter(|topic| topic.starts_with(prefix)).collect()
    }

    /// Returns every number, by topic without the node.
    pub(crate) fn snapshot(&self) -> BTreeMap<String, f64> {
        let topics = self.topics("").into_iter();
        topics.filter_map(|topic| Some((topic.to_owned(), self.get(topic)?))).collect()
    }

    /// Returns the instances of a family.
    pub(crate) fn instances(&self, family: &str) -> Vec<&str> {
        let topics = self.topics(family).into_iter();
        let mut instances: Vec<_> = topics.filter_map(|t| t.split('/').nth_back(1)).collect();
        instances.sort_unstable();
        instances.dedup();
        instances
    }
}

/// Sensors with their table and a clock.
pub(crate) struct Host {
    pub(crate) sensors: Vec<Box<dyn Sensor>>,
    pub(crate) skips: Vec<Skip>,
    pub(crate) table: Table,
    now: Duration,
}

impl Host {
    pub(crate) fn open(root: &Root) -> Self {
        Self::of(open_all(root))
    }

    pub(crate) fn of(opened: Opened) -> Self {
        let Opened { sensors, skips } = opened;
        Self { sensors, skips, table: Table::default(), now: Duration::from_secs(1000) }
    }

    /// Opens one family of this machine.
    pub(crate) fn live(family: &str) -> Result<Self, String> {
        let mut host = Self::open(&Root::default());
        host.sensors.retain(|s| s.family().name == family);
        match host.sensors.is_empty() {
            true => Err(format!("{:?}", host.skips)),
            false => Ok(host),
        }
    }

    /// Polls every sensor once, `seconds` after the last poll.
    pub(crate) fn poll(&mut self, seconds: f64) -> &Table {
        self.now += Duration::from_secs_f64(seconds);
        for sensor in &mut self.sensors {
            let mut tick = Tick { monotonic: self.now, sink: &mut self.table };
            if let Err(e) = sensor.poll(&mut tick) {
                eprintln!("{}: {e}", sensor.family().name);
            }
        }
        &self.table
    }

    pub(crate) fn skip(&self, what: &str) -> Option<String> {
        let later: Vec<_> = self.sensors.iter().flat_map(|s| s.skips()).collect();
        let mut all = later.iter().chain(&self.skips);
        all.find(|skip| skip.what == what).map(|skip| skip.reason.clone())
    }
}

/// A tree of kernel files that a test may change.
pub(crate) struct Tree {
    pub(crate) folder: tempfile::TempDir,
}

impl Tree {
    pub(crate) fn empty() -> Self {
        let tree = Self { folder: tempfile::tempdir().expect("a temporary folder") };
        fs::create_dir(tree.path("proc")).expect("an empty folder");
        fs::create_dir(tree.path("sys")).expect("an empty folder");
        tree
    }

    /// Copies `tests/data/NAME`.
    pub(crate) fn of(name: &str) -> Self {
        let tree = Self { folder: tempfile::tempdir().expect("a temporary folder") };
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
        copy(&data, tree.folder.path());
        tree
    }

    /// Makes the files of a machine with this number of cores.
    pub(crate) fn large(cores: u64) -> Self {
        let tree = Self { folder: tempfile::tempdir().expect("a temporary folder") };
        crate::large::write(tree.folder.path(), cores, 1);
        tree
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Writes a file in place, so that a sensor that has it open sees the new content.
    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("it lies in the tree")).expect("writable");
        fs::write(path, content).expect("writable");
        self
    }

    pub(crate) fn link(&self, path: &str, target: &str) -> &Self {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("it lies in the tree")).expect("writable");
        std::os::unix::fs::symlink(target, path).expect("writable");
        self
    }

    pub(crate) fn root(&self) -> Root {
        Root {
            proc: self.path("proc"),
            sys: self.path("sys"),
            dev: self.path("dev"),
            smartctl: self.path("bin/smartctl"),
            scontrol: self.path("bin/scontrol"),
            patience: Duration::from_secs(60),
            watched: Vec::new(),
            page_cache_hits: false,
            calibrations: vec![self.path("own/calibration.json"), self.path("calibration.json")],
        }
    }

    pub(crate) fn host(&self) -> Host {
        Host::open(&self.root())
    }

    /// Returns every file in the tree.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("readable") {
                let entry = entry.expect("readable");
                match entry.file_type().expect("readable") {
                    kind if kind.is_dir() => folders.push(entry.path()),
                    kind if kind.is_file() => found.push(entry.path()),
                    _ => {}
                }
            }
        }
        found.sort();
        found
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("writable");
    for entry in fs::read_dir(from).expect("the data of the tests") {
        let entry = entry.expect("readable");
        let target = to.join(entry.file_name());
        match entry.file_type().expect("readable").is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).expect("writable")),
        }
    }
}
