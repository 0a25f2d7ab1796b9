//! Answers questions about the past of this node's topics, from its local history.

use std::path::PathBuf;

use skopos_shm::Host;
use skopos_wire::{Batch, Extent, HistoryResponder, Plane, Question};

use crate::answer::Answer;
use crate::local_history::LocalHistory;
use crate::published::published_here;
use skopos_term::Failure;

/// Answers questions about the past of `node` until the result is dropped.
///
/// # Errors
/// The directory cannot be read; the session is broken.
pub(crate) fn answer(
    plane: &Plane,
    node: &str,
    incarnation: i64,
    dir: PathBuf,
) -> Result<HistoryResponder, Failure> {
    let history = LocalHistory::new(published_here(Host::open_dirs(vec![dir])?));
    let name = node.to_owned();
    let answer = move |question: &Question, send: &mut dyn FnMut(&Batch)| {
        let mut answer = Answer::new(&name, question, send);
        let extent = history.show(&mut answer);
        if answer.end() { extent } else { Extent::Cut }
    };
    let answering = plane.answer_history(node, incarnation, answer);
    answering
        .map_err(|e| Failure::new("the node cannot answer questions about its past").because(&e))
}
