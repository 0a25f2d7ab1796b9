//! Segments in a store in memory: what is sealed is there for the next hub, whatever fails on the way.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path as Key;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt as _, PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use skopos_model::Timestamp;
use skopos_model::job::{JobId, JobRecord, Kind};
use skopos_store::Disk as _;
use skopos_store::history::Error;
use skopos_store::jobs::{JobPart, Lts, Mark, Retention, SegmentFiles, StoredRecord};

use super::disk::Bucket;

type Result<T> = std::result::Result<T, object_store::Error>;

/// A store in memory that fails from some change on, before or after it makes the change.
#[derive(Debug)]
struct Failing {
    store: Arc<InMemory>,
    /// Changes that still work; none fails if it is negative.
    left: AtomicI64,
    /// True if the change that fails is made all the same, and only its answer is lost.
    is_made: bool,
}

impl Failing {
    fn new(store: &Arc<InMemory>, changes: Option<i64>, is_made: bool) -> Self {
        Self { store: store.clone(), left: AtomicI64::new(changes.unwrap_or(-1)), is_made }
    }

    /// Returns true if a change is to be made, and its answer.
    fn change(&self) -> (bool, Result<()>) {
        let left = self.left.load(Ordering::Relaxed);
        match left {
            0 => {
                // The first one that fails may be made; those after it do not reach the server.
                let failed =
                    Err(object_store::Error::Generic { store: "test", source: "away".into() });
                self.left.store(i64::MIN, Ordering::Relaxed);
                (self.is_made, failed)
            }
            i64::MIN => {
                (false, Err(object_store::Error::Generic { store: "test", source: "away".into() }))
            }
            left if left < 0 => (true, Ok(())),
            left => {
                self.left.store(left - 1, Ordering::Relaxed);
                (true, Ok(()))
            }
        }
    }
}

impl fmt::Display for Failing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a store that fails")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Failing {
    async fn put_opts(
        &self,
        key: &Key,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let (is_made, answer) = self.change();
        if !is_made {
            return Err(answer.expect_err("a change that is not made fails"));
        }
        let put = self.store.put_opts(key, payload, options).await?;
        answer.map(|()| put)
    }

    async fn put_multipart_opts(
        &self,
        key: &Key,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.change().1?;
        self.store.put_multipart_opts(key, options).await
    }

    async fn get_opts(&self, key: &Key, options: GetOptions) -> Result<GetResult> {
        self.store.get_opts(key, options).await
    }

    fn delete_stream(
        &self,
        keys: BoxStream<'static, Result<Key>>,
    ) -> BoxStream<'static, Result<Key>> {
        let (is_made, answer) = self.change();
        let deleted = self.store.delete_stream(keys);
        match (is_made, answer) {
            (true, Ok(())) => deleted,
            (true, Err(_)) => deleted
                .map(|_| Err(object_store::Error::Generic { store: "test", source: "away".into() }))
                .boxed(),
            (false, answer) => {
                let error = answer.expect_err("it fails");
                futures_util::stream::iter([Err(error)]).boxed()
            }
        }
    }

    fn list(&self, prefix: Option<&Key>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Key>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Key, to: &Key, options: CopyOptions) -> Result<()> {
        let (is_made, answer) = self.change();
        if is_made {
            self.store.copy_opts(from, to, options).await?;
        }
        answer
    }
}

/// A store, and the scratch folder of the hub that uses it.
struct World {
    store: Arc<InMemory>,
    scratch: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        Self { store: Arc::new(InMemory::new()), scratch: tempfile::tempdir().expect("a folder") }
    }

    fn try_open(&self, changes: Option<i64>, is_made: bool) -> std::result::Result<Lts, Error> {
        let store = Arc::new(Failing::new(&self.store, changes, is_made));
        let bucket = Bucket::new(store, "site/a", self.scratch.path()).expect("a bucket");
        Lts::on(Arc::new(bucket), &folder())
    }

    fn open(&self) -> Lts {
        self.try_open(None, false).expect("opened")
    }

    fn keys(&self) -> Vec<String> {
        futures_util::future::FutureExt::now_or_never(async {
            self.store
                .list(None)
                .map(|meta| meta.expect("listed").location.to_string())
                .collect::<Vec<_>>()
                .await
        })
        .expect("a store in memory answers at once")
    }

    /// Returns the key of a segment.
    fn segment(&self) -> Key {
        let keys = self.keys();
        Key::from(keys.into_iter().find(|key| key.contains("segment-")).expect("a segment"))
    }

    /// Damages a segment.
    fn flip_a_bit(&self) {
        let key = self.segment();
        let flip = async {
            let bytes = self.store.get(&key).await.expect("there").bytes().await.expect("read");
            let mut bytes = bytes.to_vec();
            bytes[100] ^= 4;
            self.store.put(&key, bytes.into()).await.expect("written");
        };
        futures_util::future::FutureExt::now_or_never(flip).expect("at once");
    }
}

fn folder() -> PathBuf {
    Bucket::root().join("lts")
}

fn id(job: usize) -> JobId {
    JobId::new(format!("j{job:05}"), 0).expect("an id")
}

fn part(job: usize, records: usize) -> JobPart {
    part_of(job, (0..records).map(|at| format!("{{\"user\":\"ann\",\"n\":{at}}}")))
}

fn part_of(job: usize, contents: impl Iterator<Item = String>) -> JobPart {
    let text = format!("j{job:05}");
    let record = |(at, content): (usize, String)| {
        let time = Timestamp::from_nanos(at as i64);
        StoredRecord::of(&JobRecord {
            kind: Kind::Start,
            job: &text,
            generation: 0,
            node: "n",
            time,
            content: content.as_bytes(),
        })
    };
    let marks = vec![Mark { producer: "p".to_owned(), epoch: 1, sequence: job as i64 }];
    JobPart { id: id(job), number: 0, records: contents.enumerate().map(record).collect(), marks }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_nanos(seconds * 1_000_000_000)
}

fn content(lts: &Lts, jobs: usize) -> BTreeMap<usize, Vec<StoredRecord>> {
    let read = |job| (job, lts.read(&id(job)).expect("readable"));
    (0..jobs).map(read).filter(|(_, records)| !records.is_empty()).collect()
}

#[test]
fn sealed_parts_are_in_the_bucket_for_the_next_hub() {
    let world = World::new();
    let lts = world.open();
    let parts: Vec<JobPart> = (0..40).map(|job| part(job, 30)).collect();
    lts.seal(&parts, at(1)).expect("sealed");
    let before = content(&lts, 40);
    assert_eq!(before.len(), 40);
    drop(lts);
    let keys = world.keys();
    assert!(keys.iter().any(|key| key.starts_with("site/a/lts/segment-")), "{keys:?}");
    // Nothing of a segment stays on this machine.
    let left = std::fs::read_dir(world.scratch.path()).expect("listed").count();
    assert_eq!(left, 2, "the lock and the writer's name");
    let lts = world.open();
    assert_eq!(content(&lts, 40), before);
    assert_eq!(lts.verify().expect("read"), []);
    // Sealing again changes nothing.
    lts.seal(&parts, at(2)).expect("sealed");
    assert_eq!(lts.size().0, 1);
}

#[test]
fn small_segments_become_one_and_old_ones_go() {
    let world = World::new();
    let lts = world.open();
    for job in 0..70 {
        lts.seal(&[part(job, 3)], at(job as i64)).expect("sealed");
    }
    let before = content(&lts, 70);
    let changes = lts.compact(at(100));
    assert_eq!(changes.errors, Vec::<String>::new());
    assert_eq!((changes.moved.len(), lts.size().0), (70, 1));
    assert_eq!(content(&lts, 70), before);
    let none = Retention { max_age: Duration::from_secs(1 << 40), max_bytes: 0 };
    let changes = lts.retain(&none, at(100));
    assert_eq!((changes.removed.len(), lts.size().0), (70, 0));
    assert_eq!(world.keys(), ["site/a/writer"]);
}

/// A change of the bucket fails, made or not, and all that follow: what was sealed before is there, and exactly once.
#[test]
fn a_store_that_goes_away_at_any_change_loses_nothing() {
    let mut failed = 0;
    for is_made in [false, true] {
        for changes in [1, 2, 3, 30, 69, 70, 71, 72, 73, 74, 75, 100, 140, 141, 142, 143] {
            let world = World::new();
            let Ok(lts) = world.try_open(Some(changes), is_made) else { continue };
            let mut sealed = 0;
            for job in 0..70 {
                match lts.seal(&[part(job, 2)], at(job as i64)) {
                    Ok(_) => sealed = job + 1,
                    Err(_) => break,
                }
            }
            let merged = lts.compact(at(100));
            failed += usize::from(sealed < 70 || !merged.errors.is_empty());
            drop(lts);
            let lts = world.open();
            let found = content(&lts, 71);
            for job in 0..sealed {
                assert_eq!(
                    found.get(&job),
                    Some(&part(job, 2).records),
                    "{changes} {is_made} {job}"
                );
            }
            assert!(found.len() <= sealed + 1, "{changes} {is_made}");
            // It goes on.
            for job in 0..71 {
                lts.seal(&[part(job, 2)], at(200)).expect("sealed");
            }
            assert_eq!(lts.compact(at(300)).errors, Vec::<String>::new());
            assert_eq!(content(&lts, 71).len(), 71);
            assert_eq!(lts.verify().expect("read"), []);
        }
    }
    assert!(failed > 25, "{failed} of the failures were met");
}

#[test]
fn a_flipped_bit_is_found_and_the_other_parts_are_kept() {
    let world = World::new();
    let lts = world.open();
    let parts: Vec<JobPart> = (0..20).map(|job| part(job, 400)).collect();
    lts.seal(&parts, at(1)).expect("sealed");
    world.flip_a_bit();
    drop(lts);
    let lts = world.open();
    let damaged = lts.verify().expect("read");
    assert_eq!(damaged.len(), 1);
    let changes = lts.repair(&damaged[0].damage.file, at(2));
    assert_eq!(changes.errors, Vec::<String>::new());
    assert!(!changes.damaged[0].lost.is_empty());
    assert!(world.keys().iter().any(|key| key.contains("quarantine")), "{:?}", world.keys());
    assert_eq!(lts.verify().expect("read"), []);
}

#[test]
fn two_hubs_do_not_write_to_one_prefix() {
    let (world, scratch) = (World::new(), tempfile::tempdir().expect("a folder"));
    let first = world.open();
    first.seal(&[part(0, 1)], at(1)).expect("sealed");
    let other = World { store: world.store.clone(), scratch };
    let refused = other.try_open(None, false).expect_err("another hub writes");
    assert!(described(&refused).contains("another hub writes to it"), "{refused}");
    // Its name is removed, as the message says: now the first one must not write any more.
    let remove = async { world.store.delete(&Key::from("site/a/writer")).await.expect("removed") };
    futures_util::future::FutureExt::now_or_never(remove).expect("at once");
    let second = other.open();
    let refused = first.seal(&[part(1, 1)], at(2)).expect_err("the other hub writes");
    assert!(described(&refused).contains("another hub writes to it"), "{refused}");
    assert_eq!(content(&second, 2).len(), 1);
}

#[test]
fn a_hub_that_helps_reads_the_segments_of_a_bucket_and_changes_nothing() {
    let world = World::new();
    let parts: Vec<JobPart> = (0..20).map(|job| part(job, 400)).collect();
    world.open().seal(&parts, at(1)).expect("sealed");
    let name = world.segment().filename().expect("a name").to_owned();
    let reading = || Bucket::reading(world.store.clone(), "site/a").expect("a bucket");
    let read = |files: &SegmentFiles, job| files.read(&name, &id(job), 0);
    let files = SegmentFiles::on(Arc::new(reading()), &folder());
    for (job, part) in parts.iter().enumerate() {
        let records = read(&files, job).expect("readable");
        assert_eq!(records.as_ref(), Some(&part.records), "{job}");
    }
    assert_eq!(read(&files, 20).expect("readable"), None);
    let (bucket, path) = (reading(), folder().join(&name));
    let before = world.keys();
    for changed in [
        bucket.begin(),
        bucket.remove(&path),
        bucket.rename(&path, &folder().join("other.parquet")),
        bucket.rename(&folder().join("segment-1.tmp"), &path),
        bucket.create(&folder().join("segment-1.tmp")).map(drop),
        bucket.lock(&folder().join("lock")).map(drop),
    ] {
        let refused = changed.expect_err("the bucket was opened to read");
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    }
    assert_eq!(world.keys(), before);
    // The bytes are checked as those of a file are.
    world.flip_a_bit();
    let files = SegmentFiles::on(Arc::new(reading()), &folder());
    let damaged = (0..20).filter_map(|job| read(&files, job).err());
    let damaged: Vec<bool> = damaged.map(|error| error.is_damage()).collect();
    assert!(damaged.contains(&true) && !damaged.contains(&false), "{damaged:?}");
}

#[test]
fn large_segments_go_in_pieces() {
    let world = World::new();
    let lts = world.open();
    // Nothing that a compressor could make small.
    let mut seed = 1u64;
    let mut noise = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b' ' + (seed >> 58) as u8)
    };
    let texts = (0..12).map(|_| (0..1_500_000).map(|_| noise()).collect::<String>());
    let texts = texts.map(|text| format!("{{\"user\":\"{}\"}}", text.replace(['"', '\\'], "")));
    let big = part_of(0, texts);
    lts.seal(std::slice::from_ref(&big), at(1)).expect("sealed");
    assert!(lts.size().2 > 9 << 20, "{:?}", lts.size());
    drop(lts);
    assert_eq!(world.open().read(&id(0)).expect("readable"), big.records);
}

fn described(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[test]
fn paths_outside_of_the_bucket_are_refused() {
    let world = World::new();
    let bucket = Bucket::new(world.store.clone(), "", world.scratch.path()).expect("a bucket");
    assert!(bucket.open_to_read(Path::new("/etc/passwd")).is_err());
}
