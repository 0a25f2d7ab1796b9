//! The roles of workers, and the program of a worker.

use std::process::ExitCode;

use rustix::process::{Signal, set_parent_process_death_signal};
use serde_json::Value as Json;

use crate::agent::bursts;
use crate::dag;
use crate::findings;
use crate::score::{latest, memory, publish, subscribe};
use crate::worker::{Line, Role, Task};
use skopos_term::Failure;

/// Parses the parameters of a role, and does its work.
type Work = fn(Json) -> Result<(), Failure>;

/// All roles by name.
const ROLES: [(&str, Work); 12] = [
    entry::<latest::SkoposWriter>(),
    entry::<latest::RedisWriter>(),
    entry::<publish::SkoposLoad>(),
    entry::<publish::RedisLoad>(),
    entry::<subscribe::SkoposPublisher>(),
    entry::<subscribe::RedisPublisher>(),
    entry::<memory::Filler>(),
    entry::<memory::Cursors>(),
    entry::<dag::SkoposDag>(),
    entry::<dag::RedisDag>(),
    entry::<bursts::Bursts>(),
    entry::<findings::Work>(),
];

const fn entry<R: Role>() -> (&'static str, Work) {
    (R::NAME, |parameters| {
        let role: R = serde_json::from_value(parameters).map_err(|e| not_started(&e))?;
        role.work(&Line)
    })
}

fn not_started(e: &dyn std::error::Error) -> Failure {
    Failure::new("a worker is started by a benchmark, not by hand").because(e)
}

/// Does the work of `task`, a [`Task`] in JSON.
pub(crate) fn run(task: &str) -> Result<ExitCode, Failure> {
    // A worker must not go on publishing when its parent is killed.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let task: Task = serde_json::from_str(task).map_err(|e| not_started(&e))?;
    let (_, work) = ROLES
        .iter()
        .find(|(name, _)| *name == task.role)
        .ok_or_else(|| Failure::new(format!("there is no role `{}`", task.role)))?;
    work(task.parameters)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_has_a_name_of_its_own() {
        let mut names = ROLES.map(|(name, _)| name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ROLES.len());
    }
}
