//! `responder`: what this node does for those that probe it.
