//! Reasons that several mechanisms give with their values.

/// The bytes that the kernel's sums leave out.
pub(super) const NOT_IN_BYTES: &str = "excludes bytes moved by splice, tee, vmsplice, recv and send (at level 3, received_bytes and \
     sent_bytes count those of sockets); input and output by mmap and io_uring is counted in \
     device_read_bytes and device_written_bytes only";

/// Returns the reason why a value is incomplete if processes of the task are still running.
pub(super) fn still_running(processes: usize) -> Option<String> {
    match processes {
        0 => None,
        1 => Some("1 process of the task is still running".to_owned()),
        many => Some(format!("{many} processes of the task are still running")),
    }
}

/// Returns the reason why a value is incomplete if children exited that may have been of the task.
pub(super) fn unassigned(processes: u64) -> Option<String> {
    (processes > 0).then(|| {
        format!(
            "{processes} orphans are not counted: the program that became the monitor had children \
             before, and nothing shows whose they were"
        )
    })
}

/// The reason why a value is incomplete if the kernel sent more messages than the monitor could read.
pub(super) fn lost_messages(times: u64) -> String {
    format!("the kernel sent more than could be read, {times} times")
}

/// The reason why a mechanism cannot match the kernel's process ids in a container.
pub(super) const NO_KERNEL_IDS: &str = "in a container the kernel's process ids are not known";

/// Appends the counts above zero to a text, each with its description.
pub(super) fn append_counts(text: &mut String, counts: &[(u64, &str)]) {
    for (count, what) in counts.iter().filter(|(count, _)| *count > 0) {
        *text += &format!("; {count} {what}");
    }
}
