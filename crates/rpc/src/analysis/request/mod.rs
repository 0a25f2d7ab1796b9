//! Requests: each call of a request with both sides, on one clock.
//!
//! Read in this order: `calls`, the compact form; `tree`, the structure; `list` and `show`, the answers; `waterfall`.

pub mod calls;
pub mod tree;
pub mod show;
pub mod list;
pub mod waterfall;
