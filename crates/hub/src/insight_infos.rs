//! Formulas and reasons of the hub's own insights, which the table `insights` shows.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use crate::tables::InsightInfo;
use skopos_model::Topic;

/// The formula and the latest reason of each of the hub's insights, by topic.
pub(crate) type InsightInfos = Arc<RwLock<BTreeMap<Topic, InsightInfo>>>;
