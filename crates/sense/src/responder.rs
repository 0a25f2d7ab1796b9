//! `responder`: the probes that this node answers, and the datagrams that strangers send to it. The
//! thread of [`crate::peer::endpoint`] does the work; this sensor publishes its counts.

use std::io;
use std::sync::Arc;

use skopos_model::schema::Family;
use skopos_model::schema::responder::{self, *};

use crate::facts::Facts;
use crate::peer::endpoint::{Endpoint, Traffic};
use crate::sensor::{Sensor, Tick};

pub(crate) struct Responder {
    endpoint: Arc<Endpoint>,
    facts: Facts,
}

impl Responder {
    pub(crate) fn new(endpoint: Arc<Endpoint>) -> Self {
        Self { endpoint, facts: Facts::of_node(&responder::FAMILY) }
    }
}

impl Sensor for Responder {
    fn family(&self) -> &'static Family {
        &responder::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let Traffic { answered, malformed, refused, unasked } = self.endpoint.state()?.traffic;
        self.facts.set(tick, &ANSWERED_TOTAL, answered);
        self.facts.set(tick, &MALFORMED_TOTAL, malformed);
        self.facts.set(tick, &REFUSED_TOTAL, refused);
        self.facts.set(tick, &UNASKED_TOTAL, unasked);
        Ok(())
    }
}
