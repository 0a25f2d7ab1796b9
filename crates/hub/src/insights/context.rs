//! The state that all insights of a hub share.

use std::sync::Arc;

use skopos_model::{Topic, unpoisoned};
use skopos_query::Engine;
use tokio::runtime::Handle;

use crate::insight_infos::InsightInfos;
use crate::tables::InsightInfo;

/// The state that all insights of a hub share.
pub(super) struct Context {
    pub(super) engine: Arc<Engine>,
    pub(super) runtime: Handle,
    pub(super) infos: InsightInfos,
    /// Prefix of the topics with the costs of insights.
    pub(super) costs: String,
}

/// Stores the formula and the reason of an insight, for the table `insights`.
pub(super) fn store_info(infos: &InsightInfos, topic: &Topic, info: InsightInfo) {
    unpoisoned(infos.write()).insert(topic.clone(), info);
}
