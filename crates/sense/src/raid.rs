//! `raid`: software RAID arrays, from `/proc/mdstat`.
