//! The segments of another hub, which this one reads for it: `helps_with` of `[hub.jobs]`.
//!
//! # Invariants
//! - The configuration of this hub says where they lie. A piece of a statement names the bucket only to be compared with it.
//! - Nothing is written there.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use skopos_model::job::JobId;
use skopos_store::history::Error as LogError;
use skopos_store::jobs::{SegmentFiles, StoredRecord};

use super::segments::FOLDER;
use crate::bucket::{Bucket, BucketConfig, BucketError};

/// The place of the segments of a hub that this one helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HelpedPlace {
    /// The folder of the segments, which both hubs see.
    Folder(PathBuf),
    /// The bucket with the prefix of that hub. Keys that may read it suffice.
    Bucket(BucketConfig),
}

impl<'de> Deserialize<'de> for HelpedPlace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FolderOrBucket)
    }
}

struct FolderOrBucket;

impl<'de> Visitor<'de> for FolderOrBucket {
    type Value = HelpedPlace;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the path of a folder, or a bucket such as { bucket = \"jobs\" }")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<HelpedPlace, E> {
        let path = Path::new(text);
        match path.is_absolute() {
            true => Ok(HelpedPlace::Folder(path.to_path_buf())),
            false => Err(E::custom("the path of the folder begins with `/`")),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<HelpedPlace, A::Error> {
        BucketConfig::deserialize(MapAccessDeserializer::new(map)).map(HelpedPlace::Bucket)
    }
}

/// The segments of a hub that this one helps.
#[derive(Debug)]
pub(crate) struct HelpedSegments {
    /// URL of the bucket; `None` for a folder.
    bucket: Option<String>,
    files: SegmentFiles,
}

impl HelpedSegments {
    /// Opens segments to read them. They need not be there yet, and a server is not asked yet.
    ///
    /// # Errors
    /// The bucket cannot be used as it is configured.
    pub(crate) fn open(place: &HelpedPlace) -> Result<Self, BucketError> {
        match place {
            HelpedPlace::Folder(folder) => {
                Ok(Self { bucket: None, files: SegmentFiles::new(folder) })
            }
            HelpedPlace::Bucket(config) => {
                let bucket = Arc::new(config.open_to_read()?);
                let files = SegmentFiles::on(bucket, &Bucket::root().join(FOLDER));
                Ok(Self { bucket: Some(config.url()), files })
            }
        }
    }

    /// Returns the URL of the bucket; `None` for a folder.
    pub(super) fn bucket(&self) -> Option<&str> {
        self.bucket.as_deref()
    }

    /// Reads the records of a part in the segment `name`; `None` if the segment does not have it. Every byte is checked.
    ///
    /// # Errors
    /// The name is not one of a segment, or the segment is gone, damaged or cannot be read.
    pub(super) fn read(
        &self,
        name: &str,
        id: &JobId,
        number: u32,
    ) -> Result<Option<Vec<StoredRecord>>, LogError> {
        self.files.read(name, id, number)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use skopos_agent::config::parse;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct File {
        helps_with: HelpedPlace,
    }

    fn check(text: &str, expected: Result<HelpedPlace, &str>) {
        let parsed = parse::<File>(&format!("helps_with = {text}"), None);
        match (parsed, expected) {
            (Ok(file), Ok(expected)) => assert_eq!(file.helps_with, expected),
            (Err(failure), Err(part)) => {
                assert!(failure.message().contains(part), "{text}: {}", failure.message());
            }
            (parsed, expected) => panic!("{text}: {parsed:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn a_hub_helps_with_a_folder_or_a_bucket() {
        check("\"/shared/lts\"", Ok(HelpedPlace::Folder(PathBuf::from("/shared/lts"))));
        check("\"shared/lts\"", Err("the path of the folder begins with `/`"));
        let bucket = BucketConfig {
            bucket: "jobs".to_owned(),
            prefix: "hub1".to_owned(),
            endpoint: None,
            region: Some("eu-1".to_owned()),
        };
        let text = "{ bucket = \"jobs\", prefix = \"hub1\", region = \"eu-1\" }";
        check(text, Ok(HelpedPlace::Bucket(bucket)));
        check("{ prefix = \"hub1\" }", Err("missing field `bucket`"));
        check("{ bucket = \"jobs\", secret = \"x\" }", Err("unknown field `secret`"));
        check("7", Err("the path of a folder, or a bucket"));
    }

    #[test]
    fn a_bucket_that_would_be_read_in_clear_text_is_refused() {
        let endpoint = Some("http://10.0.0.1:9000".to_owned());
        let (bucket, prefix) = ("jobs".to_owned(), String::new());
        let place = HelpedPlace::Bucket(BucketConfig { bucket, prefix, endpoint, region: None });
        let error = HelpedSegments::open(&place).expect_err("refused").to_string();
        assert!(error.contains("`endpoint` of the bucket"), "{error}");
    }
}
