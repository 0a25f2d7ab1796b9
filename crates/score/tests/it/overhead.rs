//! Interval policies and budget together: a machine with many sensors under a virtual clock.

use std::time::Duration;

use skopos_model::SplitMix64;
use skopos_score::budget::{Budget, Demand, Grant};
use skopos_score::interval::{Finding, Policy, PolicyConfig, PolicyKind};

const SENSORS: usize = 40;
const LIMIT: f64 = 0.01;
/// The cost of the agent besides polls.
const FIXED: f64 = 0.001;
/// The agent makes a new plan once a second, too.
const PLAN_EVERY: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

struct Simulated {
    cost: Duration,
    policy: Box<dyn Policy>,
    wanted: Duration,
    stretch: f64,
    due: Duration,
    polls: u64,
}

/// A machine that works for a while and rests for a while, in turn.
struct Machine {
    sensors: Vec<Simulated>,
    budget: Budget,
    grants: Vec<Grant>,
    random: SplitMix64,
    now: Duration,
    /// A sensor that is read a hundred times a second.
    read: usize,
    /// The number of sensors with another stretch than in the plan before, over all plans.
    restretched: usize,
}

impl Machine {
    fn new(seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let read = random.below(SENSORS);
        let sensors = (0..SENSORS)
            .map(|at| {
                let micros = if at == read { 2000 } else { 20 + random.below(4000) as u64 };
                Simulated {
                    cost: Duration::from_micros(micros),
                    policy: PolicyConfig::new(PolicyKind::Aimd).build().expect("a policy"),
                    wanted: Duration::from_secs(1),
                    stretch: 1.0,
                    due: Duration::ZERO,
                    polls: 0,
                }
            })
            .collect();
        let budget = Budget::new(LIMIT).expect("a limit");
        Self {
            sensors,
            budget,
            grants: Vec::new(),
            random,
            now: Duration::ZERO,
            read,
            restretched: 0,
        }
    }

    /// Runs for `time`, with changes in every poll or in none. Returns the share of a core that
    /// polls cost.
    fn run(&mut self, time: Duration, busy: bool) -> f64 {
        let mut spent = Duration::ZERO;
        let end = self.now + time;
        while self.now < end {
            self.plan();
            for sensor in &mut self.sensors {
                while sensor.due < self.now + PLAN_EVERY {
                    let noise = 95 + self.random.below(11) as u32;
                    spent += sensor.cost * noise / 100;
                    sensor.polls += 1;
                    let change = if busy { 5.0 } else { 0.0 };
                    let found = Finding { at: sensor.due, change, value: None };
                    sensor.wanted = sensor.policy.next(&found);
                    sensor.due += sensor.wanted.mul_f64(sensor.stretch);
                }
            }
            self.now += PLAN_EVERY;
        }
        spent.as_secs_f64() / time.as_secs_f64()
    }

    fn plan(&mut self) {
        let demands: Vec<Demand> = self
            .sensors
            .iter()
            .enumerate()
            .map(|(at, sensor)| Demand {
                cost: sensor.cost,
                wanted: sensor.wanted,
                longest: LONGEST * 64,
                reads_per_second: if at == self.read { 100.0 } else { 0.0 },
                waited_for: false,
            })
            .collect();
        let plan = self.budget.plan(FIXED, &demands, &mut self.grants);
        assert!(plan.over == 0.0 && plan.granted <= LIMIT, "{plan:?}");
        for (sensor, grant) in self.sensors.iter_mut().zip(&self.grants) {
            self.restretched += usize::from(sensor.stretch != grant.stretch);
            sensor.stretch = grant.stretch;
        }
    }
}

#[test]
fn the_budget_is_kept_by_a_machine_that_works_and_rests() {
    for seed in 1..=4 {
        let mut machine = Machine::new(seed);
        let dearest = (0..SENSORS).max_by_key(|at| machine.sensors[*at].cost).expect("sensors");
        for round in 0..3 {
            let case = format!("seed {seed}, round {round}");
            // Policies and stretches settle first; then a quarter of an hour is measured.
            machine.run(Duration::from_secs(900), true);
            machine.restretched = 0;
            let spent = machine.run(Duration::from_secs(900), true);
            assert!(FIXED + spent <= LIMIT * 1.02, "{case}: {spent}");
            // Forty sensors of about 2 ms a second would cost eight times the limit: most of the
            // limit is used.
            assert!(FIXED + spent >= LIMIT * 0.7, "{case}: {spent}");
            assert_eq!(machine.restretched, 0, "{case}: nothing changed, so no interval did");
            let stretch = |at: usize| machine.sensors[at].stretch;
            assert!(stretch(dearest) >= 4.0, "{case}: {}", stretch(dearest));
            assert!(stretch(machine.read) <= 2.0, "{case}: {}", stretch(machine.read));
            // At rest the policies slow down by themselves, and no sensor needs to be stretched.
            machine.run(Duration::from_secs(1800), false);
            let polls = |machine: &Machine| machine.sensors.iter().map(|s| s.polls).sum::<u64>();
            let before = polls(&machine);
            let spent = machine.run(Duration::from_secs(600), false);
            assert!(machine.sensors.iter().all(|s| s.stretch == 1.0 && s.wanted == LONGEST));
            assert!(polls(&machine) - before <= 11 * SENSORS as u64, "{case}");
            assert!(FIXED + spent < LIMIT / 2.0, "{case}: {spent}");
        }
    }
}
