//! The plain table: a line for each row of the run.

use super::figure::figure;
use super::glob::{Selector, list};
use super::marker::Marker;
use super::run::{Row, Run};

const COLUMNS: &str = "case | metric | skopos | peers | unit | ratio | goal | met";

/// Columns whose cells stand to the left.
const LEFT: &[&str] = &["case", "metric", "unit", "met"];

/// The rows that the marker chooses: in the order of its selectors, each in the order of the run.
pub(super) fn chosen<'a>(marker: &Marker<'_>, run: &'a Run) -> Result<Vec<&'a Row>, String> {
    let without = Selector::list(marker.option("without").unwrap_or_default());
    let kept = |row: &&Row| !without.iter().any(|selector| selector.matches(row));
    let Some(text) = marker.option("rows") else {
        return Ok(run.rows.iter().filter(kept).collect());
    };
    let mut chosen = Vec::new();
    for (selector, text) in Selector::list(text).iter().zip(list(text)) {
        let before = chosen.len();
        chosen.extend(run.rows.iter().filter(kept).filter(|row| selector.matches(row)));
        if chosen.len() == before {
            return Err(format!("no row of {} is `{text}`", run.path));
        }
    }
    Ok(chosen)
}

/// The names of the peers in the order in which rows name them.
pub(super) fn peers<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    let mut peers: Vec<&str> = Vec::new();
    for name in rows.iter().flat_map(|row| row.peers.keys()) {
        if !peers.contains(&name.as_str()) {
            peers.push(name);
        }
    }
    peers
}

/// Lines of Markdown. Without `columns` those that have no cell are left out.
pub(super) fn lines(marker: &Marker<'_>, rows: &[&Row]) -> Result<Vec<String>, String> {
    let peers = peers(rows);
    let wanted = marker.option("columns");
    let mut columns: Vec<&str> = Vec::new();
    for column in list(wanted.unwrap_or(COLUMNS)) {
        match column {
            "peers" => columns.extend(&peers),
            _ if list(COLUMNS).any(|known| known == column) || peers.contains(&column) => {
                columns.push(column);
            }
            _ => return Err(format!("`{column}` is not a column or a peer of these rows")),
        }
    }
    let is_filled = |column: &&str| rows.iter().any(|row| !cell(row, column).is_empty());
    if wanted.is_none() {
        columns.retain(is_filled);
    }
    let ours = marker.option("skopos").unwrap_or("Skopos");
    let heads: Vec<&str> = columns.iter().map(|c| if *c == "skopos" { ours } else { c }).collect();
    let sides = columns.iter().map(|c| if LEFT.contains(c) { "---" } else { "---:" });
    let mut lines = vec![line(&heads), format!("|{}|", sides.collect::<Vec<_>>().join("|"))];
    for row in rows {
        let cells: Vec<String> = columns.iter().map(|column| cell(row, column)).collect();
        lines.push(line(&cells));
    }
    Ok(lines)
}

fn cell(row: &Row, column: &str) -> String {
    match column {
        "case" => row.case.clone(),
        "metric" => row.metric.clone(),
        "skopos" => format!("**{}**", row.value.cell()),
        "unit" => row.unit.clone(),
        "ratio" => row.ratio.map_or_else(String::new, |ratio| format!("{}x", figure(ratio))),
        "goal" => row.goal.clone().unwrap_or_default(),
        "met" => match row.met {
            Some(true) => "yes".to_owned(),
            Some(false) => "**no**".to_owned(),
            None => String::new(),
        },
        peer => row.peers.get(peer).map_or_else(String::new, |figure| figure.cell()),
    }
}

/// One line of a Markdown table.
pub(super) fn line<T: AsRef<str>>(cells: &[T]) -> String {
    let cells: Vec<&str> = cells.iter().map(AsRef::as_ref).collect();
    format!("| {} |", cells.join(" | "))
}
