//! `GET /metrics`: latest values for Prometheus, in its text format or in OpenMetrics.
//!
//! - A value has the time of the last poll of its source, so a value that is not polled ages in Prometheus as it does
//!   here. A scraper with `honor_timestamps: false` replaces that time by its own.
//! - Unknown, infinite and non-numeric values are left out, and so are all values of a node that is gone.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse as _, Response};
use skopos_access::Caller;
use skopos_model::{Kind, Timestamp, TopicPattern, schema};
use skopos_query::{Row, Source as _, Wanted};

use super::accept::Accept;
use super::context::HttpContext;
use super::parameters::{parameters, unknown};
use super::refusal::Refusal;
use super::sending;
use skopos_hub::prometheus::{Series, escape_help, escape_label, numbers, type_of};
use skopos_hub::topics::wanted;
use skopos_term::find::readings_of;

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) async fn answer(
    State(context): State<Arc<HttpContext>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Refusal> {
    let is_open = wants_open_metrics(&headers);
    let mut patterns: Vec<TopicPattern> = Vec::new();
    for (name, value) in parameters(&uri)? {
        match name.as_str() {
            "topic" => patterns.extend(readings_of(&value)?),
            other => return Err(unknown(other, "`topic`")),
        }
    }
    let reader = context.clone();
    // The page of a thousand nodes takes as long as a slow statement.
    let reading = move || {
        let context = reader;
        let mut page = Page::default();
        page.add_topics(&context, &patterns);
        if patterns.is_empty() {
            page.add_hub(&context);
        }
        page.text(is_open)
    };
    let text = context.backend.engine.reading(&caller, reading).await?;
    let body = sending::text(&context.backend.engine, &caller, text.into_bytes())?;
    Ok(([(CONTENT_TYPE, if is_open { OPEN_METRICS } else { TEXT })], body).into_response())
}

/// Returns true if the client takes OpenMetrics with at least the quality of the older format.
fn wants_open_metrics(headers: &HeaderMap) -> bool {
    let accept = Accept::new(headers);
    let open = accept.quality(|name| name == "application/openmetrics-text");
    let text = accept.quality(|name| matches!(name, "text/plain" | "text/*" | "*/*"));
    open > 0.0 && open >= text
}

/// The page: metrics by name.
#[derive(Default)]
struct Page {
    metrics: BTreeMap<String, Metric>,
}

/// One metric with the samples of its topics. A kind on which the topics disagree is left out.
struct Metric {
    help: &'static str,
    kind: Option<Kind>,
    unit: &'static str,
    samples: Vec<(String, f64, Option<Timestamp>)>,
}

/// Help of a metric without a schema.
const NO_HELP: &str = "Published by a program, or computed";

impl Page {
    fn add_topics(&mut self, context: &HttpContext, patterns: &[TopicPattern]) {
        let source = &context.backend.source;
        let gone: Vec<String> =
            source.nodes().into_iter().filter_map(|n| (!n.alive).then_some(n.name)).collect();
        let mut visit = |row: &Row<'_>| {
            let topic = row.of.topic;
            let is_wanted = patterns.is_empty() || patterns.iter().any(|p| p.matches(topic));
            if !is_wanted || gone.iter().any(|node| node == topic.node()) {
                return;
            }
            numbers(row, &mut |topic, number| {
                let Series { name, labels } = Series::of(topic);
                let known = schema::lookup(topic);
                let (help, unit) = known.map_or((NO_HELP, ""), |m| (m.help, m.unit.as_str()));
                let labels = labels.iter().map(|(name, value)| (*name, value.as_str()));
                self.add(name, help, unit, row.of.kind, labels, number, Some(row.checked_at));
            });
        };
        if patterns.is_empty() {
            return source.latest(&Wanted::All, &mut visit);
        }
        let mut starts: Vec<Wanted> = patterns.iter().map(wanted).collect();
        if starts.contains(&Wanted::All) {
            starts = vec![Wanted::All];
        }
        for wanted in starts {
            source.latest(&wanted, &mut visit);
        }
    }

    /// Adds the hub's own counts and its nodes.
    fn add_hub(&mut self, context: &HttpContext) {
        for (listener, counts) in &context.backend.counts {
            for (metric, now) in counts.all() {
                let name = format!("skopos_hub_{}", metric.name);
                let (unit, labels) = (metric.unit.as_str(), [("listener", *listener)]);
                self.add(name, metric.help, unit, metric.kind, labels, now as f64, None);
            }
        }
        for node in context.backend.source.nodes() {
            let mut add = |name: &str, help, kind, value| {
                let labels = [("node", node.name.as_str())];
                self.add(format!("skopos_hub_node_{name}"), help, "", kind, labels, value, None);
            };
            let up = f64::from(u8::from(node.alive));
            add("up", "1 if the publisher of the node's facts is alive", Kind::Gauge, up);
            add("topics", "Topics of the node", Kind::Gauge, node.topics as f64);
            let lost = node.lost_batches as f64;
            add(
                "lost_batches_total",
                "Batches of the node that never arrived",
                Kind::Counter,
                lost,
            );
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a sample has that many parts")]
    fn add<'l>(
        &mut self,
        name: String,
        help: &'static str,
        unit: &'static str,
        kind: Kind,
        labels: impl IntoIterator<Item = (&'l str, &'l str)>,
        value: f64,
        at: Option<Timestamp>,
    ) {
        let new = || Metric { help, kind: Some(kind), unit, samples: Vec::new() };
        let metric = self.metrics.entry(name).or_insert_with(new);
        if metric.kind.is_some_and(|known| type_of(known) != type_of(kind)) {
            metric.kind = None;
        }
        let mut text = String::new();
        for (name, value) in labels {
            let comma = if text.is_empty() { "" } else { "," };
            let _ = write!(text, "{comma}{name}=\"{}\"", escape_label(value));
        }
        metric.samples.push((text, value, at));
    }

    fn text(self, is_open: bool) -> String {
        let mut text = String::new();
        for (name, mut metric) in self.metrics {
            metric.samples.sort_by(|a, b| a.0.cmp(&b.0));
            // Several patterns may select the same topic.
            metric.samples.dedup_by(|later, first| later.0 == first.0);
            metric.write(&name, is_open, &mut text);
        }
        if is_open {
            text.push_str("# EOF\n");
        }
        text
    }
}

impl Metric {
    fn write(&self, name: &str, is_open: bool, text: &mut String) {
        let without_total = name.strip_suffix("_total");
        let kind = match self.kind.map(type_of) {
            // A counter needs the suffix `_total`.
            Some("counter") if without_total.is_some() => "counter",
            Some("gauge") => "gauge",
            _ if is_open => "unknown",
            _ => "untyped",
        };
        // In OpenMetrics the family of a counter lacks the suffix of its samples.
        let family = match without_total {
            Some(family) if is_open && kind == "counter" => family,
            _ => name,
        };
        let help = escape_help(self.help);
        let _ = writeln!(text, "# HELP {family} {help}\n# TYPE {family} {kind}");
        let unit = self.unit.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        if is_open && !unit.is_empty() && family.ends_with(&format!("_{unit}")) {
            let _ = writeln!(text, "# UNIT {family} {unit}");
        }
        for (labels, value, at) in &self.samples {
            let _ = write!(text, "{name}{{{labels}}} {value}");
            if let Some(at) = at {
                let milliseconds = at.as_nanos().div_euclid(1_000_000);
                let _ = match is_open {
                    true => write!(
                        text,
                        " {}.{:03}",
                        milliseconds / 1000,
                        milliseconds.rem_euclid(1000)
                    ),
                    false => write!(text, " {milliseconds}"),
                };
            }
            text.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::header::ACCEPT;

    use super::*;

    fn headers(accept: &str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT, accept.parse().expect("a value"))])
    }

    #[test]
    fn the_scraper_gets_the_format_that_it_prefers() {
        for (accept, expected) in [
            ("", false),
            ("*/*", false),
            ("text/plain", false),
            ("application/openmetrics-text", true),
            // The header of Prometheus.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                true,
            ),
            ("application/openmetrics-text;q=0.2,text/plain;q=0.9", false),
            ("application/openmetrics-text;q=0", false),
        ] {
            assert_eq!(wants_open_metrics(&headers(accept)), expected, "{accept}");
        }
    }

    #[test]
    fn both_formats_follow_their_specifications() {
        let mut page = Page::default();
        let at = Some(Timestamp::from_nanos(1_700_000_000_123_456_789));
        let mut add = |name: &str, help, unit, kind, labels: &[(&str, &str)], value| {
            page.add(name.to_owned(), help, unit, kind, labels.iter().copied(), value, at);
        };
        let node = ("node", "n1");
        add("skopos_io_read_bytes_total", "Bytes\\\n", "bytes", Kind::Counter, &[node], 5e20);
        add("skopos_temp_celsius", "T", "celsius", Kind::Gauge, &[node, ("topic", "a\"b\\")], -0.5);
        add("skopos_app_done", "D", "", Kind::Counter, &[node], 1.0);
        add("skopos_app_mixed", "M", "", Kind::Counter, &[node], 1.0);
        add("skopos_app_mixed", "M", "", Kind::Gauge, &[("node", "n2")], 2.0);
        assert_eq!(Page::default().text(true), "# EOF\n");
        let (mut text, mut open) = (String::new(), String::new());
        for (name, metric) in &page.metrics {
            metric.write(name, false, &mut text);
            metric.write(name, true, &mut open);
        }
        assert_eq!(
            text,
            "# HELP skopos_app_done D\n# TYPE skopos_app_done untyped\n\
             skopos_app_done{node=\"n1\"} 1 1700000000123\n\
             # HELP skopos_app_mixed M\n# TYPE skopos_app_mixed untyped\n\
             skopos_app_mixed{node=\"n1\"} 1 1700000000123\n\
             skopos_app_mixed{node=\"n2\"} 2 1700000000123\n\
             # HELP skopos_io_read_bytes_total Bytes\\\\\\n\n# TYPE skopos_io_read_bytes_total counter\n\
             skopos_io_read_bytes_total{node=\"n1\"} 500000000000000000000 1700000000123\n\
             # HELP skopos_temp_celsius T\n# TYPE skopos_temp_celsius gauge\n\
             skopos_temp_celsius{node=\"n1\",topic=\"a\\\"b\\\\\"} -0.5 1700000000123\n"
        );
        assert_eq!(
            open,
            "# HELP skopos_app_done D\n# TYPE skopos_app_done unknown\n\
             skopos_app_done{node=\"n1\"} 1 1700000000.123\n\
             # HELP skopos_app_mixed M\n# TYPE skopos_app_mixed unknown\n\
             skopos_app_mixed{node=\"n1\"} 1 1700000000.123\n\
             skopos_app_mixed{node=\"n2\"} 2 1700000000.123\n\
             # HELP skopos_io_read_bytes Bytes\\\\\\n\n# TYPE skopos_io_read_bytes counter\n\
             # UNIT skopos_io_read_bytes bytes\n\
             skopos_io_read_bytes_total{node=\"n1\"} 500000000000000000000 1700000000.123\n\
             # HELP skopos_temp_celsius T\n# TYPE skopos_temp_celsius gauge\n\
             # UNIT skopos_temp_celsius celsius\n\
             skopos_temp_celsius{node=\"n1\",topic=\"a\\\"b\\\\\"} -0.5 1700000000.123\n"
        );
    }
}
