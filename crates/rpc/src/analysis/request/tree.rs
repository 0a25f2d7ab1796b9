//! The structure of a request: its calls, each with both sides, as a tree in happens-before order.
//!
//! A call begins before the calls that its handler makes, and calls of one handler have one clock, so their begins order
//! them. If only the target's side of a call is known, the order counter and the Lamport clock stand for its begin.

use std::collections::HashMap;

use super::calls::Call;
use crate::analysis::names::{Callpaths, PathId};
use crate::record::{Kind, Status};

/// The deepest tree. A deeper one is a recursion without end or damage; what lies below hangs on the root.
const MAX_DEPTH: usize = 1024;

/// A call of a request with both sides, or a local step.
#[derive(Clone, Debug)]
pub struct Node {
    /// Id of the call.
    pub span: u64,
    /// The callpath.
    pub path: PathId,
    /// Position of the parent in the tree.
    pub parent: Option<usize>,
    /// Positions of the children, in happens-before order.
    pub children: Vec<usize>,
    /// The caller's side, or the local step.
    pub origin: Option<Call>,
    /// The callee's side.
    pub target: Option<Call>,
    /// Begin of the call on the common clock.
    pub start: i64,
    /// End of the call on the common clock.
    pub end: i64,
    /// Arrival at the target: within the call.
    pub arrived: i64,
    /// Begin of the handler.
    pub begun: i64,
    /// End of the handler.
    pub ended: i64,
    /// True if the parent is not known and was found by the callpath.
    pub is_adopted: bool,
}

impl Node {
    /// Returns true if this is a step inside of a process.
    pub fn is_local(&self) -> bool {
        self.origin.is_some_and(|call| call.kind == Kind::Local)
    }

    /// The worst end of both sides.
    pub fn status(&self) -> Status {
        let sides = [self.origin, self.target].into_iter().flatten();
        sides.map(|call| call.status).find(|s| *s != Status::Ok).unwrap_or(Status::Ok)
    }

    /// Duration in ns.
    pub fn duration(&self) -> u64 {
        self.end.abs_diff(self.start)
    }
}

/// A request.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// The calls.
    pub nodes: Vec<Node>,
    /// Positions of the calls without a parent, by their begin.
    pub roots: Vec<usize>,
    /// Records of a side that another record has already.
    pub duplicates: usize,
    /// Calls whose parent has no record.
    pub orphans: usize,
}

impl Tree {
    /// Builds the tree of one request from its calls, sorted by span and kind.
    pub fn build(calls: &[Call], callpaths: &Callpaths) -> Self {
        let mut tree = Self::default();
        for sides in calls.chunk_by(|a, b| a.span == b.span) {
            tree.add(sides);
        }
        tree.join(callpaths);
        tree.order();
        tree
    }

    fn add(&mut self, sides: &[Call]) {
        let origin = sides.iter().find(|call| call.kind != Kind::Target).copied();
        let target = sides.iter().find(|call| call.kind == Kind::Target).copied();
        let Some(first) = origin.or(target) else { return };
        self.duplicates +=
            sides.len() - usize::from(origin.is_some()) - usize::from(target.is_some());
        let (start, end) = (first.start, first.end());
        // Clocks are known within a bound; an effect does not come before its cause.
        let within = |time: i64| time.clamp(start, end);
        let (arrived, begun, ended) = match target {
            Some(target) => (
                within(target.start),
                within(target.start.saturating_add_unsigned(target.queue)),
                within(target.start.saturating_add_unsigned(target.stay)),
            ),
            None => (start, start, end),
        };
        self.nodes.push(Node {
            span: first.span,
            path: first.path,
            parent: None,
            children: Vec::new(),
            origin,
            target,
            start,
            end,
            arrived,
            begun: begun.max(arrived),
            ended: ended.max(begun),
            is_adopted: false,
        });
    }

    fn join(&mut self, callpaths: &Callpaths) {
        let by_span: HashMap<u64, usize> =
            self.nodes.iter().enumerate().map(|(at, node)| (node.span, at)).collect();
        let mut by_path: HashMap<PathId, Option<usize>> = HashMap::new();
        for (at, node) in self.nodes.iter().enumerate() {
            // A path that occurs twice cannot tell whose child a call is.
            by_path.entry(node.path).and_modify(|only| *only = None).or_insert(Some(at));
        }
        for at in 0..self.nodes.len() {
            let node = &self.nodes[at];
            let wanted = node.origin.or(node.target).map_or(0, |call| call.parent);
            let known = by_span.get(&wanted).copied().filter(|_| wanted != 0);
            let parent_hash = callpaths.get(node.path).parent_hash;
            let is_lost = wanted != 0 || node.origin.is_none() && parent_hash != 0;
            let adopter = || {
                let path = callpaths.by_hash(parent_hash).filter(|_| parent_hash != 0)?;
                by_path.get(&path).copied().flatten()
            };
            let (parent, is_adopted) = match known {
                Some(parent) => (Some(parent), false),
                None if is_lost => (adopter(), true),
                None => (None, false),
            };
            self.orphans += usize::from(is_lost && parent.is_none());
            let parent = parent.filter(|parent| *parent != at && !self.is_below(*parent, at));
            self.nodes[at].parent = parent;
            self.nodes[at].is_adopted = is_adopted && parent.is_some();
        }
    }

    /// Returns true if `node` lies below `above`, or too deep.
    fn is_below(&self, node: usize, above: usize) -> bool {
        let mut at = Some(node);
        for _ in 0..MAX_DEPTH {
            match at {
                Some(place) if place == above => return true,
                Some(place) => at = self.nodes[place].parent,
                None => return false,
            }
        }
        true
    }

    fn order(&mut self) {
        for at in 0..self.nodes.len() {
            match self.nodes[at].parent {
                Some(parent) => self.nodes[parent].children.push(at),
                None => self.roots.push(at),
            }
        }
        let mut lists: Vec<Vec<usize>> =
            self.nodes.iter_mut().map(|node| std::mem::take(&mut node.children)).collect();
        lists.push(std::mem::take(&mut self.roots));
        for list in &mut lists {
            let has_one_clock = list.iter().all(|at| self.nodes[*at].origin.is_some());
            list.sort_by_key(|at| {
                let node = &self.nodes[*at];
                let side = node.origin.or(node.target);
                let order = side.map_or((0, 0), |call| (call.order, call.lamport));
                match has_one_clock {
                    true => ((0, 0), node.start, order),
                    false => (order, node.start, (0, 0)),
                }
            });
        }
        self.roots = lists.pop().unwrap_or_default();
        self.nodes.iter_mut().zip(lists).for_each(|(node, list)| node.children = list);
    }

    /// The first moment and the last one of all calls.
    pub fn extent(&self) -> Option<(i64, i64)> {
        let first = self.nodes.iter().map(|node| node.start).min()?;
        Some((first, self.nodes.iter().map(|node| node.end).max()?))
    }

    /// The positions of all calls with their depths, each before its children.
    pub fn walk(&self) -> Vec<(usize, usize)> {
        let mut open: Vec<(usize, usize)> = self.roots.iter().rev().map(|at| (*at, 0)).collect();
        let mut walked = Vec::with_capacity(self.nodes.len());
        while let Some((at, depth)) = open.pop() {
            walked.push((at, depth));
            open.extend(self.nodes[at].children.iter().rev().map(|child| (*child, depth + 1)));
        }
        walked
    }
}
