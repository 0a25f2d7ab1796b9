//! The table of cases: a line for each case, a column for Skopos and each peer.

use super::figure::Figure;
use super::glob::{list, matches};
use super::marker::Marker;
use super::run::Row;
use super::table::{line, peers};

/// Lines of Markdown. A cell has the numbers of all `metrics`, divided by the least of the `base` peers
/// if the marker has one; the metrics of `also` follow, ours alone.
pub(super) fn lines(marker: &Marker<'_>, rows: &[&Row]) -> Result<Vec<String>, String> {
    let metrics: Vec<&str> = list(marker.option("metrics").unwrap_or_default()).collect();
    if metrics.is_empty() {
        return Err("`view=\"cases\"` needs `metrics`".to_owned());
    }
    let base: Vec<&str> = list(marker.option("base").unwrap_or_default()).collect();
    let also: Vec<&str> = list(marker.option("also").unwrap_or_default()).collect();
    let all = peers(rows);
    let peers: Vec<&str> = marker.option("peers").map_or(all, |names| list(names).collect());
    let mut heads = vec!["case", marker.option("skopos").unwrap_or("Skopos")];
    heads.extend(peers.iter().chain(&also).map(|head| head.trim_end_matches('*').trim()));
    let sides = format!("|---|{}", "---:|".repeat(heads.len() - 1));
    let mut lines = vec![line(&heads), sides];
    let mut cases: Vec<&str> = Vec::new();
    for row in rows {
        if cases.contains(&row.case.as_str()) {
            continue;
        }
        cases.push(&row.case);
        let find = |metric: &&str| {
            rows.iter().copied().find(|r| r.case == row.case && matches(metric, &r.metric))
        };
        let Some(own) = metrics.iter().map(find).collect::<Option<Vec<&Row>>>() else { continue };
        let mut cells = vec![row.case.clone()];
        cells.push(format!("**{}**", join(&own, &base, |row| Some(&row.value))));
        for peer in &peers {
            cells.push(join(&own, &base, |row| row.peers.get(*peer)));
        }
        let ours = also.iter().map(|metric| find(metric).map(|row| row.value.cell()));
        cells.extend(ours.map(Option::unwrap_or_default));
        lines.push(line(&cells));
    }
    if lines.len() == 2 {
        return Err(format!("no case has the metrics {}", metrics.join(", ")));
    }
    Ok(lines)
}

/// The numbers of one column in a case, with spaces between them.
fn join<'a>(
    rows: &[&'a Row],
    base: &[&str],
    column: impl Fn(&'a Row) -> Option<&'a Figure>,
) -> String {
    let cell = |row: &&'a Row| {
        let figure = column(row)?;
        let bases = base.iter().filter_map(|peer| row.peers.get(*peer)?.number());
        let least = bases.reduce(f64::min);
        Some(match (figure.number(), least) {
            (Some(number), Some(least)) => relative(number, least),
            _ => figure.cell(),
        })
    };
    rows.iter().filter_map(cell).collect::<Vec<_>>().join(" ")
}

/// `number` in units of `least`.
fn relative(number: f64, least: f64) -> String {
    match (number == 0.0, least == 0.0) {
        (true, true) => "0".to_owned(),
        (false, true) => "∞".to_owned(),
        _ => format!("{:.2}", number / least),
    }
}
