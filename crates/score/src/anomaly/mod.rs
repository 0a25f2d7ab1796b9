//! Streaming detectors of what is unusual, a file each.
