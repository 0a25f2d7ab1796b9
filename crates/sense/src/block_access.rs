//! `block_access`: how often which part of a block device is accessed.
