//! The time until a hub knows that a node is gone.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::role::Hub;
use crate::agent::place::Place;
use crate::agent::watcher::Watcher;
use crate::plan::Plan;
use crate::report::{Better, Goal, Report, Row};
use crate::stats::median;
use skopos_term::Failure;

/// The longest time until an event is known.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn measure(plan: &Plan, place: &Place, report: &mut Report) -> Result<(), Failure> {
    let hub = Hub::start(place, "death")?;
    let ways = [
        ("killed (its connection breaks)", Signal::KILL),
        ("stopped (it says nothing)", Signal::STOP),
    ];
    for (way, signal) in ways {
        let mut seconds = Vec::new();
        for round in 0..plan.rounds.max(2) {
            let node = format!("n{round}{}", &way[..1]);
            let options = ["--live", "--insecure", "--node", &node, "--connect", &hub.at];
            let agent = Watcher::start(place, "", &options)?;
            let sql = |alive| {
                format!(
                    "SELECT count(*) FROM nodes WHERE node = '{node}' AND topics > 0 AND alive = {alive}"
                )
            };
            hub.until(&sql(true), 1.0, PATIENCE)?;
            let pid = i32::try_from(agent.pid()).ok().and_then(Pid::from_raw);
            let pid = pid.ok_or_else(|| Failure::new("an agent without a process id"))?;
            let send = |signal| kill_process(pid, signal);
            send(signal).map_err(|e| Failure::new("the agent cannot be signalled").because(&e))?;
            seconds.push(hub.until(&sql(false), 1.0, PATIENCE)?.as_secs_f64());
            // A stopped process cannot end by itself.
            let _ = send(Signal::KILL);
        }
        let case = format!("death of a node, {way}");
        let most = seconds.iter().copied().fold(0.0, f64::max);
        report.add([
            Row::new(&*case, "known after, median", "s", median(&seconds), Better::Lower)
                .rounds("skopos", &seconds),
            Row::new(&*case, "known after, longest", "s", most, Better::Lower)
                .goal(Goal::AtMost(2.0)),
        ]);
    }
    report.note(
        "death of a node: from the signal to the row of `nodes` that says so, asked every 10 ms",
    );
    Ok(())
}
