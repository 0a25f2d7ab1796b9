//! The cases by name, scaled to a machine with two cores.
//!
//! The paper ran on nodes with 64 cores. Here the time of a medium and of reading events is slept, so that many execution
//! streams make progress on few cores; pools, locks, limits and queues are real. C1 to C3 have 3 clients instead of 32;
//! servers, execution streams, databases, batch sizes and limits are those of Table IV.

use crate::case::Case;
use crate::config::Config;
use crate::load::Size;
use crate::process::Work;

/// Time of a transfer of C1 to C3. It is a network's, made so long that its share is seen over the noise of two cores.
const TRANSFER_US: u32 = 8000;

/// Time for which a put of C1 to C3 holds the backend, made longer as the transfer is.
const COMMIT_US: u32 = 500;

/// Time for each key of such a put.
const INSERT_NS: u32 = 2000;

/// Time for which a put of C4 to C7 holds the backend.
const QUICK_COMMIT_US: u32 = 20;

/// Time that a client of C4 to C7 needs to read an event.
const PREPARE_US: u32 = 200;

/// Writers of a client of C4 to C7: between two turns of the progress task, each issues one put.
const WRITERS: u32 = 128;

/// All cases.
#[must_use]
pub fn all() -> Vec<Case> {
    let mut cases = vec![mobject(), sonata()];
    cases.extend(hepnos());
    cases
}

/// The case of a name.
#[must_use]
pub fn find(name: &str) -> Option<Case> {
    all().into_iter().find(|case| case.name == name)
}

fn mobject() -> Case {
    Case {
        name: "mobject",
        summary: "ten clients write and read objects by name: which callpath dominates?",
        work: Work::Mobject,
        size: Size { events: 40, ..Size::default() },
        config: Config { clients: 10, databases: 4, ..Config::default() },
    }
}

fn sonata() -> Case {
    Case {
        name: "sonata",
        summary: "batches of JSON documents overflow the eager buffer: where does the time go?",
        work: Work::Sonata,
        size: Size { events: 50_000, ..Size::default() },
        config: Config { batch_size: 5000, ..Config::default() },
    }
}

/// C1 to C7 of Table IV.
fn hepnos() -> [Case; 7] {
    let many = Config {
        clients: 3,
        providers: 4,
        execution_streams: 20,
        databases: 32,
        batch_size: 1024,
        progress_thread: false,
        max_completion_events: 16,
        transfer_us: TRANSFER_US,
        commit_us: COMMIT_US,
        insert_ns: INSERT_NS,
        ..Config::default()
    };
    let few = Config {
        clients: 2,
        execution_streams: 16,
        databases: 8,
        transfer_us: 0,
        commit_us: QUICK_COMMIT_US,
        insert_ns: 0,
        prepare_us: PREPARE_US,
        ..many.clone()
    };
    let in_turn = Size { events: 12 * 1024, writers: 1, window: 1 };
    let at_once = Size { events: 4096, writers: WRITERS, window: u32::MAX };
    let case = |name, summary, config, size: &Size| Case {
        name,
        summary,
        work: Work::Hepnos,
        size: size.clone(),
        config,
    };
    let single = Config { batch_size: 1, ..few.clone() };
    let wide = Config { max_completion_events: 64, ..single.clone() };
    [
        case("c1", "too few execution streams", with_streams(&many, 5), &in_turn),
        case("c2", "too many databases", many.clone(), &in_turn),
        case("c3", "fewer databases", Config { databases: 8, ..many }, &in_turn),
        case("c4", "few clients with large batches", few, &at_once),
        case("c5", "a batch of one, and a starved progress loop", single, &at_once),
        case("c6", "more events in each read", wide.clone(), &at_once),
        case("c7", "a progress thread", Config { progress_thread: true, ..wide }, &at_once),
    ]
}

fn with_streams(config: &Config, execution_streams: u32) -> Config {
    Config { execution_streams, ..config.clone() }
}
