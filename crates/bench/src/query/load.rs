//! Clients that ask again as soon as they have an answer, and the latency of each answer.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use super::question::Question;
use crate::stats::{Latencies, nanos_since};

/// Number of answers before the measurement, which warm caches and prepare statements.
const WARM: usize = 32;

/// The questions, and the number of clients.
pub(super) struct Load<'a> {
    /// They are asked in turns.
    pub(super) questions: &'a [Question],
    /// Number of clients at the same time.
    pub(super) clients: usize,
    pub(super) slice: Duration,
}

impl Load<'_> {
    /// Values in each answer.
    pub(super) fn complexity(&self) -> usize {
        self.questions.first().map_or(0, |question| question.topics.len())
    }
}

/// The result of one slice.
pub(super) struct Slice {
    pub(super) latencies: Latencies,
    pub(super) per_second: f64,
}

/// A store that can be asked.
pub(super) trait Store {
    /// Asks for a while, and measures.
    fn measure(&self, load: &Load<'_>) -> Result<Slice, String>;

    /// The values of one answer, in any order.
    fn values(&self, question: &Question) -> Result<Vec<f64>, String>;
}

/// Asks the question of this index, and appends the values of its answer.
pub(super) type Client = Box<dyn FnMut(usize, &mut Vec<f64>) -> Result<(), String> + Send>;

/// A store that is asked through connections, one for each client.
pub(super) trait Connects {
    fn connect(&self, questions: &[Question]) -> Result<Client, String>;
}

impl<T: Connects> Store for T {
    fn measure(&self, load: &Load<'_>) -> Result<Slice, String> {
        let connect = |_| self.connect(load.questions);
        let clients = (0..load.clients).map(connect).collect::<Result<Vec<_>, _>>()?;
        let start = Barrier::new(load.clients);
        let results: Vec<Result<(Latencies, Duration), String>> = std::thread::scope(|scope| {
            let work = |client| scope.spawn(|| ask(client, load, &start));
            let threads: Vec<_> = clients.into_iter().map(work).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        });
        let (mut latencies, mut longest) = (Latencies::new(), Duration::ZERO);
        for result in results {
            let (one, elapsed) = result?;
            latencies.add(&one);
            longest = longest.max(elapsed);
        }
        let per_second = latencies.len() as f64 / longest.as_secs_f64();
        Ok(Slice { latencies, per_second })
    }

    fn values(&self, question: &Question) -> Result<Vec<f64>, String> {
        let mut values = Vec::new();
        self.connect(std::slice::from_ref(question))?(0, &mut values)?;
        Ok(values)
    }
}

fn ask(
    mut client: Client,
    load: &Load<'_>,
    start: &Barrier,
) -> Result<(Latencies, Duration), String> {
    let (mut latencies, mut values) = (Latencies::new(), Vec::new());
    let mut next = (0..load.questions.len()).cycle();
    let mut answer = || {
        let question = next.next().unwrap_or_default();
        values.clear();
        client(question, &mut values)?;
        match values.len() == load.complexity() {
            true => Ok(()),
            false => Err(format!("{} of {} values", values.len(), load.complexity())),
        }
    };
    let warm: Result<(), String> = (0..WARM).try_for_each(|_| answer());
    // A client that fails must not keep the others waiting.
    start.wait();
    warm?;
    let started = Instant::now();
    while started.elapsed() < load.slice {
        let started_at = Instant::now();
        answer()?;
        latencies.record(nanos_since(started_at));
    }
    Ok((latencies, started.elapsed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store whose answers have this number of values.
    struct Answers(usize);

    impl Connects for Answers {
        fn connect(&self, _: &[Question]) -> Result<Client, String> {
            let count = self.0;
            Ok(Box::new(move |_, values| {
                values.resize(count, 1.0);
                Ok(())
            }))
        }
    }

    #[test]
    fn an_answer_without_all_values_fails() {
        let questions = Question::all(3, 2);
        let load = Load { questions: &questions, clients: 2, slice: Duration::from_millis(1) };
        let slice = Answers(3).measure(&load).expect("all values");
        assert!(slice.per_second > 0.0 && slice.latencies.len() > 0);
        assert_eq!(Answers(2).measure(&load).err().as_deref(), Some("2 of 3 values"));
        assert_eq!(Answers(3).values(&questions[0]).expect("an answer").len(), 3);
    }
}
