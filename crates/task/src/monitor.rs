//! The main loop of the monitor: waits for process events, signals, the next sample and time limits.

use std::ffi::c_int;
use std::io;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use skopos_model::task::{Crossing, Files, Limits, Summary};

use crate::attach::{self, AttachTarget};
use crate::end::TaskEnd;
use crate::enforce::{self, Enforcer};
use crate::error::RunError;
use crate::family;
use crate::host::Disturbances;
use crate::launch::{self, Pipes, Waiting};
use crate::ledger::Ledger;
use crate::mechanism::choose::{self, MechanismSet};
use crate::mechanism::reconcile::reconcile;
use crate::mechanism::{Sample, bpf, nested, procfs, ptrace};
use crate::membership::Membership;
use crate::order::Order;
use crate::patient::PatientReader;
use crate::proc;
use crate::report::series::Row;
use crate::report::{self, Measurements};
use crate::stop;
use crate::sys::{self, Event, FirstPriority, Pid, ReceivedSignal, ShortTurns, Signals, Status};

/// The results of one run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The report.
    pub summary: Summary,
    /// The usage at each sample.
    pub series: Vec<Row>,
    /// The usage of each file, at level 3.
    pub files: Option<Files>,
    /// The exceeded limits for which the task was ended.
    pub crossings: Vec<Crossing>,
}

/// Signals on which the monitor detaches from a task that it attached to. Other signals are ignored.
const DETACH_SIGNALS: [c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Time until the first sample. Each later pause is twice as long until the interval is reached:
/// most tasks are short.
const FIRST_SAMPLE: Duration = Duration::from_millis(5);

/// The longest pause between samples if they enforce a limit: at 1 GB/s that is 100 MB.
const LIMITED_INTERVAL: Duration = Duration::from_millis(100);

/// The most events that are handled before limits are checked: a task that forks without end never
/// runs out of events.
const MAX_EVENTS: usize = 256;

/// The most rows of the series. At this number every second row is dropped, and later rows are twice
/// as far apart.
const MAX_ROWS: usize = 20_000;

/// The longest pause that shows that a limit is about to be exceeded. Then a sample reads nothing that can wait.
const CLOSE: Duration = Duration::from_millis(20);

/// Runs a task to its end, or measures a running one. Calls `warn` when a value comes near its limit.
///
/// # Errors
/// The program does not exist or cannot be started, the monitor lacks a resource to start it, or the
/// process to attach to does not fit.
pub fn run(order: &Order, warn: &mut (dyn FnMut(&Crossing) + Send)) -> Result<Outcome, RunError> {
    let blocked = sys::forwarded().chain([libc::SIGCHLD]);
    let signals = Signals::new(blocked).map_err(RunError::of_start)?;
    let Some(pid) = order.attach else { return start(order, signals, warn) };
    let target = AttachTarget::new(pid).map_err(RunError::Attach)?;
    // The kernel detaches an exiting thread from everything that it traces, in any state. So a thread
    // of its own releases the task before the report is written.
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| join(order, target, signals, warn));
        watching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Measures a running task.
fn join(
    order: &Order,
    target: AttachTarget,
    signals: Signals,
    warn: &mut dyn FnMut(&Crossing),
) -> Result<Outcome, RunError> {
    let mut set = choose::select(order);
    let (root, start) = (target.pid, SystemTime::now());
    let mut ledger = Ledger::for_attached();
    let parent = proc::stat(root).map_or(0, |stat| stat.parent);
    let priority = prepare_for_many(&order.limits, &mut ledger);
    ledger.process_started(root, parent);
    attach_all(&mut set, root, &order.limits, &mut ledger);
    ledger.tracks_processes = set.level >= 2;
    attach::record_baselines(&mut ledger);
    let mut run = Run::new(order, root, signals, set, ledger);
    run.target = Some(target);
    // The present usage bounds the peak from below.
    run.take_sample();
    run.run_until_end(warn).map_err(RunError::Start)?;
    drop(priority);
    Ok(run.outcome(start))
}

/// Starts a task and measures it.
fn start(
    order: &Order,
    mut signals: Signals,
    warn: &mut dyn FnMut(&Crossing),
) -> Result<Outcome, RunError> {
    sys::adopt_orphans();
    let pipes = Pipes::new().map_err(RunError::of_start)?;
    // A mechanism that tries something on a child has waited for it by then.
    let mut set = choose::select(order);
    let mut membership = Membership::before_start();
    set.launch.environment.extend(order.environment.iter().cloned());
    let mut waiting = launch::start(&order.command, &set.launch, &signals, pipes)?;
    set.launch.group = None;
    let root = waiting.pid;
    let cpu_limit_error =
        set.launch.cpu_seconds.and_then(|most| launch::limit_cpu(root, most).err());
    let mut ledger = Ledger::new();
    membership.root = Some(root);
    ledger.set_membership(membership);
    let priority = prepare_for_many(&order.limits, &mut ledger);
    attach_all(&mut set, root, &order.limits, &mut ledger);
    ledger.tracks_processes = set.level >= 2;
    // Until its exec the child holds the monitor's memory.
    ledger.mark_borrowed_memory(root);
    signals.watch_group();
    // Time before this belongs to the monitor.
    let start = SystemTime::now();
    ledger.restart_clock();
    if let Err(e) = waiting.go(&signals) {
        let mut end = None;
        while end.is_none() {
            end = reap_failed_start(root, &mut set)?;
        }
        return Err(e);
    }
    let start_seconds = start.duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
    nested::announce(nested::begun(&report::identity(order, None), set.level, start_seconds));
    let mut run = Run::new(order, root, signals, set, ledger);
    run.cpu_limit_error = cpu_limit_error.map(|e| e.to_string());
    run.waiting = Some(waiting);
    run.notice_exec();
    run.run_until_end(warn).map_err(RunError::Start)?;
    drop(priority);
    if let Some(waiting) = &mut run.waiting {
        waiting.check_exec()?;
    }
    let outcome = run.outcome(start);
    nested::announce(nested::ended(&outcome.summary));
    Ok(outcome)
}

/// Prepares the monitor for a task that forks without end, or grows in many processes, if these are limited:
/// among thousands of processes that fork, an ordinary thread would wait for seconds. Returns the priority, which
/// lasts until it is dropped.
///
/// An ordinary user usually lacks the right to the first priority; then the monitor competes with the task, in
/// short turns that come soon.
#[must_use]
fn prepare_for_many(
    limits: &Limits,
    ledger: &mut Ledger,
) -> (Option<FirstPriority>, Option<ShortTurns>) {
    let is_limited = |name| limits.of(name).is_some();
    if !is_limited("processes_max") && !is_limited("resident_bytes_max") {
        return (None, None);
    }
    // The thread of the reader starts with the ordinary priority.
    ledger.patient = Some(PatientReader::start());
    let turns = ShortTurns::take();
    (is_limited("processes_max").then(FirstPriority::take).flatten(), turns)
}

/// Attaches every mechanism to the child. A mechanism that fails is dropped and, if possible,
/// replaced.
fn attach_all(set: &mut MechanismSet, root: Pid, limits: &Limits, ledger: &mut Ledger) {
    let mut refused = Vec::new();
    for mechanism in &mut set.mechanisms {
        let name = mechanism.name();
        if let Err(e) = mechanism.attach(root, ledger) {
            refused.push((name, e));
        } else if let Some(provides) = mechanism.provides()
            && let Some(entry) = set.uses.iter_mut().find(|u| u.name == name)
        {
            entry.why = provides;
        }
    }
    for (name, e) in refused {
        set.disable(name, &e.to_string());
        if name == ptrace::NAME || name == bpf::NAME {
            set.fall_back(root, limits, ledger);
            // The fallback may be a new instance of `procfs`, which searches for processes.
            attach_one(set, procfs::NAME, root, ledger);
        }
    }
}

fn attach_one(set: &mut MechanismSet, name: &str, root: Pid, ledger: &mut Ledger) {
    if let Some(mechanism) = set.mechanisms.iter_mut().find(|m| m.name() == name) {
        // Reading /proc cannot be refused.
        let _ = mechanism.attach(root, ledger);
    }
}

/// Handles one event of a child that could not become the program. Returns its status once it has
/// exited.
fn reap_failed_start(root: Pid, set: &mut MechanismSet) -> Result<Option<Status>, RunError> {
    let mut ledger = Ledger::new();
    match sys::next_event().map_err(RunError::Start)? {
        Some(Event::Ended { pid, status }) => {
            sys::reap(pid);
            return Ok((pid == root).then_some(status));
        }
        Some(event) => set.mechanisms.iter_mut().for_each(|m| m.event(&event, &mut ledger)),
        None => std::thread::sleep(Duration::from_millis(1)),
    }
    Ok(None)
}

/// A run in progress.
struct Run<'a> {
    order: &'a Order,
    root: Pid,
    signals: Signals,
    set: MechanismSet,
    ledger: Ledger,
    enforcer: Enforcer,
    crossings: Vec<Crossing>,
    guilty: Option<String>,
    sample: Sample,
    rows: Vec<Row>,
    /// Number of samples for each row of the series.
    samples_per_row: usize,
    samples: usize,
    pause: Duration,
    next_sample: Instant,
    /// A value is near its limit.
    is_urgent: bool,
    disturbances: Disturbances,
    /// More events are waiting than one turn of the loop handles.
    has_more_events: bool,
    end: Option<TaskEnd>,
    /// The process that the monitor attached to.
    target: Option<AttachTarget>,
    /// The first process of a task that was started here, with the result of its exec.
    waiting: Option<Waiting>,
    /// The time at which the first process stopped, unless it was reported to go on since.
    stopped: Option<Instant>,
    /// The reason why the kernel does not enforce the limit on processor time, although a limit was requested.
    cpu_limit_error: Option<String>,
}

impl<'a> Run<'a> {
    fn new(
        order: &'a Order,
        root: Pid,
        signals: Signals,
        set: MechanismSet,
        ledger: Ledger,
    ) -> Self {
        Self {
            order,
            root,
            signals,
            set,
            ledger,
            enforcer: Enforcer::new(&order.limits, order.kill_after),
            crossings: Vec::new(),
            guilty: None,
            sample: Sample::default(),
            rows: Vec::new(),
            samples_per_row: 1,
            samples: 0,
            pause: FIRST_SAMPLE,
            next_sample: Instant::now() + FIRST_SAMPLE,
            is_urgent: false,
            disturbances: Disturbances::now(),
            has_more_events: false,
            end: None,
            target: None,
            waiting: None,
            stopped: None,
            cpu_limit_error: None,
        }
    }

    fn run_until_end(&mut self, warn: &mut dyn FnMut(&Crossing)) -> io::Result<()> {
        while self.end.is_none() || self.enforcer.has_work(&self.ledger) {
            self.wait()?;
            self.notice_exec();
            for signal in self.signals.take() {
                self.handle_signal(signal);
            }
            self.check_target()?;
            let Self { set, ledger, .. } = self;
            set.mechanisms.iter_mut().for_each(|m| m.readable(ledger));
            let mut has_more = true;
            for _ in 0..MAX_EVENTS {
                let Some(event) = sys::next_event()? else {
                    has_more = false;
                    break;
                };
                self.handle_event(event);
            }
            self.stop_with_task();
            // A sample may take long. Limits that are already exceeded do not wait for it.
            self.enforce();
            self.has_more_events = has_more;
            let may_sample = self.end.is_none() && !self.enforcer.is_ending();
            if may_sample && self.next_sample <= Instant::now() {
                self.take_sample();
                self.enforce();
            }
            if self.end.is_none() && !self.enforcer.is_ending() {
                let near = self.enforcer.near(&self.sample, self.ledger.elapsed());
                near.iter().for_each(&mut *warn);
            }
        }
        self.signals.leave_group();
        Ok(())
    }

    /// Returns the first process while it holds the monitor's memory.
    fn before_exec(&self) -> Option<&Waiting> {
        self.waiting.as_ref().filter(|_| self.ledger.borrows_memory(self.root))
    }

    /// Records the exec of the first process. A mechanism that reports process starts reports this exec too,
    /// perhaps later.
    fn notice_exec(&mut self) {
        if self.before_exec().is_some_and(Waiting::has_left_gate) {
            self.ledger.process_executed(self.root);
        }
    }

    /// Forwards a signal to a task that was started here, or detaches from one that was not.
    fn handle_signal(&mut self, received: ReceivedSignal) {
        let asks_to_end = DETACH_SIGNALS.contains(&received.signal);
        if asks_to_end && self.enforcer.may_give_up(self.target.is_some()) {
            self.enforcer.give_up(&self.ledger);
            self.end.get_or_insert(TaskEnd::Detached);
        } else if self.target.is_some() {
            if asks_to_end {
                self.end.get_or_insert(TaskEnd::Detached);
            }
        } else if received.signal != libc::SIGCHLD && self.is_for_task(&received) {
            sys::forward(self.root, &received);
        }
    }

    /// True for a signal that has not reached the task yet. The kernel sends signals of the terminal to the
    /// whole group, and those of a limit to this process; an alarm was set for the program that this process
    /// was to become.
    fn is_for_task(&self, received: &ReceivedSignal) -> bool {
        if received.from_kernel {
            return received.signal == libc::SIGALRM;
        }
        let group = |pid| proc::stat(pid).map(|stat| stat.group);
        !received.to_group || group(self.root) != group(std::process::id() as Pid)
    }

    /// Stops the monitor after the task stopped in front of a terminal, so that the shell notices.
    fn stop_with_task(&mut self) {
        let is_child = self.end.is_none() && self.target.is_none() && !self.enforcer.is_ending();
        if is_child && self.stopped.is_some_and(|since| since.elapsed() >= stop::DELAY) {
            self.stopped = None;
            stop::with(self.root);
        }
    }

    /// Checks whether the process that the monitor attached to has exited. If that process is neither
    /// a child nor traced, only its handle shows the exit.
    fn check_target(&mut self) -> io::Result<()> {
        let Some(target) = self.target.as_ref().filter(|_| self.end.is_none()) else {
            return Ok(());
        };
        if self.set.mechanisms.iter().any(|m| m.name() == ptrace::NAME) {
            return Ok(());
        }
        let mut fds = [PollFd::new(&target.handle, PollFlags::IN)];
        match poll(&mut fds, Some(&Timespec::default())) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(()),
            Ok(_) => {}
            Err(e) => return Err(e.into()),
        }
        // Until its parent reaps it, its files in /proc still show its usage.
        self.take_sample();
        let Self { set, ledger, .. } = self;
        set.mechanisms.iter_mut().for_each(|m| m.readable(ledger));
        self.end = Some(ledger.status_of(self.root).map_or(TaskEnd::Unseen, TaskEnd::Exited));
        Ok(())
    }

    /// Waits for the next signal, event, sample or time limit.
    fn wait(&mut self) -> io::Result<()> {
        let mut until = self.next_sample.saturating_duration_since(Instant::now());
        if let Some(wall) = self.enforcer.next_wall() {
            let left = wall.saturating_sub(self.ledger.elapsed());
            until = until.min(left + Duration::from_millis(1));
        }
        if let Some(since) = self.stopped {
            until = until.min(stop::DELAY.saturating_sub(since.elapsed()));
        }
        if let Some(step) = self.enforcer.until_step() {
            until = step;
        }
        if std::mem::take(&mut self.has_more_events) {
            until = Duration::ZERO;
        }
        let timeout = Timespec::try_from(until).map_err(io::Error::other)?;
        let mechanisms = self.set.mechanisms.iter().filter_map(|m| m.descriptor());
        let target = self.target.as_ref().map(|target| target.handle.as_fd());
        let exec = self.before_exec().map(Waiting::descriptor);
        let always = [self.signals.descriptor()].into_iter().chain(exec);
        let readable = always.chain(mechanisms).chain(target);
        let mut fds: Vec<_> =
            readable.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    fn handle_event(&mut self, event: Event) {
        if let Event::Stopped { pid, signal, event } = event
            && pid == self.root
        {
            let is_stop = stop::is_of_job(signal, event, self.set.traces());
            self.stopped = is_stop.then(Instant::now);
        }
        let Event::Ended { pid, status } = event else {
            let Self { set, ledger, .. } = self;
            set.mechanisms.iter_mut().for_each(|m| m.event(&event, ledger));
            return;
        };
        self.handle_exit(pid, status, &event);
        if pid == self.root {
            self.end = Some(TaskEnd::Exited(status));
        }
    }

    fn handle_exit(&mut self, pid: Pid, status: Status, event: &Event) {
        let Self { set, ledger, .. } = self;
        // A mechanism that reports late may know by now that the process belongs to the task, and
        // its parent.
        set.mechanisms.iter_mut().for_each(|m| m.readable(ledger));
        if !ledger.is_attached() && !family::is_exit_of_task(ledger, pid) {
            // A child that the monitor's process had before the task, or an orphan of unknown descent.
            sys::reap(pid);
            return;
        }
        // Without tracing, the kernel reports the monitor's own children only.
        let traces = set.traces();
        let is_process = !traces || ledger.contains(pid) || proc::process_of(pid) == Some(pid);
        let is_reaped_here = is_process && is_reaped_here(pid, traces, ledger);
        // Only administrators may read the bytes of a dead process; others have those of its last stop.
        let io =
            if is_reaped_here { proc::io(pid).or_else(|| ledger.final_io_of(pid)) } else { None };
        // A traced process was read before its exit.
        if is_reaped_here && !traces && proc::ignores_children(pid) {
            ledger.record_ignored_children(pid);
        }
        set.mechanisms.iter_mut().for_each(|m| m.event(event, ledger));
        let usage = sys::reap(pid);
        if let Some(usage) = usage.filter(|_| is_process) {
            ledger.record_earlier_programs(pid, usage.resident_bytes_max, traces);
        }
        match usage {
            Some(usage) if is_reaped_here => ledger.reaped.add(usage, io, ledger.io_of(pid)),
            Some(usage) if is_process => ledger.credit_parent(pid, usage),
            _ => {}
        }
        if is_process {
            ledger.process_exited(pid, Some(status));
        }
    }

    fn take_sample(&mut self) {
        let begun = Instant::now();
        let Self { set, ledger, sample, .. } = self;
        // A command line may be late again, and near a limit the sample is more urgent.
        if !self.is_urgent {
            ledger.read_late_commands();
        }
        sample.paced = Duration::ZERO;
        set.mechanisms.iter_mut().for_each(|m| m.sample(sample, ledger));
        self.keep_row();
        let is_limited = self.enforcer.needs_samples();
        let wanted = match is_limited {
            true => self.order.interval.min(LIMITED_INTERVAL),
            false => self.order.interval,
        };
        let took = begun.elapsed().saturating_sub(self.sample.paced);
        self.pause = (2 * self.pause).min(wanted);
        let urgent = self.urgent_pause();
        self.is_urgent = urgent.is_some_and(|pause| pause <= CLOSE);
        self.next_sample =
            Instant::now() + procfs::next_pause(self.pause, took, is_limited, urgent);
    }

    /// The pause that values ask for which samples alone keep within their limits.
    fn urgent_pause(&mut self) -> Option<Duration> {
        let set = &self.set;
        let by_kernel = |name: &str| set.mechanisms.iter().any(|m| m.enforces(name));
        self.enforcer.urgent_pause(&self.sample, self.ledger.elapsed(), by_kernel)
    }

    fn keep_row(&mut self) {
        self.samples += 1;
        if !self.samples.is_multiple_of(self.samples_per_row) {
            return;
        }
        self.rows.push(Row::new(self.ledger.elapsed(), &self.sample));
        if self.rows.len() == MAX_ROWS {
            let mut at = 0;
            self.rows.retain(|_| {
                at += 1;
                at % 2 == 0
            });
            self.samples_per_row *= 2;
        }
    }

    fn enforce(&mut self) {
        if !self.enforcer.has_limits() {
            return;
        }
        if self.set.level >= 2 {
            // Process starts and exits are reported, so this needs no sample.
            self.sample.processes = Some(self.ledger.live_count());
        }
        if !self.enforcer.is_ending() {
            let set = &self.set;
            let by_kernel = |name: &str| set.mechanisms.iter().any(|m| m.enforces(name));
            let elapsed = self.ledger.elapsed();
            let mut crossings = self.enforcer.exceeded(&self.sample, elapsed, by_kernel);
            for mechanism in &mut self.set.mechanisms {
                crossings.extend(mechanism.crossings(&self.ledger));
            }
            enforce::keep_first(&mut crossings);
            if let Some(name) = crossings.first().map(|first| first.limit.resource.name) {
                self.crossings = crossings;
                self.end_for(name);
            }
        }
        self.enforcer.step(&mut self.set.mechanisms, &self.ledger);
        if self.end.is_none() && self.enforcer.is_refused(&self.ledger) {
            // All other processes have exited, and this user may not kill the rest.
            self.end = Some(TaskEnd::Detached);
        }
    }

    /// Begins to end the task for a limit, and names the process that used most. If nothing but samples keeps the
    /// limit, the processes are stopped first: they may grow until then.
    fn end_for(&mut self, name: &str) {
        if !self.set.mechanisms.iter().any(|m| m.enforces(name)) {
            self.enforcer.begin(&self.ledger);
            self.enforcer.step(&mut self.set.mechanisms, &self.ledger);
        }
        self.ledger.read_late_commands();
        self.guilty = self.ledger.heaviest_user(name);
        self.enforcer.begin(&self.ledger);
    }

    /// Adds processes that outlive the task. If process starts are not reported, a process that was
    /// left to the monitor between two samples may be unknown, and so may an exec.
    fn add_survivors(&mut self) {
        if self.ledger.tracks_processes || self.ledger.is_attached() {
            return;
        }
        for pid in family::unended(&self.ledger).into_iter().map(|member| member.pid) {
            if let Some(stat) = proc::stat(pid).filter(|stat| !stat.is_zombie) {
                self.ledger.process_started(pid, stat.parent);
                self.ledger.process_executed(pid);
            }
        }
    }

    fn outcome(mut self, start: SystemTime) -> Outcome {
        let elapsed = self.ledger.elapsed();
        let left = self.enforcer.survivors(&self.ledger);
        let is_kept = self.set.mechanisms.iter().any(|m| m.enforces("resident_bytes_max"));
        let is_sampled = self.order.limits.of("resident_bytes_max").is_some() && !is_kept;
        let at_end = Disturbances::now();
        // The kernel may have reported the time of the exit; the monitor handled it only once it had
        // a processor.
        let reported = self.ledger.end_seconds_of(self.root).filter(|_| !self.enforcer.is_ending());
        let exit_delay = reported.map_or(0.0, |end| (elapsed.as_secs_f64() - end).max(0.0));
        // Reads the last reports. Exits of processes that have vanished by then are among them.
        let vanished = self.ledger.vanished();
        self.set.mechanisms.iter_mut().for_each(|m| m.readable(&mut self.ledger));
        self.ledger.remove_vanished(vanished);
        self.add_survivors();
        if self.end == Some(TaskEnd::Detached) {
            self.ledger.detach();
        }
        for mechanism in &mut self.set.mechanisms {
            mechanism.finish(&mut self.ledger);
        }
        reconcile(&mut self.ledger.offers);
        self.ledger.unseen = report::missing::unseen(&self.ledger);
        if let Some(files) = &mut self.ledger.files {
            report::missing::mark_files(files, &self.ledger.unseen);
        }
        let own = self.ledger.offers.best("cpu_seconds", "").value.unwrap_or(0.0)
            + sys::own_usage().0.as_secs_f64();
        let disturbed = self.disturbances.until(&at_end, elapsed.as_secs_f64(), own);
        let files = self.ledger.files.take();
        let start_seconds = start.duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        let crossings = self.crossings.clone();
        let measurements = Measurements {
            order: self.order,
            start_seconds,
            elapsed,
            exit_delay,
            end: self.end,
            target: self.target,
            crossings: self.crossings,
            guilty: self.guilty,
            survivors: left,
            cpu_limit_error: self.cpu_limit_error,
            memory_is_sampled: is_sampled,
            level: self.set.level,
            uses: self.set.uses,
            disturbed,
            ledger: self.ledger,
        };
        Outcome { summary: report::summary(measurements), series: self.rows, files, crossings }
    }
}

/// True if this monitor reaps a process as its parent: its usage then counts for the task, including
/// the children that it waited for. Otherwise the monitor learns of the exit as a tracer only.
///
/// The ledger may not know yet that the parent has exited, if both were killed together. So the kernel is
/// asked for the parent of this moment.
fn is_reaped_here(pid: Pid, traces: bool, ledger: &Ledger) -> bool {
    let own = std::process::id() as Pid;
    if !traces || !ledger.is_attached() && ledger.parent_of(pid) == Some(own) {
        return true;
    }
    match proc::stat(pid) {
        // The first process and the orphans of an attached task have parents outside of the task.
        Some(stat) if ledger.is_attached() => !ledger.contains(stat.parent),
        Some(stat) => stat.parent == own,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_signal_before_the_exec_of_the_child_does_not_stand_for_it() {
        let order = Order {
            command: vec!["true".into()],
            attach: None,
            class: None,
            level: Some(1),
            limits: Limits::default(),
            kill_after: Duration::ZERO,
            interval: Duration::from_secs(1),
            watch: Vec::new(),
            only: Some(vec![procfs::NAME.to_owned()]),
            environment: Vec::new(),
        };
        let child = std::process::id() as Pid;
        let (waiting, its_end) = Waiting::pretended(child).expect("pipes");
        let mut ledger = Ledger::new();
        ledger.process_started(child, 1);
        ledger.mark_borrowed_memory(child);
        let signals = Signals::new(std::iter::empty()).expect("a descriptor");
        let mut run = Run::new(&order, child, signals, choose::select(&order), ledger);
        run.waiting = Some(waiting);
        run.notice_exec();
        assert!(run.ledger.borrows_memory(child), "it has not become the program");
        // Exec closes the pipe.
        drop(its_end);
        run.notice_exec();
        assert!(!run.ledger.borrows_memory(child));
        assert!(run.before_exec().is_none(), "nothing waits for it any more");
    }

    #[test]
    fn a_process_whose_parent_died_with_it_is_counted() {
        let mut child = Command::new("true").spawn().expect("it starts");
        let (pid, parent) = (child.id() as Pid, 10_000_001);
        let mut ledger = Ledger::new();
        // The exit of the parent is not handled yet: no process has its id.
        ledger.process_started(parent, 1);
        ledger.process_started(pid, parent);
        assert!(is_reaped_here(pid, true, &ledger), "this process is its parent by now");
        child.wait().expect("it ends");
    }
}
