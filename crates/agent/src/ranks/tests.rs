//! Rankings over facts of this node and of others, whose mirror and programs the tests play.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use skopos_model::{Kind, Origin, Sample, Timestamp, Topic, Value, ValueType};
use skopos_shm::{Host, Publisher, VertexSpec, VertexWriter, now};
use skopos_steer::rank::replay::replay;

use super::Ranks;
use super::learned_file::SAVE_EVERY;
use crate::clock::{Clock, monotonic};
use crate::config::RankConfig;
use crate::control::{Answer, OutcomeReport, RankPage, RankedCandidate};
use crate::event::Event;
use crate::sink::Counts;

/// Two metrics: the agent's own round-trip times, and queues that candidates report and peers measure.
const CONFIG: &str = r#"
    candidates = ["n02", "n03", { name = "10.0.0.4:9042", node = "n04" }]
    [profile]
    name = "reads"
    method = "given"
    hysteresis = 0.0
    [[profile.metrics]]
    name = "rtt"
    topic = "{self}/peer/{node}/rtt_seconds"
    floor = 1e-4
    max_age_seconds = 5
    [[profile.metrics]]
    name = "queue"
    topic = "{node}/app/queue"
    peers = "*/*/{candidate}/queue_seen"
    floor = 1.0
    max_age_seconds = 5
"#;

const CANDIDATES: [&str; 3] = ["n02", "n03", "10.0.0.4:9042"];
const NODES: [&str; 3] = ["n02", "n03", "n04"];

/// Time that only ends a hang.
const PATIENCE: Duration = Duration::from_secs(180);

/// An agent's directory with its segment and the mirror of other nodes.
struct World {
    ranks: Ranks,
    agent: Publisher,
    mirror: Publisher,
    facts: Vec<VertexWriter>,
    /// The time of the next ranking.
    at: Clock,
    counts: Counts,
    dir: tempfile::TempDir,
    /// The folder of learned weights.
    state: Rc<tempfile::TempDir>,
}

impl World {
    fn new(config: &str) -> Self {
        Self::in_state(config, Rc::new(tempfile::tempdir().expect("a directory")))
    }

    fn in_state(config: &str, state: Rc<tempfile::TempDir>) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let config: RankConfig = toml::from_str(config).expect(config);
        let of = |name: &str| Publisher::builder(name).dir(dir.path()).node("n01").create();
        let (agent, mirror) = (of("agent").expect("a segment"), of("mirror").expect("a segment"));
        let ranks =
            Ranks::new(&Arc::from("n01"), dir.path(), &[config], Some(state.path()), &agent);
        let ranks = ranks.expect("a valid configuration");
        let (at, counts) = (Clock::now(), Counts::default());
        Self { ranks, agent, mirror, facts: Vec::new(), at, counts, dir, state }
    }

    /// A world in which each candidate has these round-trip times and queues.
    fn with(values: [(f64, f64); 3]) -> Self {
        let mut world = Self::new(CONFIG);
        world.set_all(values);
        world
    }

    fn set_all(&mut self, values: [(f64, f64); 3]) {
        for (node, (rtt, queue)) in NODES.into_iter().zip(values) {
            self.set(&format!("n01/peer/{node}/rtt_seconds"), rtt);
            self.set(&format!("{node}/app/queue"), queue);
        }
    }

    /// Publishes a value at the present time of the world.
    fn set(&mut self, topic: &str, value: f64) {
        self.set_at(self.at.wall, topic, value);
    }

    fn set_at(&mut self, time: Timestamp, topic: &str, value: f64) {
        self.kept(topic, Kind::Gauge).publish_at(time, value).expect("published");
    }

    fn kept(&mut self, topic: &str, kind: Kind) -> &VertexWriter {
        let topic = Topic::new(topic).expect("a topic");
        let at = self.facts.iter().position(|fact| *fact.topic() == topic).unwrap_or_else(|| {
            let publisher = if topic.node() == "n01" { &self.agent } else { &self.mirror };
            let spec = VertexSpec::new(topic, ValueType::F64).kind(kind);
            self.facts.push(publisher.register(spec).expect("room"));
            self.facts.len() - 1
        });
        &self.facts[at]
    }

    /// Lets time pass and ranks. Vertices are looked up anew at the next ranking after some seconds.
    fn rank_after(&mut self, seconds: f64) -> RankPage {
        let passed = Duration::from_secs_f64(seconds);
        let Clock { wall, monotonic } = self.at;
        self.at = Clock { wall: wall.saturating_add(passed), monotonic: monotonic + passed };
        self.rank()
    }

    /// Ranks now.
    fn rank(&mut self) -> RankPage {
        for profile in &mut self.ranks.profiles {
            profile.set_due(Duration::ZERO);
        }
        self.ranks.search_at = Duration::ZERO;
        self.ranks.run(self.at, &mut self.counts);
        self.page(&[])
    }

    fn page(&self, names: &[&str]) -> RankPage {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        match self.ranks.page(Some("reads"), &names, 0) {
            Ok(Answer::Rank(page)) => *page,
            other => panic!("{other:?}"),
        }
    }

    /// Waits for the thread that records.
    fn page_when(&self, is_done: impl Fn(&RankPage) -> bool) -> RankPage {
        wait_until(|| Some(self.page(&[])).filter(&is_done))
    }

    /// The weights of the metrics.
    fn weights(&self) -> Vec<f64> {
        self.page(&[]).metrics.iter().map(|metric| metric.weight).collect()
    }

    /// Ranks, and reports a hundred requests whose cost follows the round-trip time.
    fn learn(&mut self) {
        self.set_all([(0.008, 1.0), GOOD, GOOD]);
        self.rank_after(1.0);
        let failed = OutcomeReport {
            candidate: "n02".to_owned(),
            seconds: 0.5,
            failed: true,
            probability: None,
        };
        let outcomes = vec![failed; 100];
        self.ranks.learn(None, &outcomes).expect("taken");
    }

    /// Reads a published fact as a client does.
    fn published(&self, topic: &str) -> Option<f64> {
        let host = Host::open_dirs(vec![self.dir.path().to_owned()]).expect("the directory");
        host.lookup(topic).ok()?.latest().ok()?.as_f64()
    }
}

/// Waits for another thread.
fn wait_until<T>(done: impl Fn() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(done) = done() {
            return done;
        }
        assert!(begun.elapsed() < PATIENCE, "it does not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn find<'a>(page: &'a RankPage, name: &str) -> &'a RankedCandidate {
    page.candidates.iter().find(|c| c.candidate == name).expect(name)
}

fn order(page: &RankPage) -> Vec<&str> {
    page.candidates.iter().map(|c| c.candidate.as_str()).collect()
}

fn fault<'a>(candidate: &'a RankedCandidate, metric: &str) -> Option<&'a str> {
    candidate.parts.iter().find(|part| part.name == metric).expect(metric).fault.as_deref()
}

const GOOD: (f64, f64) = (0.001, 1.0);

#[test]
fn candidates_are_ranked_published_and_explained() {
    let mut world = World::with([(0.008, 1.0), GOOD, (0.002, 2.0)]);
    let page = world.rank();
    assert_eq!(order(&page), ["n03", "10.0.0.4:9042", "n02"]);
    for (at, candidate) in page.candidates.iter().enumerate() {
        let parts: f64 = candidate.parts.iter().map(|part| part.part).sum();
        assert!((parts - candidate.score).abs() < 1e-12, "{candidate:?}");
        let topic = |column| format!("rank/reads@{}/{column}", candidate.candidate);
        assert_eq!(world.published(&topic("weight")), Some(candidate.weight));
        assert_eq!(world.published(&topic("score")), Some(candidate.score));
        assert_eq!(world.published(&topic("place")), Some(at as f64 + 1.0));
        assert_eq!(world.published(&topic("trust")), Some(1.0));
        assert_eq!(world.published(&topic("samples")), Some(1.0));
        assert_eq!(world.published(&topic("age_seconds")), Some(0.0));
        assert_eq!(world.published(&topic("state")), Some(0.0));
    }
    let weights: f64 = page.candidates.iter().map(|c| c.weight).sum();
    assert!((weights - 1.0).abs() < 1e-12);
    assert_eq!(world.published("rank_profile/reads/candidates"), Some(3.0));
    assert_eq!(world.published("rank_profile/reads/native"), Some(0.0));
    assert_eq!(world.published("rank_profile/reads/valid_seconds"), Some(5.0));
    let last = &page.candidates[2];
    assert!(last.reasons[0].starts_with("rtt +"), "{:?}", last.reasons);
    assert!(world.counts.stored > 0 && world.counts.registered == 3 * 7 + 12);
}

#[test]
fn all_ranks_of_a_profile_are_of_one_tick() {
    let mut world = World::with([GOOD; 3]);
    world.rank();
    let host = Host::open_dirs(vec![world.dir.path().to_owned()]).expect("the directory");
    let all: Vec<_> = CANDIDATES
        .iter()
        .map(|c| host.lookup(&format!("rank/reads@{c}/weight")).expect("it"))
        .chain([host.lookup("rank_profile/reads/native").expect("it")])
        .collect();
    let snapshot = skopos_shm::snapshot(&all).expect("one group");
    assert_eq!(snapshot.time, world.at.wall);
    assert!(snapshot.samples.iter().all(Option::is_some));
}

#[test]
fn a_candidate_without_facts_is_explored_and_no_more() {
    let mut world = World::new(CONFIG);
    for node in ["n02", "n03"] {
        world.set(&format!("n01/peer/{node}/rtt_seconds"), 0.001);
        world.set(&format!("{node}/app/queue"), 1.0);
    }
    let page = world.rank();
    let unknown = find(&page, "10.0.0.4:9042");
    assert_eq!((unknown.state.as_str(), unknown.place), ("unknown", 3));
    assert!((unknown.weight - 0.01).abs() < 1e-12);
    assert_eq!((unknown.age_seconds, unknown.samples), (None, 0));
    assert_eq!(world.published("rank/reads@10.0.0.4:9042/state"), Some(3.0));
    assert_eq!(world.published("rank/reads@10.0.0.4:9042/age_seconds"), None);
    assert_eq!(fault(unknown, "rtt"), Some("there is no recent value"));
}

#[test]
fn old_facts_of_all_candidates_give_the_order_of_the_configuration() {
    let mut world = World::with([(0.09, 50.0), GOOD, GOOD]);
    assert_ne!(order(&world.rank())[0], "n02");
    let page = world.rank_after(3600.0);
    assert_eq!(order(&page), CANDIDATES);
    assert!(page.native && page.candidates.iter().all(|c| (c.weight - 1.0 / 3.0).abs() < 1e-12));
    assert_eq!(world.published("rank_profile/reads/native"), Some(1.0));
}

#[test]
fn impossible_values_and_unknown_samples_do_not_count() {
    let mut world = World::with([GOOD, GOOD, GOOD]);
    world.set("n02/app/queue", f64::NAN);
    world.set("n03/app/queue", -1.0);
    let time = world.at.wall;
    let unknown = Sample { time, value: Value::F64(0.0), origin: Origin::Unknown };
    world.kept("n04/app/queue", Kind::Gauge).publish_sample(&unknown).expect("published");
    let page = world.rank();
    let not_a_number = Some("the value is not a finite number of at least zero");
    assert_eq!(fault(find(&page, "n02"), "queue"), not_a_number);
    assert_eq!(fault(find(&page, "n03"), "queue"), not_a_number);
    assert_eq!(fault(find(&page, "10.0.0.4:9042"), "queue"), Some("there is no recent value"));
    assert!(page.candidates.iter().all(|c| c.score.is_finite() && c.weight > 0.3));
}

#[test]
fn a_report_that_peers_contradict_does_not_count() {
    // The first candidate reports an empty queue. Its own measurements of itself are not those of a peer, and one peer may
    // be the liar, even if it publishes twice.
    let mut world = World::with([(0.001, 0.0), GOOD, GOOD]);
    world.set("n02/app/n02/queue_seen", 40.0);
    world.set("n03/app/n02/queue_seen", 40.0);
    world.set("n03/other/n02/queue_seen", 40.0);
    assert_eq!(order(&world.rank())[0], "n02");
    world.set("n05/app/n02/queue_seen", 44.0);
    let page = world.rank_after(1.0);
    let liar = find(&page, "n02");
    assert_eq!((liar.state.as_str(), liar.place), ("contradicted", 3));
    assert_eq!(fault(liar, "queue"), Some("peers measure another value"));
    assert_eq!(world.published("rank/reads@n02/state"), Some(2.0));
}

#[test]
fn a_flapping_candidate_counts_as_bad_until_it_stays_good() {
    let mut world = World::with([GOOD; 3]);
    let mut states = Vec::new();
    for round in 0..12 {
        let rtt = if round % 2 == 0 { 0.001 } else { 0.02 };
        world.set_all([(rtt, 1.0), GOOD, GOOD]);
        states.push(find(&world.rank_after(1.0), "n02").state.clone());
    }
    assert_eq!(states.last().map(String::as_str), Some("flapping"), "{states:?}");
    world.set_all([GOOD; 3]);
    assert_eq!(world.rank_after(1.0).candidates[2].candidate, "n02");
    for _ in 0..300 {
        world.set_all([GOOD; 3]);
        world.rank_after(1.0);
    }
    assert_eq!(find(&world.page(&[]), "n02").state, "known");
}

#[test]
fn the_clock_of_another_node_is_corrected_if_its_offset_is_known() {
    for (offset, known) in [(3600.0, true), (-3600.0, true), (3600.0, false)] {
        let mut world = World::new(CONFIG);
        let theirs = match offset > 0.0 {
            true => world.at.wall.saturating_add(Duration::from_secs(3600)),
            false => world.at.wall.saturating_sub(Duration::from_secs(3600)),
        };
        world.set_at(theirs, "n02/app/queue", 1.0);
        world.set("n03/app/queue", 1.0);
        if known {
            world.set("n01/mirror/n02/clock_offset_seconds", offset);
        }
        let page = world.rank();
        let expected = match known {
            true => None,
            false => Some("the time of the value is ahead of this clock"),
        };
        assert_eq!(fault(find(&page, "n02"), "queue"), expected, "{offset} s, known: {known}");
        // A corrected value grows old like any other one.
        let later = world.rank_after(7.0);
        let stale = known.then_some("the value is old").or(expected);
        assert_eq!(fault(find(&later, "n02"), "queue"), stale, "{offset} s, known: {known}");
    }
}

#[test]
fn a_counter_counts_by_its_rate_and_many_topics_as_the_profile_says() {
    let config = r#"
        candidates = ["n02", "n03"]
        [profile]
        name = "reads"
        [[profile.metrics]]
        name = "drops"
        topic = "{node}/nic/*/dropped_total"
        combine = "sum"
        floor = 1.0
    "#;
    let mut world = World::new(config);
    let drops = |world: &RankPage, name| {
        find(world, name).parts.iter().find(|part| part.name == "drops").expect("it").value
    };
    let mut totals = [0.0; 3];
    for _ in 0..3 {
        for (total, by) in totals.iter_mut().zip([10.0, 20.0, 1.0]) {
            *total += by;
        }
        let time = world.at.wall;
        for (topic, total) in ["n02/nic/a", "n02/nic/b", "n03/nic/a"].iter().zip(totals) {
            let topic = format!("{topic}/dropped_total");
            world.kept(&topic, Kind::Counter).publish_at(time, total).expect("published");
        }
        world.rank_after(0.0);
        world.at.wall = world.at.wall.saturating_add(Duration::from_secs(2));
    }
    let page = world.page(&[]);
    assert_eq!((drops(&page, "n02"), drops(&page, "n03")), (Some(15.0), Some(0.5)));
}

#[test]
fn requests_about_what_is_not_ranked_are_refused_with_a_hint() {
    let mut world = World::with([GOOD; 3]);
    let hint = |answer: Result<Answer, Answer>| match answer {
        Err(Answer::Refused { error, hint }) => (error, hint.expect("a hint")),
        other => panic!("{other:?}"),
    };
    let early = hint(world.ranks.page(None, &[], 0));
    assert_eq!(early.0, "`reads` was not ranked yet");
    world.rank();
    assert_eq!(hint(world.ranks.page(Some("raeds"), &[], 0)).1, "did you mean `reads`?");
    let unknown = hint(world.ranks.page(None, &["n2".to_owned()], 0));
    assert!(unknown.0.contains("`n2` is not a candidate of `reads`"), "{unknown:?}");
    let outcome = OutcomeReport {
        candidate: "n02".to_owned(),
        seconds: 0.001,
        failed: false,
        probability: None,
    };
    let many = vec![outcome.clone(); 257];
    assert!(hint(world.ranks.learn(None, &many)).1.contains("256"));
    let zz = OutcomeReport { candidate: "zz".to_owned(), ..outcome.clone() };
    let nan = OutcomeReport { seconds: f64::NAN, ..outcome.clone() };
    let never = OutcomeReport { probability: Some(0.0), ..outcome.clone() };
    match world.ranks.learn(Some("reads"), &[zz, outcome, nan, never]) {
        Ok(Answer::Outcomes { taken: 1, refused: 3, first_refusal: Some(reason) }) => {
            assert_eq!(reason, "`zz` is not a candidate of the last ranking");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn outcomes_are_recorded_within_bounds_and_replayed() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("reads.jsonl");
    let config = CONFIG.replacen(
        "[profile]",
        &format!("record = {path:?}\nrecord_max_bytes = 8000\n[profile]"),
        1,
    );
    let mut world = World::new(&config);
    let report = |candidate: &str, failed| OutcomeReport {
        candidate: candidate.to_owned(),
        seconds: 0.002,
        failed,
        probability: None,
    };
    for round in 0..4 {
        world.set_all([GOOD, (0.003, 1.0), (0.002, 1.0)]);
        world.rank_after(1.0);
        let mut outcomes = vec![report("n02", false), report("n03", round == 0)];
        outcomes.resize(40, report("n02", false));
        for _ in 0..2 {
            world.ranks.learn(None, &outcomes).expect("taken");
        }
    }
    let page = world.page_when(|page| page.recorded_total == 256);
    assert_eq!(page.outcomes_total, 320);
    assert_eq!((page.record_left_out_total, page.record_error), (64, None));
    let recorded = std::fs::read_to_string(&path).expect("a recording");
    let before =
        std::fs::read_to_string(folder.path().join("reads.jsonl.1")).expect("the one before");
    assert!(recorded.len() <= 8000 && before.len() <= 8000);
    let profile = world.ranks.profiles[0].profile().clone();
    let replayed = replay(&recorded, profile, 1).expect("a valid recording");
    assert_eq!(replayed.requests, recorded.lines().count() - 1);
    assert!(replayed.requests > 0 && !replayed.torn && replayed.estimated_cost.is_some());
    // A folder that is gone is an error that the page shows, and the rest goes on.
    drop(folder);
    world.rank_after(1.0);
    for _ in 0..50 {
        world.ranks.learn(None, &[report("n02", true)]).expect("taken");
    }
    let page = world.page_when(|page| page.record_left_out_total > 64);
    assert!(page.record_error.is_some_and(|e| e.contains("reads.jsonl")));
}

#[test]
fn a_metric_that_changes_no_weight_is_read_without_asking_for_its_sensor() {
    let mut world = World::with([GOOD; 3]);
    for round in 0..400 {
        // The round-trip time decides, and all queues are alike.
        world.set_all([(0.001 + 1e-5 * f64::from(round % 7), 1.0), GOOD, (0.004, 1.0)]);
        world.rank_after(1.0);
    }
    let page = world.page(&[]);
    let relaxed: Vec<(&str, bool)> =
        page.metrics.iter().map(|metric| (&*metric.name, metric.relaxed)).collect();
    assert_eq!(relaxed, [("rtt", false), ("queue", true)]);
    assert_eq!(world.published("rank_profile/reads/relaxed_metrics"), Some(1.0));
    let interest = |world: &World, topic: &str| {
        let fact = world.facts.iter().find(|fact| fact.topic().as_str() == topic).expect(topic);
        let publisher = if topic.starts_with("n01/") { &world.agent } else { &world.mirror };
        publisher.take_interest(fact).read
    };
    let topics = ["n01/peer/n02/rtt_seconds", "n02/app/queue"];
    for topic in topics {
        // The marks of earlier rankings.
        let _ = interest(&world, topic);
    }
    world.rank_after(1.0);
    assert!(interest(&world, topics[0]) && !interest(&world, topics[1]));
    // The queues differ again: the metric counts, and comes back.
    for _ in 0..64 {
        world.set_all([(0.001, 30.0), GOOD, (0.004, 1.0)]);
        world.rank_after(1.0);
    }
    assert!(world.page(&[]).metrics.iter().all(|metric| !metric.relaxed));
    world.rank_after(1.0);
    assert!(interest(&world, topics[1]));
}

#[test]
fn an_agent_that_ranks_nothing_does_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let publisher = Publisher::builder("agent").dir(dir.path()).node("n01").create().expect("one");
    let mut ranks = Ranks::new(&Arc::from("n01"), dir.path(), &[], None, &publisher).expect("it");
    assert_eq!(ranks.due(), None);
    let clock = Clock { wall: now(), monotonic: monotonic() };
    ranks.run(clock, &mut Counts::default());
    assert!(ranks.page(None, &[], 0).is_err());
}

fn assert_near(found: &[f64], expected: &[f64]) {
    let is_near = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9);
    assert!(found.len() == expected.len() && is_near, "{found:?}, {expected:?}");
}

#[test]
fn learned_weights_survive_the_agent() {
    let config = CONFIG.replacen("\"given\"", "\"learned\"", 1);
    let mut world = World::new(&config);
    world.learn();
    let early = world.weights();
    assert!((early[0] - 0.5).abs() > 0.01, "{early:?}");
    let (state, file) = (Rc::clone(&world.state), world.state.path().join("reads.json"));
    assert!(!file.exists(), "nothing was learned when the weights were kept last");
    // An agent that is killed: the weights were kept while it ran.
    world.rank_after(SAVE_EVERY.as_secs_f64());
    wait_until(|| file.exists().then_some(()));
    let mut next = World::in_state(&config, Rc::clone(&state));
    next.set_all([GOOD; 3]);
    next.rank();
    assert_near(&next.weights(), &early);
    // An agent that ends keeps the weights that it learned since.
    next.learn();
    let late = next.weights();
    let before = std::fs::read_to_string(&file).expect("the weights");
    drop(next);
    wait_until(|| (std::fs::read_to_string(&file).expect("the weights") != before).then_some(()));
    let mut last = World::in_state(&config, state);
    last.rank();
    assert_near(&last.weights(), &late);
    assert_eq!(last.ranks.events().count(), 0);
    assert_eq!(last.published("rank_profile/reads/weights_not_kept_total"), Some(0.0));
}

/// Learned weights of 3 to 1, after enough outcomes that those of the start do not count.
const EXPERIENCE: &str =
    r#"{"coefficients":[3,1,0],"squares":[1,1,1],"outcomes":64,"good_seconds":1}"#;

#[test]
fn weights_that_cannot_be_read_begin_anew_with_a_counted_warning() {
    let config = CONFIG.replacen("\"given\"", "\"learned\"", 1);
    let content = |version: u32, metrics: &str, experience: &str| {
        format!(r#"{{"version":{version},"metrics":[{metrics}],"experience":{experience}}}"#)
    };
    let (known, others) = (r#""rtt","queue""#, r#""rtt","load""#);
    let negative = EXPERIENCE.replacen("[3,1,0]", "[3,-1,0]", 1);
    let start = [0.5; 2];
    for (text, failures, weights) in [
        (content(1, known, EXPERIENCE), 0, [0.75, 0.25]),
        (content(1, others, EXPERIENCE), 0, start),
        (content(1, known, EXPERIENCE)[..40].to_owned(), 1, start),
        (String::new(), 1, start),
        (content(2, known, EXPERIENCE), 1, start),
        (content(1, known, &negative), 1, start),
        (" ".repeat(70_000) + &content(1, known, EXPERIENCE), 1, start),
    ] {
        let state = tempfile::tempdir().expect("a directory");
        std::fs::write(state.path().join("reads.json"), &text).expect("written");
        let mut world = World::in_state(&config, Rc::new(state));
        let warnings: Vec<Event> = world.ranks.events().collect();
        assert_eq!(warnings.len(), failures, "{text}: {warnings:?}");
        world.rank();
        assert_near(&world.weights(), &weights);
        let counted = world.published("rank_profile/reads/weights_not_kept_total");
        assert_eq!(counted, Some(failures as f64), "{text}");
    }
}

#[test]
fn weights_of_a_newer_version_are_not_overwritten() {
    let config = CONFIG.replacen("\"given\"", "\"learned\"", 1);
    let state = Rc::new(tempfile::tempdir().expect("a directory"));
    let (file, aside) = (state.path().join("reads.json"), state.path().join("reads.json.unread"));
    let newer = format!(r#"{{"version":2,"metrics":["rtt","queue"],"experience":{EXPERIENCE}}}"#);
    std::fs::write(&file, &newer).expect("written");
    let mut world = World::in_state(&config, Rc::clone(&state));
    assert_eq!(world.ranks.events().count(), 1);
    world.learn();
    let learned = world.weights();
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), newer);
    drop(world);
    wait_until(|| std::fs::read_to_string(&file).is_ok_and(|now| now != newer).then_some(()));
    assert_eq!(std::fs::read_to_string(&aside).expect("it was moved"), newer);
    let mut next = World::in_state(&config, state);
    assert_eq!(next.ranks.events().count(), 0);
    next.rank();
    assert_near(&next.weights(), &learned);
}

#[test]
fn weights_whose_write_failed_are_written_without_further_outcomes() {
    let config = CONFIG.replacen("\"given\"", "\"learned\"", 1);
    let mut world = World::new(&config);
    world.learn();
    let state = Rc::clone(&world.state);
    // The next file cannot be made.
    let new = state.path().join("reads.json.new");
    std::fs::create_dir(&new).expect("made");
    world.rank_after(SAVE_EVERY.as_secs_f64());
    wait_until(|| (world.ranks.profiles[0].counts().weights_not_kept == 1).then_some(()));
    std::fs::remove_dir(&new).expect("removed");
    let learned = world.weights();
    drop(world);
    let file = state.path().join("reads.json");
    wait_until(|| file.exists().then_some(()));
    let mut next = World::in_state(&config, state);
    next.rank();
    assert_near(&next.weights(), &learned);
}

#[test]
fn the_end_reports_weights_that_a_disk_that_hangs_did_not_take() {
    let config = CONFIG.replacen("\"given\"", "\"learned\"", 1);
    let mut world = World::new(&config);
    world.learn();
    // A pipe without a reader: opening it to write hangs.
    let new = world.state.path().join("reads.json.new");
    let made = std::process::Command::new("mkfifo").arg(&new).status();
    assert!(made.is_ok_and(|status| status.success()), "mkfifo is in coreutils");
    let events = world.ranks.end();
    let [Event::RankUnwritten { profile, outcomes, weights }] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!((&**profile, *outcomes, *weights), ("reads", 0, true));
    assert!(world.ranks.end().is_empty());
    // The thread goes on, and finds a pipe that is closed.
    drop(std::fs::File::open(&new).expect("there"));
}

#[test]
fn a_profile_that_does_not_learn_keeps_no_file() {
    let mut world = World::new(CONFIG);
    world.learn();
    world.rank_after(SAVE_EVERY.as_secs_f64());
    let state = Rc::clone(&world.state);
    drop(world);
    assert_eq!(std::fs::read_dir(state.path()).expect("a directory").count(), 0);
}
