//! The built-in insights: each formula on recorded numbers, the `tiers` file, and vertices that
//! come and go with facts.

mod support;

mod built_in;
mod device;
mod end_to_end;
mod node;
mod paths;
mod slow_device;
mod storage;
mod tiers;
