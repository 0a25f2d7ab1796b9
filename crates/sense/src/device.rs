//! `device`: what whole block devices are, from `/sys/block`, and what they were measured to be able
//! to do.
