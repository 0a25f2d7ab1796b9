//! `peer`: other nodes, probed from this one.
