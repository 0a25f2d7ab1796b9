//! The document provider: batches of JSON documents, which travel as the input of a call and not as bulk.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::call::{Call, Execution, Provider};
use crate::error::{Error, Result};
use crate::rpcs::Rpc;

/// The provider. Documents of a collection have numbers in the order in which they were stored.
#[derive(Default, Debug)]
pub struct Document {
    collections: Mutex<BTreeMap<String, Vec<Vec<u8>>>>,
}

impl Document {
    fn store(&self, call: &mut Call) -> Result<()> {
        let (collection, documents) = call.decode(|reader| {
            let collection = String::from_utf8_lossy(reader.bytes()?).into_owned();
            let documents: Vec<Value> = serde_json::from_slice(reader.bytes()?)
                .map_err(|source| Error::Json { doing: "read the documents", source })?;
            Ok((collection, documents))
        })?;
        // Each document is stored in its own text, with its keys in order, so that equal documents have equal texts.
        let texts: Result<Vec<Vec<u8>>, _> = documents.iter().map(serde_json::to_vec).collect();
        let texts = texts.map_err(|source| Error::Json { doing: "write a document", source })?;
        let mut collections = self.collections.lock().unwrap_or_else(PoisonError::into_inner);
        let stored = collections.entry(collection).or_default();
        stored.extend(texts);
        let count = stored.len() as u64;
        drop(collections);
        // Freeing so many values is work of the execution; later it would count as sending of the response.
        drop(documents);
        call.encode(|writer| {
            writer.u64(count);
        });
        Ok(())
    }
}

impl Provider for Document {
    fn serves(&self, rpc: Rpc) -> bool {
        rpc == Rpc::StoreMultiJson
    }

    fn execute<'a>(&'a self, _: Rpc, call: &'a mut Call) -> Execution<'a> {
        Box::pin(async move { self.store(call) })
    }
}
