//! The loop that waits for whatever happens to the task: births, ends, signals, the next look, a limit.

use std::ffi::{OsString, c_int};
use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use skopos_model::task::{Crossing, Files, Limits, Summary};

use crate::attach::{self, Found, Unfit};
use crate::enforce::{self, Enforcer};
use crate::family;
use crate::host::Disturbances;
use crate::launch::{self, Pipes};
use crate::mechanism::choose::{self, Team};
use crate::mechanism::{Now, bpf, nested, procfs, ptrace};
use crate::proc;
use crate::report::{self, Measured, Row};
use crate::seen::Seen;
use crate::stop;
use crate::sys::{self, Came, Event, Pid, Signals, Status};

/// What to run, and how.
#[derive(Clone, Debug)]
pub struct Order {
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// Instead of a command: the process to measure, which runs already.
    pub attach: Option<i32>,
    /// What tasks that are alike are called; `None` takes the program's name.
    pub class: Option<String>,
    /// 1, 2 or 3; `None` takes the best that costs next to nothing.
    pub level: Option<u8>,
    /// What it may use at most.
    pub limits: Limits,
    /// How long a task that exceeds a limit has to end by itself.
    pub kill_after: Duration,
    /// The time between two looks, and two rows of the series.
    pub interval: Duration,
    /// Folders whose files count.
    pub watch: Vec<PathBuf>,
    /// The mechanisms that may be used, by name; `None` takes the best set.
    pub only: Option<Vec<String>>,
}

/// What became of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The report.
    pub summary: Summary,
    /// What it used at each look.
    pub series: Vec<Row>,
    /// What it did with each file, at level 3.
    pub files: Option<Files>,
    /// The limits for which it was ended.
    pub crossings: Vec<Crossing>,
}

/// Why there was no task to measure.
#[derive(Debug)]
pub enum Failed {
    /// There is no command.
    Empty,
    /// There is no such program.
    NotFound(io::Error),
    /// The program cannot be started.
    NotExecutable(io::Error),
    /// The monitor itself failed before the task began.
    Start(io::Error),
    /// This process may not even open what starts a child and hears of its end.
    NoDescriptors,
    /// The process that runs cannot be a task.
    Unfit(Unfit),
}

impl Failed {
    fn of_start(e: io::Error) -> Self {
        match e.raw_os_error() {
            Some(libc::EMFILE) => Self::NoDescriptors,
            _ => Self::Start(e),
        }
    }

    /// Why a child did not become the program.
    pub(crate) fn to_become(e: io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::NotFound => Self::NotFound(e),
            _ => Self::NotExecutable(e),
        }
    }
}

/// How a task was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// Its first process ended so.
    Ended(Status),
    /// Its first process ended, and only its parent knows how.
    Unseen,
    /// It runs on: the monitor was told to let go of it.
    LetGo,
}

/// Of these signals a monitor lets go of a task that it has found running, and leaves the others alone.
const LETTING_GO: [c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Signals that are the task's: who sends one to the monitor means the task.
const FORWARDED: [c_int; 8] = [
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGWINCH,
];

/// The first look comes this soon, and each next one twice as late until the interval is reached:
/// most tasks are short.
const FIRST_LOOK: Duration = Duration::from_millis(5);

/// Where a limit is kept by looking, the looks are at most this far apart: at 1 GB/s that is 100 MB.
const LIMITED_LOOK: Duration = Duration::from_millis(100);

/// Events that are taken before limits are looked at: a task that forks without end has no last one.
const MAX_EVENTS: usize = 256;

/// Rows that are kept; of more every second one goes, and the others are twice as far apart.
const MAX_ROWS: usize = 20_000;

/// Runs a task to its end, or measures one that runs. `warn` is told what comes near a limit.
///
/// # Errors
/// The program does not exist or cannot be started, or there is nothing to start it with; there is no
/// such process.
pub fn run(order: &Order, warn: &mut (dyn FnMut(&Crossing) + Send)) -> Result<Outcome, Failed> {
    let mut blocked = FORWARDED.to_vec();
    blocked.push(libc::SIGCHLD);
    let signals = Signals::new(&blocked).map_err(Failed::of_start)?;
    let Some(pid) = order.attach else { return start(order, signals, warn) };
    let found = Found::new(pid).map_err(Failed::Unfit)?;
    // The kernel lets go of what a thread traces when that thread ends, whatever state it is in: before
    // a report is written, and so without making the task wait for that.
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| join(order, found, signals, warn));
        watching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Measures a task that runs already.
fn join(
    order: &Order,
    found: Found,
    signals: Signals,
    warn: &mut dyn FnMut(&Crossing),
) -> Result<Outcome, Failed> {
    let mut team = choose::gather(order);
    let (root, start) = (found.pid, SystemTime::now());
    let mut seen = Seen::found();
    let parent = proc::stat(root).map_or(0, |stat| stat.parent);
    seen.born(root, parent);
    attach(&mut team, root, &order.limits, &mut seen);
    seen.is_told = team.level >= 2;
    attach::remember(&mut seen);
    let mut run = Run::new(order, root, signals, team, seen);
    run.found = Some(found);
    // What is there now bounds what there was at its most.
    run.look();
    run.until_the_end(warn).map_err(Failed::Start)?;
    Ok(run.outcome(start))
}

/// Starts a task and measures it.
fn start(
    order: &Order,
    signals: Signals,
    warn: &mut dyn FnMut(&Crossing),
) -> Result<Outcome, Failed> {
    sys::adopt_orphans();
    let pipes = Pipes::new().map_err(Failed::of_start)?;
    let mut team = choose::gather(order);
    let mut waiting = launch::start(&order.command, &team.launch, &signals, pipes)?;
    team.launch.group = None;
    let root = waiting.pid;
    let not_kept = team.launch.cpu_seconds.and_then(|most| launch::limit_cpu(root, most).err());
    let mut seen = Seen::new();
    attach(&mut team, root, &order.limits, &mut seen);
    seen.is_told = team.level >= 2;
    // What it holds until it is the program is the monitor's.
    seen.guest(root);
    // Nothing of what came before is the task's.
    let start = SystemTime::now();
    seen.begin();
    match waiting.go(&signals) {
        // Who is told of births is told of this too.
        Ok(false) if team.level >= 2 => {}
        Ok(_) => seen.became(root),
        Err(e) => {
            let mut end = None;
            while end.is_none() {
                end = pass_by(root, &mut team)?;
            }
            return Err(e);
        }
    }
    let start_seconds = start.duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
    nested::tell(nested::begun(&report::identity(order, None), team.level, start_seconds));
    let mut run = Run::new(order, root, signals, team, seen);
    run.not_kept = not_kept.map(|e| e.to_string());
    run.until_the_end(warn).map_err(Failed::Start)?;
    waiting.refused()?;
    let outcome = run.outcome(start);
    nested::tell(nested::over(&outcome.summary));
    Ok(outcome)
}

/// Tells every mechanism that the child is there. What cannot be used after all is left out.
fn attach(team: &mut Team, root: Pid, limits: &Limits, seen: &mut Seen) {
    let mut refused = Vec::new();
    for mechanism in &mut team.mechanisms {
        let name = mechanism.name();
        if let Err(e) = mechanism.attach(root, seen) {
            refused.push((name, e));
        } else if let Some(gives) = mechanism.gives()
            && let Some(found) = team.uses.iter_mut().find(|u| u.name == name)
        {
            found.why = gives;
        }
    }
    for (name, e) in refused {
        team.gave_up(name, &e.to_string());
        if name == ptrace::NAME || name == bpf::NAME {
            team.search(root, limits, seen);
            // The one that searches replaces the one that had been told.
            attach_one(team, procfs::NAME, root, seen);
        }
    }
}

fn attach_one(team: &mut Team, name: &str, root: Pid, seen: &mut Seen) {
    if let Some(mechanism) = team.mechanisms.iter_mut().find(|m| m.name() == name) {
        // Looking into /proc cannot be refused.
        let _ = mechanism.attach(root, seen);
    }
}

/// Lets a child that could not become a program end. Its status, once it has.
fn pass_by(root: Pid, team: &mut Team) -> Result<Option<Status>, Failed> {
    let mut seen = Seen::new();
    match sys::next_event().map_err(Failed::Start)? {
        Some(Event::Ended { pid, status }) => {
            sys::reap(pid);
            return Ok((pid == root).then_some(status));
        }
        Some(event) => team.mechanisms.iter_mut().for_each(|m| m.event(&event, &mut seen)),
        None => std::thread::sleep(Duration::from_millis(1)),
    }
    Ok(None)
}

/// A task that runs.
struct Run<'a> {
    order: &'a Order,
    root: Pid,
    signals: Signals,
    team: Team,
    seen: Seen,
    enforcer: Enforcer,
    crossings: Vec<Crossing>,
    guilty: Option<String>,
    now: Now,
    rows: Vec<Row>,
    /// Every how many looks one becomes a row.
    every: usize,
    looks: usize,
    look_after: Duration,
    next_look: Instant,
    disturbances: Disturbances,
    /// There is more to be told than was asked for.
    wake_soon: bool,
    over: Option<Over>,
    /// What is known of a task that ran before its monitor.
    found: Option<Found>,
    /// When the first process stopped, if nobody told since that it goes on.
    stopped: Option<Instant>,
    /// Why the kernel keeps no limit for each process, if it was asked to.
    not_kept: Option<String>,
}

impl<'a> Run<'a> {
    fn new(order: &'a Order, root: Pid, signals: Signals, team: Team, seen: Seen) -> Self {
        Self {
            order,
            root,
            signals,
            team,
            seen,
            enforcer: Enforcer::new(&order.limits, order.kill_after),
            crossings: Vec::new(),
            guilty: None,
            now: Now::default(),
            rows: Vec::new(),
            every: 1,
            looks: 0,
            look_after: FIRST_LOOK,
            next_look: Instant::now() + FIRST_LOOK,
            disturbances: Disturbances::now(),
            wake_soon: false,
            over: None,
            found: None,
            stopped: None,
            not_kept: None,
        }
    }

    fn until_the_end(&mut self, warn: &mut dyn FnMut(&Crossing)) -> io::Result<()> {
        while self.over.is_none() || self.enforcer.has_more(&self.seen) {
            self.sleep()?;
            for came in self.signals.take() {
                self.told(came);
            }
            self.look_for_its_end()?;
            let Self { team, seen, .. } = self;
            team.mechanisms.iter_mut().for_each(|m| m.readable(seen));
            let mut is_more = true;
            for _ in 0..MAX_EVENTS {
                let Some(event) = sys::next_event()? else {
                    is_more = false;
                    break;
                };
                self.happened(event);
            }
            self.stop_too();
            // A look may take long; what is known already does not wait for it.
            self.enforce();
            self.wake_soon = is_more;
            let may_look = self.over.is_none() && !self.enforcer.is_ending();
            if may_look && self.next_look <= Instant::now() {
                self.look();
                self.enforce();
            }
            if self.over.is_none() && !self.enforcer.is_ending() {
                self.enforcer.near(&self.now, self.seen.elapsed()).iter().for_each(&mut *warn);
            }
        }
        Ok(())
    }

    /// A signal came: it is the task's, if the task was started here.
    fn told(&mut self, came: Came) {
        let is_asked = LETTING_GO.contains(&came.signal);
        if is_asked && self.enforcer.may_give_up(self.found.is_some()) {
            self.enforcer.give_up(&self.seen);
            self.over.get_or_insert(Over::LetGo);
        } else if self.found.is_some() {
            if is_asked {
                self.over.get_or_insert(Over::LetGo);
            }
        } else if came.signal != libc::SIGCHLD && !came.from_terminal {
            // The terminal has told the whole group, the task too.
            sys::kill(self.root, came.signal);
        }
    }

    /// A task that stopped stays so, in front of a terminal: the shell is to see it.
    fn stop_too(&mut self) {
        let is_ours = self.over.is_none() && self.found.is_none() && !self.enforcer.is_ending();
        if is_ours && self.stopped.is_some_and(|since| since.elapsed() >= stop::AFTER) {
            self.stopped = None;
            stop::with(self.root);
        }
    }

    /// Nobody tells of the end of a process that is neither a child nor traced, but its handle.
    fn look_for_its_end(&mut self) -> io::Result<()> {
        let Some(found) = self.found.as_ref().filter(|_| self.over.is_none()) else {
            return Ok(());
        };
        if self.team.mechanisms.iter().any(|m| m.name() == ptrace::NAME) {
            return Ok(());
        }
        let mut fds = [PollFd::new(&found.handle, PollFlags::IN)];
        match poll(&mut fds, Some(&Timespec::default())) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(()),
            Ok(_) => {}
            Err(e) => return Err(e.into()),
        }
        // Its parent may not have asked for it yet: then it still tells all that it used.
        self.look();
        let Self { team, seen, .. } = self;
        team.mechanisms.iter_mut().for_each(|m| m.readable(seen));
        self.over = Some(seen.status_of(self.root).map_or(Over::Unseen, Over::Ended));
        Ok(())
    }

    fn sleep(&mut self) -> io::Result<()> {
        let mut until = self.next_look.saturating_duration_since(Instant::now());
        if let Some(wall) = self.enforcer.next_wall() {
            until = until.min(wall.saturating_sub(self.seen.elapsed()) + Duration::from_millis(1));
        }
        if let Some(since) = self.stopped {
            until = until.min(stop::AFTER.saturating_sub(since.elapsed()));
        }
        if self.enforcer.is_ending() {
            until = enforce::AGAIN;
        }
        if std::mem::take(&mut self.wake_soon) {
            until = Duration::ZERO;
        }
        let timeout = Timespec::try_from(until).map_err(io::Error::other)?;
        let told = self.team.mechanisms.iter().filter_map(|m| m.descriptor());
        let end = self.found.as_ref().map(|found| found.handle.as_fd());
        let readable = [self.signals.descriptor()].into_iter().chain(told).chain(end);
        let mut fds: Vec<_> =
            readable.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    fn happened(&mut self, event: Event) {
        if let Event::Stopped { pid, signal, event } = event
            && pid == self.root
        {
            let is_stop = stop::is_of_job(signal, event, self.team.traces());
            self.stopped = is_stop.then(Instant::now);
        }
        let Self { team, seen, .. } = self;
        let Event::Ended { pid, status } = event else {
            team.mechanisms.iter_mut().for_each(|m| m.event(&event, seen));
            return;
        };
        // Who tells late may know by now that it was a process of the task, and whose child.
        team.mechanisms.iter_mut().for_each(|m| m.readable(seen));
        // Without tracing the kernel tells of the monitor's own children alone.
        let traces = team.traces();
        let is_process = !traces || seen.knows(pid) || proc::process_of(pid) == Some(pid);
        let own = std::process::id() as Pid;
        let is_reaped_here = is_process
            && match seen.parent_of(pid) {
                _ if !traces => true,
                // Its parent lives: the monitor hears of it as a tracer only.
                Some(parent) if parent != own && seen.knows(parent) => false,
                Some(parent) if parent == own => true,
                // Of a found task nobody waits for the first process and for orphans who is part of it.
                _ if seen.is_found() => {
                    proc::stat(pid).is_some_and(|stat| !seen.knows(stat.parent))
                }
                _ => proc::stat(pid).is_some_and(|stat| stat.parent == own),
            };
        // A dead one's bytes only administrators may read; others have them from its last stop.
        let io = if is_reaped_here { proc::io(pid).or_else(|| seen.io_of(pid)) } else { None };
        // Who is traced has told before.
        if is_reaped_here && !traces && proc::ignores_children(pid) {
            seen.ignored_children(pid);
        }
        team.mechanisms.iter_mut().for_each(|m| m.event(&event, seen));
        match sys::reap(pid) {
            Some(usage) if is_reaped_here => seen.reaped.add(usage, io),
            Some(usage) if is_process => seen.is_for_parent(pid, usage),
            _ => {}
        }
        if is_process {
            seen.ended(pid, Some(status));
        }
        if pid == self.root {
            self.over = Some(Over::Ended(status));
        }
    }

    fn look(&mut self) {
        let begun = Instant::now();
        let Self { team, seen, now, .. } = self;
        now.paced = Duration::ZERO;
        team.mechanisms.iter_mut().for_each(|m| m.sample(now, seen));
        self.keep_row();
        let is_limited = self.enforcer.needs_looks();
        let wanted = match is_limited {
            true => self.order.interval.min(LIMITED_LOOK),
            false => self.order.interval,
        };
        let took = begun.elapsed().saturating_sub(self.now.paced);
        self.look_after = (2 * self.look_after).min(wanted);
        self.next_look = Instant::now() + procfs::next_look(self.look_after, took, is_limited);
    }

    fn keep_row(&mut self) {
        self.looks += 1;
        if !self.looks.is_multiple_of(self.every) {
            return;
        }
        self.rows.push(Row::new(self.seen.elapsed(), &self.now));
        if self.rows.len() == MAX_ROWS {
            let mut at = 0;
            self.rows.retain(|_| {
                at += 1;
                at % 2 == 0
            });
            self.every *= 2;
        }
    }

    fn enforce(&mut self) {
        if !self.enforcer.has_limits() {
            return;
        }
        if self.team.level >= 2 {
            // Births and ends are told, so this is known without a look.
            self.now.processes = Some(self.seen.count());
        }
        if !self.enforcer.is_ending() {
            let team = &self.team;
            let kept = |name: &str| team.mechanisms.iter().any(|m| m.keeps(name));
            let mut crossings = self.enforcer.exceeded(&self.now, self.seen.elapsed(), kept);
            for mechanism in &mut self.team.mechanisms {
                crossings.extend(mechanism.crossings(&self.seen));
            }
            enforce::once(&mut crossings);
            if let Some(first) = crossings.first() {
                self.guilty = self.seen.greatest_user(first.limit.resource.name);
                self.crossings = crossings;
                self.enforcer.begin(&self.seen);
            }
        }
        self.enforcer.step(&mut self.team.mechanisms, &self.seen);
        if self.over.is_none() && self.enforcer.cannot(&self.seen) {
            // Nobody knows when it ends, and the others have.
            self.over = Some(Over::LetGo);
        }
    }

    /// Where births are not told, nobody may have seen one that was left to the monitor between two looks
    /// and runs on. Nor when one that was seen became another program.
    fn find_left_behind(&mut self) {
        if self.seen.is_told || self.seen.is_found() {
            return;
        }
        for pid in family::unended(&self.seen).into_iter().map(|member| member.pid) {
            if let Some(stat) = proc::stat(pid).filter(|stat| !stat.is_zombie) {
                self.seen.born(pid, stat.parent);
                self.seen.became(pid);
            }
        }
    }

    fn outcome(mut self, start: SystemTime) -> Outcome {
        let elapsed = self.seen.elapsed();
        let left = self.enforcer.left(&self.seen);
        let at_end = Disturbances::now();
        // The kernel may have told when it was; the monitor heard of it once it had a processor.
        let told = self.seen.end_of(self.root).filter(|_| !self.enforcer.is_ending());
        let heard_after = told.map_or(0.0, |end| (elapsed.as_secs_f64() - end).max(0.0));
        // What the last to end had to tell. Whoever is gone by then has been told of before that.
        let gone = self.seen.gone();
        self.team.mechanisms.iter_mut().for_each(|m| m.readable(&mut self.seen));
        self.seen.bury(gone);
        self.find_left_behind();
        if self.over == Some(Over::LetGo) {
            self.seen.let_go();
        }
        for mechanism in &mut self.team.mechanisms {
            mechanism.finish(&mut self.seen);
        }
        self.seen.settle();
        let own = self.seen.reading("cpu_seconds", "").value.unwrap_or(0.0)
            + sys::own_usage().0.as_secs_f64();
        let disturbed = self.disturbances.until(&at_end, elapsed.as_secs_f64(), own);
        let files = self.seen.files.take();
        let start_seconds = start.duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        let crossings = self.crossings.clone();
        let measured = Measured {
            order: self.order,
            start_seconds,
            elapsed,
            heard_after,
            over: self.over,
            found: self.found,
            crossings: self.crossings,
            guilty: self.guilty,
            left,
            not_kept: self.not_kept,
            level: self.team.level,
            uses: self.team.uses,
            disturbed,
            seen: self.seen,
        };
        Outcome { summary: report::summary(measured), series: self.rows, files, crossings }
    }
}
