//! The configuration of a bucket: `[hub.jobs.s3]`, or that of the hub that this one helps.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use serde::Deserialize;
use skopos_access::is_loopback;
use thiserror::Error;

use super::disk::Bucket;

/// Time of one request. A segment goes in pieces of 8 MiB, so this is a rate of less than a megabyte a second.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Time of a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The most times that a request is repeated at once. What failed is done again by the next chore.
const MAX_RETRIES: usize = 2;

/// Time of a request with its repetitions.
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);

/// A bucket: `[hub.jobs.s3]`, or `helps_with` of `[hub.jobs]`. Keys come from the environment (`AWS_ACCESS_KEY_ID`,
/// `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`) or from the machine's role, never from this file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BucketConfig {
    /// The name of the bucket, which exists.
    pub bucket: String,
    /// The beginning of all keys. Hubs that share a bucket have one each.
    #[serde(default)]
    pub prefix: String,
    /// The URL of the server; by default that of Amazon's region.
    #[serde(default)]
    pub endpoint: Option<String>,
    /// The region; by default that of the environment, or `us-east-1`.
    #[serde(default)]
    pub region: Option<String>,
}

/// The reason why a bucket cannot be used.
#[derive(Debug, Error)]
pub enum BucketError {
    /// The configuration is not one of a bucket.
    #[error("`{field}` of the bucket is {value:?}: {why}")]
    Config {
        /// The name of the field.
        field: &'static str,
        /// Its value.
        value: String,
        /// The hint.
        why: &'static str,
    },
    /// The client cannot be made.
    #[error("the bucket {bucket} cannot be used: {why}")]
    Client {
        /// The name of the bucket.
        bucket: String,
        /// The reason.
        why: String,
    },
    /// The folder of unfinished files, or the client's thread, cannot be made.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl BucketConfig {
    /// Returns the URL of the bucket with the prefix.
    pub fn url(&self) -> String {
        let parts = ["s3:/", &self.bucket, &self.prefix];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
    }

    /// Opens the bucket. Unfinished files are in the folder `scratch`. Nothing is asked of the server yet.
    ///
    /// # Errors
    /// The configuration names no bucket, or sends keys and jobs over a network in clear text.
    pub fn open(&self, scratch: &Path) -> Result<Bucket, BucketError> {
        Ok(Bucket::new(self.store()?, &self.prefix, scratch)?)
    }

    /// Opens the bucket of another hub to read it. Nothing is asked of the server yet.
    ///
    /// # Errors
    /// The same as for [`open`](Self::open).
    pub fn open_to_read(&self) -> Result<Bucket, BucketError> {
        Ok(Bucket::reading(self.store()?, &self.prefix)?)
    }

    /// Returns the client of the server.
    fn store(&self) -> Result<Arc<dyn ObjectStore>, BucketError> {
        self.check()?;
        let options = ClientOptions::new()
            .with_timeout(REQUEST_TIMEOUT)
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_allow_http(self.endpoint.as_ref().is_some_and(|url| url.starts_with("http:")));
        let retry = RetryConfig {
            max_retries: MAX_RETRIES,
            retry_timeout: RETRY_TIMEOUT,
            ..RetryConfig::default()
        };
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(&self.bucket)
            .with_client_options(options)
            .with_retry(retry);
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint.trim_end_matches('/'));
        }
        if let Some(region) = &self.region {
            builder = builder.with_region(region);
        }
        let store = builder
            .build()
            .map_err(|e| BucketError::Client { bucket: self.bucket.clone(), why: e.to_string() })?;
        Ok(Arc::new(store))
    }

    fn check(&self) -> Result<(), BucketError> {
        let refused = |field, value: &str, why| {
            Err(BucketError::Config { field, value: value.to_owned(), why })
        };
        let is_name = |name: &str| {
            !name.is_empty()
                && name
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
        };
        if !is_name(&self.bucket) {
            return refused("bucket", &self.bucket, "it has letters, digits, `.`, `-` and `_`");
        }
        let parts = self.prefix.split('/').filter(|_| !self.prefix.is_empty());
        if parts.clone().any(|part| !is_name(part) || part.starts_with('.')) {
            return refused(
                "prefix",
                &self.prefix,
                "it is words of letters, digits, `.`, `-` and `_`, with `/` between them",
            );
        }
        let Some(endpoint) = &self.endpoint else { return Ok(()) };
        if endpoint.contains('@') {
            let why = "keys come from the environment, and never from this file";
            return refused("endpoint", "a URL with a user", why);
        }
        match endpoint.split_once("://") {
            Some(("https", host)) if !host.is_empty() => Ok(()),
            Some(("http", rest)) if is_loopback(rest.split('/').next().unwrap_or_default()) => {
                Ok(())
            }
            Some(("http", _)) => {
                let why = "only a server at an address of the loopback is reached without TLS; \
                           use https";
                refused("endpoint", endpoint, why)
            }
            _ => refused("endpoint", endpoint, "it begins with https://"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(bucket: &str, prefix: &str, endpoint: Option<&str>) -> BucketConfig {
        let (bucket, prefix) = (bucket.to_owned(), prefix.to_owned());
        let endpoint = endpoint.map(str::to_owned);
        BucketConfig { bucket, prefix, endpoint, region: None }
    }

    #[test]
    fn nothing_leaves_the_machine_in_clear_text() {
        for endpoint in ["https://s3.example.org", "http://127.0.0.1:9000", "http://[::1]:9000/"] {
            assert!(config("jobs", "a/b", Some(endpoint)).check().is_ok(), "{endpoint}");
        }
        for endpoint in
            ["http://10.0.0.1:9000", "http://localhost:9", "http://127.0.0.1.evil/", "x"]
        {
            assert!(config("jobs", "", Some(endpoint)).check().is_err(), "{endpoint}");
        }
        let secret = config("jobs", "", Some("https://ann:hunter2@s3.example.org"));
        let error = secret.check().expect_err("a password").to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[test]
    fn names_are_plain() {
        for (bucket, prefix) in [("", ""), ("a/b", ""), ("a", "/x"), ("a", "x//y"), ("a", "../x")] {
            assert!(config(bucket, prefix, None).check().is_err(), "{bucket:?} {prefix:?}");
        }
        assert!(config("jobs.site-1", "n01/x_1", None).check().is_ok());
    }
}
