//! `responder`: what this node does for those that probe it, and what strangers send it. The work is
//! done by the thread of [`crate::peer::line`]; here are its counts.

use std::io;
use std::sync::Arc;

use skopos_model::schema::Family;
use skopos_model::schema::responder::{self, *};

use crate::facts::Facts;
use crate::peer::line::{Line, Traffic};
use crate::{Sensor, Tick};

pub(crate) struct Responder {
    line: Arc<Line>,
    facts: Facts,
}

impl Responder {
    pub(crate) fn new(line: Arc<Line>) -> Self {
        Self { line, facts: Facts::of_node(&responder::FAMILY) }
    }
}

impl Sensor for Responder {
    fn family(&self) -> &'static Family {
        &responder::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let Traffic { answered, malformed, refused, unasked } = self.line.state()?.traffic;
        self.facts.set(tick, &ANSWERED_TOTAL, answered);
        self.facts.set(tick, &MALFORMED_TOTAL, malformed);
        self.facts.set(tick, &REFUSED_TOTAL, refused);
        self.facts.set(tick, &UNASKED_TOTAL, unasked);
        Ok(())
    }
}
