//! How long to wait until the next poll: policies that learn it from what polls found.
