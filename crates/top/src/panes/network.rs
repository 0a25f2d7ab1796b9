//! Network interfaces, TCP, UDP and sockets.

use ratatui::text::Line;
use skopos_model::Topic;
use skopos_model::schema::netdev::*;
use skopos_model::schema::{Metric, sockets, tcp, udp};

use super::parts::{items, labelled, row};
use crate::data::{Data, Instance};
use crate::table::{Cell, Column, Row, Table, number, words};
use crate::text::{self, bytes};
use crate::theme::Theme;

const COLUMNS: [Column; 8] = [
    number("rx/s", 10, 0),
    number("tx/s", 10, 0),
    number("drop", 4, 1),
    number("err", 4, 1),
    number("rx pkts", 7, 2),
    number("tx pkts", 7, 2),
    number("speed/s", 10, 3),
    words("link", 4, 3),
];

static DROPS: [&Metric; 2] = [&RECEIVE_DROPS_TOTAL, &TRANSMIT_DROPS_TOTAL];
static ERRORS: [&Metric; 4] = [
    &RECEIVE_ERRORS_TOTAL,
    &TRANSMIT_ERRORS_TOTAL,
    &RECEIVE_FIFO_ERRORS_TOTAL,
    &TRANSMIT_CARRIER_ERRORS_TOTAL,
];

/// The connections of the node.
pub(super) fn summary(data: &Data, theme: Theme, width: usize) -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'static>> = tcp(data, theme, width).into_iter().collect();
    if let Some(node) = data.instance(&tcp::FAMILY, "") {
        let rate = |metric| text::number(node.rate(metric));
        let shown = [
            (rate(&tcp::ACTIVE_OPENS_TOTAL), "opens/s"),
            (rate(&tcp::PASSIVE_OPENS_TOTAL), "accepts/s"),
            (rate(&tcp::TIMEOUTS_TOTAL), "timeouts/s"),
            (rate(&tcp::LISTEN_DROPS_TOTAL), "listen drops/s"),
        ];
        lines.push(labelled(theme, "", node.is_stale(), items(theme, width, &shown)));
    }
    for version in data.instances(&udp::FAMILY) {
        let rate = |metric| text::number(version.rate(metric));
        let errors = [&udp::RECEIVED_ERRORS_TOTAL, &udp::RECEIVE_BUFFER_ERRORS_TOTAL];
        let shown = [
            (rate(&udp::RECEIVED_DATAGRAMS_TOTAL), "received/s"),
            (rate(&udp::SENT_DATAGRAMS_TOTAL), "sent/s"),
            (rate(&udp::NO_PORT_TOTAL), "no port/s"),
            (text::number(version.rates(&errors)), "errors/s"),
        ];
        let label = format!("udp {}", version.name);
        lines.push(labelled(theme, &label, version.is_stale(), items(theme, width, &shown)));
    }
    if let Some(node) = data.instance(&sockets::FAMILY, "") {
        let number = |metric| text::number(node.value(metric));
        let shown = [
            (number(&sockets::USED), "in use"),
            (number(&sockets::TCP_TIME_WAIT), "time-wait"),
            (number(&sockets::TCP_ORPHANED), "orphaned"),
            (bytes(node.value(&sockets::TCP_MEMORY_BYTES)), "of TCP buffers"),
        ];
        lines.push(labelled(theme, "sockets", node.is_stale(), items(theme, width, &shown)));
    }
    lines
}

pub(super) fn tcp(data: &Data, theme: Theme, width: usize) -> Option<Line<'static>> {
    let node = data.instance(&tcp::FAMILY, "")?;
    let rate = |metric| text::number(node.rate(metric));
    let shown = [
        (text::number(node.value(&tcp::ESTABLISHED)), "established"),
        (rate(&tcp::RETRANSMITTED_SEGMENTS_TOTAL), "retransmits/s"),
        (rate(&tcp::RECEIVED_SEGMENTS_TOTAL), "in/s"),
        (rate(&tcp::SENT_SEGMENTS_TOTAL), "out/s"),
    ];
    Some(labelled(theme, "tcp", node.is_stale(), items(theme, width, &shown)))
}

pub(super) fn table(data: &Data) -> Table {
    let rows = data.instances(&FAMILY).map(|interface| {
        let link = match interface.value(&UP) {
            Some(0.0) => "down",
            Some(_) => "up",
            None => "",
        };
        let cells = vec![
            Cell::number(interface.rate(&RECEIVE_BYTES_TOTAL), bytes),
            Cell::number(interface.rate(&TRANSMIT_BYTES_TOTAL), bytes),
            Cell::number(interface.rates(&DROPS), text::number),
            Cell::number(interface.rates(&ERRORS), text::number),
            Cell::number(interface.rate(&RECEIVE_PACKETS_TOTAL), text::number),
            Cell::number(interface.rate(&TRANSMIT_PACKETS_TOTAL), text::number),
            Cell::Text(speed(&interface), interface.value(&SPEED_BYTES_PER_SECOND)),
            Cell::words(link),
        ];
        let history = interface.fact(&RECEIVE_BYTES_TOTAL);
        row(&interface, text::unescape(interface.name), history, cells)
    });
    Table::new("network", &COLUMNS, rows.collect())
}

fn speed(interface: &Instance<'_>) -> String {
    interface.value(&SPEED_BYTES_PER_SECOND).map_or_else(String::new, |s| bytes(Some(s)))
}

/// The received bytes of the interface that received most, for the overview.
pub(super) fn history(data: &Data) -> Option<Topic> {
    let received = |i: &Instance<'_>| i.value(&RECEIVE_BYTES_TOTAL).unwrap_or(0.0);
    let interfaces = data.instances(&FAMILY).filter(|i| i.name != "lo");
    let busiest = interfaces.max_by(|a, b| received(a).total_cmp(&received(b)))?;
    busiest.topic(&RECEIVE_BYTES_TOTAL)
}

/// The interfaces; the busiest first if there are more than `room`, and `lo` always last.
pub(super) fn busiest(data: &Data, room: usize) -> Table {
    let mut table = table(data);
    if table.rows.len() > room {
        table.sort(1, false);
    }
    let is_loopback = |row: &Row| row.key == "lo";
    table.rows.sort_by_key(is_loopback);
    table
}
