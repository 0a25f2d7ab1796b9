//! Names of the segments that Skopos publishes in a runtime directory.

/// The agent's segment. A runtime directory has one agent, and a user one runtime directory.
pub const SEGMENT_NAME: &str = "agent";

/// The segment in which a node mirrors what other nodes publish.
pub const MIRROR_NAME: &str = "mirror";

/// The segment in which the archiver publishes its own facts.
pub const HISTORY_NAME: &str = "history";

/// The segment in which a hub publishes the insights that it computes of its site.
pub const HUB_INSIGHTS_NAME: &str = "hub-insights";

/// The segment in which a hub publishes its own facts.
pub const HUB_FACTS_NAME: &str = "hub";

/// The segment in which a hub publishes the facts of its rules.
pub const HUB_RULES_NAME: &str = "hub-rules";
