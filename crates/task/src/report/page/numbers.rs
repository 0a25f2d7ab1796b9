//! The values of all resources, each with its method, completeness and error bound.

use skopos_model::task::{Completeness, LimitSet, RESOURCES, Reading, Summary, amount, resource};

use super::html::Html;

pub(super) fn section(html: &mut Html, summary: &Summary) {
    html.raw("<section>\n<h2>Resources</h2>\n");
    html.table(&["Resource", "Value", "Limit", "Covers", "Off by at most", "Method"]);
    for (name, reading) in ordered(summary) {
        if reading.value.is_some() {
            row(html, name, reading, limit(summary, name));
        }
    }
    html.end_table();
    unknown(html, summary);
    html.raw("</section>\n");
}

/// Returns the limit that was set on a resource.
pub(super) fn limit<'a>(summary: &'a Summary, name: &str) -> Option<&'a LimitSet> {
    summary.limits_set.iter().find(|limit| limit.name == name)
}

/// Iterates in the order of [`RESOURCES`]; resources that this version does not know come last.
fn ordered(summary: &Summary) -> impl Iterator<Item = (&str, &Reading)> {
    let known = RESOURCES.iter().filter_map(|r| summary.resources.get_key_value(r.name));
    let others = summary.resources.iter().filter(|(name, _)| resource(name).is_none());
    known.chain(others).map(|(name, reading)| (name.as_str(), reading))
}

fn row(html: &mut Html, name: &str, reading: &Reading, limit: Option<&LimitSet>) {
    let Some(value) = reading.value else { return };
    let is_over = limit.is_some_and(|limit| value > limit.most);
    html.raw("<tr><th scope=\"row\"><code>").text(name).raw("</code>");
    if let Some(resource) = resource(name) {
        html.raw("<br><span class=\"soft\">").text(resource.help).raw("</span>");
    }
    html.raw("</th><td class=\"v");
    html.raw(if is_over { " over\" title=\"" } else { "\" title=\"" });
    html.text(&format!("{value} {}", reading.unit)).raw("\">");
    html.raw(at_least(reading.completeness)).text(&amount(value, &reading.unit));
    html.raw("</td><td class=\"v\">");
    if let Some(limit) = limit {
        html.text(&amount(limit.most, &limit.unit));
    }
    html.raw("</td><td>").raw(covers(reading.completeness));
    if let Some(reason) = &reading.reason {
        html.raw("<br><span class=\"soft\">").text(reason).raw("</span>");
    }
    html.raw("</td><td>").text(&bound(reading)).raw("</td><td><code>").text(&reading.method);
    html.raw("</code></td></tr>\n");
}

/// Returns the prefix of a value whose true size may be greater.
fn at_least(completeness: Completeness) -> &'static str {
    match completeness {
        Completeness::All | Completeness::None => "",
        Completeness::AtLeast | Completeness::Sampled => "≥ ",
    }
}

fn covers(completeness: Completeness) -> &'static str {
    match completeness {
        Completeness::All => "all",
        Completeness::AtLeast => "at least",
        Completeness::Sampled => "sampled",
        Completeness::None => "unknown",
    }
}

fn bound(reading: &Reading) -> String {
    match reading.error_bound {
        None => "no bound".to_owned(),
        Some(0.0) => "exact".to_owned(),
        Some(bound) => format!("± {}", small(bound, &reading.unit)),
    }
}

/// Like [`amount`], but shows counts below a hundredth.
fn small(value: f64, unit: &str) -> String {
    if unit.is_empty() && value < 0.01 { format!("{value:.1e}") } else { amount(value, unit) }
}

fn unknown(html: &mut Html, summary: &Summary) {
    let mut unknown = ordered(summary).filter(|(_, reading)| reading.value.is_none()).peekable();
    if unknown.peek().is_none() {
        return;
    }
    html.raw("<details><summary>Unknown resources</summary>\n").table(&["Resource", "Reason"]);
    for (name, reading) in unknown {
        html.raw("<tr><th scope=\"row\"><code>").text(name).raw("</code></th><td>");
        html.text(reading.reason.as_deref().unwrap_or("no reason given")).raw("</td></tr>\n");
    }
    html.end_table().raw("</details>\n");
}
