//! The right to write to a bucket.
//!
//! An object `writer` holds the name of the hub that writes. A hub begins with the object absent or its own, and looks at
//! it before each change. Two hubs on one prefix would otherwise remove each other's segments.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use bytes::Bytes;
use object_store::path::Path as Key;
use object_store::{ObjectStoreExt as _, PutMode, PutOptions};
use skopos_store::{Disk as _, OsDisk};

use super::requests::Requests;

/// The name of the object below the prefix.
const OBJECT: &str = "writer";

/// The file of this hub's name, beside unfinished files.
const FILE: &str = "writer";

/// Random bytes of a name: two hubs never have the same one.
const NAME_BYTES: usize = 16;

/// The name of this hub as a writer. It is made once, and kept.
#[derive(Debug)]
pub(super) struct Writer {
    name: String,
}

impl Writer {
    /// Reads the name from a folder, or makes one.
    ///
    /// # Errors
    /// The folder cannot be read or written.
    pub(super) fn new(folder: &Path) -> io::Result<Self> {
        let path = folder.join(FILE);
        match fs::read_to_string(&path) {
            Ok(name) if name.len() == 2 * NAME_BYTES => return Ok(Self { name }),
            Ok(_) => fs::remove_file(&path)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        let mut random = [0; NAME_BYTES];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let file = OsDisk.create(&path)?;
        file.write_at(name.as_bytes(), 0)?;
        file.sync()?;
        OsDisk.sync_folder(folder)?;
        Ok(Self { name })
    }

    /// Writes the name into the bucket, unless it is there.
    ///
    /// # Errors
    /// Another hub writes to the bucket, or it cannot be reached.
    pub(super) fn begin(&self, requests: &Requests, prefix: &Key) -> io::Result<()> {
        let (key, name) = (prefix.clone().join(OBJECT), Bytes::from(self.name.clone()));
        let put = requests.wait(move |store| async move {
            let options = PutOptions::from(PutMode::Create);
            store.put_opts(&key, name.into(), options).await.map(drop)
        });
        match put {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => self.check(requests, prefix),
            put => put,
        }
    }

    /// Returns an error if the bucket has another name, or none.
    ///
    /// # Errors
    /// Another hub writes to the bucket, or it cannot be reached.
    pub(super) fn check(&self, requests: &Requests, prefix: &Key) -> io::Result<()> {
        let key = prefix.clone().join(OBJECT);
        let of = key.clone();
        let found = requests.wait(move |store| async move { store.get(&of).await?.bytes().await });
        match found {
            Ok(found) if found == self.name.as_bytes() => Ok(()),
            Ok(_) => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "another hub writes to it; give each hub a `prefix` of its own, or remove the object {key} \
                     if that hub is gone for good"
                ),
            )),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "the object {key}, which names this hub as its writer, was removed; start the hub again"
                ),
            )),
            Err(e) => Err(e),
        }
    }
}
