//! A bucket as a disk for segments.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt as _, WriteMultipart};
use skopos_model::unpoisoned;
use skopos_store::{Disk, DiskFile, Listed, Lock, OsDisk};

use super::chunks::{CHUNK_BYTES, Chunks};
use super::requests::Requests;
use super::writer::Writer;

/// Bytes of a piece of a large object. Servers take no more than 10,000 pieces, of 5 MiB at least.
const PIECE_BYTES: usize = 8 << 20;

/// The most pieces that are on the way at a time, and so in memory.
const MAX_PIECES: usize = 4;

/// Unfinished files are readable by the hub's user alone.
const SCRATCH_MODE: u32 = 0o700;

/// The root of all paths on this disk.
const ROOT: &str = "s3:";

/// A bucket. A file that is written is in a folder of this machine until it gets its final name; then it is uploaded. What
/// was uploaded is durable, so syncs have nothing to do.
///
/// Paths begin with [`root`](Self::root).
#[derive(Clone, Debug)]
pub struct Bucket {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    requests: Requests,
    prefix: Key,
    chunks: Mutex<Chunks>,
    /// `None` if the bucket was opened to read.
    writing: Option<Writing>,
}

/// The folder of unfinished files, and the right to write.
#[derive(Debug)]
struct Writing {
    scratch: PathBuf,
    writer: Writer,
}

impl Bucket {
    /// Takes a store and the beginning of its keys.
    ///
    /// # Errors
    /// The folder `scratch` cannot be made, or the client's thread cannot be started.
    pub(super) fn new(
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        scratch: &Path,
    ) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(SCRATCH_MODE).create(scratch)?;
        let (scratch, writer) = (scratch.to_path_buf(), Writer::new(scratch)?);
        Self::with(store, prefix, Some(Writing { scratch, writer }))
    }

    /// Takes a store that another hub writes to, and the beginning of its keys. Each change fails with
    /// [`PermissionDenied`](io::ErrorKind::PermissionDenied).
    ///
    /// # Errors
    /// The client's thread cannot be started.
    pub(super) fn reading(store: Arc<dyn ObjectStore>, prefix: &str) -> io::Result<Self> {
        Self::with(store, prefix, None)
    }

    fn with(
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        writing: Option<Writing>,
    ) -> io::Result<Self> {
        let prefix = Key::parse(prefix).map_err(io::Error::other)?;
        let (requests, chunks) = (Requests::new(store)?, Mutex::default());
        Ok(Self { shared: Arc::new(Shared { requests, prefix, chunks, writing }) })
    }

    /// Returns the root of the paths on this disk.
    pub fn root() -> &'static Path {
        Path::new(ROOT)
    }

    /// Takes the right to write.
    ///
    /// # Errors
    /// Another hub writes to the bucket, or it cannot be reached.
    pub fn begin(&self) -> io::Result<()> {
        self.writing()?.writer.begin(&self.shared.requests, &self.shared.prefix)
    }

    /// Uploads a file of this machine under a path, unless an object of its length is there.
    ///
    /// # Errors
    /// The file cannot be read, or the object cannot be written.
    pub fn take(&self, file: &Path, path: &Path) -> io::Result<()> {
        let key = self.key(path)?;
        let length = fs::metadata(file)?.len();
        match self.length(&key) {
            Ok(known) if known == length => Ok(()),
            Ok(_) => self.upload(file, key),
            Err(e) if e.kind() == io::ErrorKind::NotFound => self.upload(file, key),
            Err(e) => Err(e),
        }
    }

    /// Returns the key of a path.
    fn key(&self, path: &Path) -> io::Result<Key> {
        let rest = path.strip_prefix(ROOT).map_err(io::Error::other)?;
        let parts = rest.to_str().ok_or(io::ErrorKind::InvalidFilename)?;
        let mut key = self.shared.prefix.clone();
        for part in parts.split('/').filter(|part| !part.is_empty()) {
            key = key.join(part);
        }
        Ok(key)
    }

    fn writing(&self) -> io::Result<&Writing> {
        let refused = || io::Error::new(io::ErrorKind::PermissionDenied, "it was opened to read");
        self.shared.writing.as_ref().ok_or_else(refused)
    }

    /// Returns the place of an unfinished file.
    fn scratch(&self, path: &Path) -> io::Result<PathBuf> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        Ok(self.writing()?.scratch.join(name))
    }

    fn length(&self, key: &Key) -> io::Result<u64> {
        let key = key.clone();
        self.shared.requests.wait(move |store| async move { Ok(store.head(&key).await?.size) })
    }

    /// Refuses to change a bucket that another hub writes to.
    fn check_writer(&self) -> io::Result<()> {
        self.writing()?.writer.check(&self.shared.requests, &self.shared.prefix)
    }

    fn upload(&self, file: &Path, key: Key) -> io::Result<()> {
        self.check_writer()?;
        let (of, file) = (key.clone(), fs::File::open(file)?);
        let length = file.metadata()?.len();
        let uploaded = self.shared.requests.wait(move |store| upload(store, of, file, length));
        unpoisoned(self.shared.chunks.lock()).forget(&key);
        uploaded
    }

    /// Returns a chunk of an object.
    fn chunk(&self, key: &Key, number: u64, length: u64) -> io::Result<Bytes> {
        let now = Instant::now();
        if let Some(known) = unpoisoned(self.shared.chunks.lock()).get(key, number, now) {
            return Ok(known);
        }
        let from = number * CHUNK_BYTES;
        let range = from..(from + CHUNK_BYTES).min(length);
        let (of, wanted) = (key.clone(), range.end - range.start);
        let read =
            move |store: Arc<dyn ObjectStore>| async move { store.get_range(&of, range).await };
        let bytes = self.shared.requests.wait(read)?;
        if bytes.len() as u64 != wanted {
            // Not `UnexpectedEof`, which would mean that the segment is damaged.
            return Err(io::Error::other("the server sent fewer bytes than were asked for"));
        }
        unpoisoned(self.shared.chunks.lock()).insert(key, number, bytes.clone(), now);
        Ok(bytes)
    }
}

/// Returns true for a file that has no final name yet. It is on this machine.
fn is_unfinished(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "tmp")
}

/// Uploads a file: in one request, or in pieces of which the server makes one object at the end.
async fn upload(
    store: Arc<dyn ObjectStore>,
    key: Key,
    file: fs::File,
    length: u64,
) -> Result<(), object_store::Error> {
    let read = |at: u64| {
        let bytes = (length - at).min(PIECE_BYTES as u64);
        let mut piece = vec![0; bytes as usize];
        let read = DiskFile::read_at(&file, &mut piece, at);
        read.map(|()| Bytes::from(piece))
            .map_err(|e| object_store::Error::Generic { store: "file", source: Box::new(e) })
    };
    if length <= PIECE_BYTES as u64 {
        store.put(&key, read(0)?.into()).await?;
        return Ok(());
    }
    let upload = store.put_multipart(&key).await?;
    let mut pieces = WriteMultipart::new_with_chunk_size(upload, PIECE_BYTES);
    let mut at = 0;
    while at < length {
        let piece = match (read(at), pieces.wait_for_capacity(MAX_PIECES).await) {
            (Ok(piece), Ok(())) => piece,
            (Err(e), _) | (_, Err(e)) => {
                // If this fails, too, the pieces stay until a rule of the bucket removes them.
                let _ = pieces.abort().await;
                return Err(e);
            }
        };
        at += piece.len() as u64;
        pieces.put(piece);
    }
    pieces.finish().await?;
    Ok(())
}

impl Disk for Bucket {
    fn list(&self, folder: &Path) -> io::Result<Vec<Listed>> {
        let folder = self.key(folder)?;
        let of = folder.clone();
        let objects = self.shared.requests.wait(move |store| async move {
            let listed = store.list_with_delimiter(Some(&of)).await?;
            Ok(listed.objects)
        })?;
        let file = |object: object_store::ObjectMeta| {
            let name = object.location.filename()?.to_owned();
            Some(Listed { name, bytes: object.size })
        };
        Ok(objects.into_iter().filter_map(file).collect())
    }

    fn make_folder(&self, _folder: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_folder(&self, _folder: &Path) -> io::Result<()> {
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        OsDisk.create(&self.scratch(path)?)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("{} is an object", path.display())))
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let key = self.key(path)?;
        let length = self.length(&key)?;
        Ok(Box::new(Object { bucket: self.clone(), key, length }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let to = self.key(to)?;
        if is_unfinished(from) {
            let unfinished = self.scratch(from)?;
            self.upload(&unfinished, to)?;
            return fs::remove_file(unfinished);
        }
        self.check_writer()?;
        let from = self.key(from)?;
        let of = from.clone();
        let renamed = self.shared.requests.wait(move |store| async move {
            store.copy(&of, &to).await?;
            store.delete(&of).await
        });
        unpoisoned(self.shared.chunks.lock()).forget(&from);
        renamed
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        if is_unfinished(path) {
            return fs::remove_file(self.scratch(path)?);
        }
        self.check_writer()?;
        let key = self.key(path)?;
        let of = key.clone();
        let removed =
            self.shared.requests.wait(move |store| async move { store.delete(&of).await });
        unpoisoned(self.shared.chunks.lock()).forget(&key);
        match removed {
            // Servers agree that an object that is not there is removed; the store in memory does not.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Takes the right to write, and removes unfinished files that a killed process left.
    fn lock(&self, path: &Path) -> io::Result<Option<Lock>> {
        let Some(lock) = OsDisk.lock(&self.scratch(path)?)? else { return Ok(None) };
        self.begin()?;
        let scratch = &self.writing()?.scratch;
        for file in OsDisk.list(scratch)? {
            if is_unfinished(Path::new(&file.name)) {
                fs::remove_file(scratch.join(file.name))?;
            }
        }
        Ok(Some(lock))
    }
}

/// An object that is read. It may be removed meanwhile: then reads fail with `NotFound`.
#[derive(Debug)]
struct Object {
    bucket: Bucket,
    key: Key,
    length: u64,
}

impl DiskFile for Object {
    fn length(&self) -> io::Result<u64> {
        Ok(self.length)
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        let end = at.checked_add(bytes.len() as u64).filter(|end| *end <= self.length);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        let (mut at, mut rest) = (at, bytes);
        while at < end {
            let number = at / CHUNK_BYTES;
            let chunk = self.bucket.chunk(&self.key, number, self.length)?;
            // Less than a chunk.
            let skipped = (at - number * CHUNK_BYTES) as usize;
            let count = rest.len().min(chunk.len() - skipped);
            let (now, later) = rest.split_at_mut(count);
            now.copy_from_slice(&chunk[skipped..skipped + count]);
            at += count as u64;
            rest = later;
        }
        Ok(())
    }

    fn write_at(&self, _bytes: &[u8], _at: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn cut(&self, _length: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
