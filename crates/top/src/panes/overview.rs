//! The overview: the most important numbers on a screen of any size.
//!
//! Blocks share the rows. Each gets its least number of rows, the important blocks first; the rest
//! is dealt out row by row until all have their greatest number.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use skopos_model::Topic;
use skopos_model::schema::{fs, netdev, remote_fs};

use super::parts::absent;
use super::{
    cgroups, cpu, damaged, disks, files, findings, full, memory, network, paths, slow_device,
    system, topics,
};
use crate::data::Data;
use crate::draw::{graph, put, put_right};
use crate::history;
use crate::table::Table;
use crate::theme::Theme;

/// The least width for blocks in two columns.
const TWO_COLUMNS: u16 = 110;
/// The least width for file systems and network side by side.
const SIDE_BY_SIDE: u16 = 72;
/// The least and the greatest number of rows of a history, including its heading.
const GRAPH_ROWS: (u16, u16) = (3, 10);
/// Number of rows for the meters that are always shown: processor, memory, swap.
const LEAST_METERS: u16 = 4;
/// The least number of rows of a table, if it is shown.
const LEAST_ROWS: u16 = 2;
/// The most control groups; the greatest users are shown.
const MAX_CGROUPS: u16 = 10;

/// The least rank of histories, which get the rows that are left.
const HISTORY: u8 = 10;

/// Draws into some area.
type Draw<'a> = Box<dyn Fn(&mut Buffer, Rect) + 'a>;

/// A part of the screen.
struct Block<'a> {
    /// With fewer rows the block is left out.
    least: u16,
    most: u16,
    /// In a low terminal, blocks with the greatest rank are left out first.
    rank: u8,
    draw: Draw<'a>,
}

/// Draws the overview into `area`.
pub(crate) fn draw(data: &Data, theme: Theme, buffer: &mut Buffer, area: Rect) {
    if data.facts.iter().all(|fact| fact.value.is_none()) {
        let text = "Nothing has been published yet.";
        put(buffer, area, 1, &Line::styled(format!("  {text}"), absent(theme)));
        return;
    }
    if area.width < TWO_COLUMNS {
        let mut blocks = meters(data, theme, area.width);
        blocks.extend(graph_block(data, theme, "cpu busy", cpu::history(data), HISTORY));
        let used = memory::history(data);
        blocks.extend(graph_block(data, theme, "memory used", used, HISTORY + 1));
        blocks.push(disk_block(data, theme));
        blocks.extend(graph_block(data, theme, "disk busy", disks::history(data), HISTORY + 3));
        blocks.extend(halves(data, theme, area.width));
        let received = network::history(data);
        blocks.extend(graph_block(data, theme, "received", received, HISTORY + 2));
        blocks.push(published_block(data, theme));
        stack(blocks, buffer, area);
        return;
    }
    let left = Rect { width: area.width / 2 - 1, ..area };
    let right = Rect { x: area.x + area.width / 2 + 1, width: area.width.div_ceil(2) - 1, ..area };
    let mut blocks = meters(data, theme, left.width);
    blocks.extend(graph_block(data, theme, "cpu busy", cpu::history(data), HISTORY));
    blocks.extend(graph_block(data, theme, "memory used", memory::history(data), HISTORY + 1));
    blocks.push(disk_block(data, theme));
    blocks.extend(graph_block(data, theme, "disk busy", disks::history(data), HISTORY + 3));
    stack(blocks, buffer, left);
    let mut blocks = vec![network_block(data, theme)];
    blocks.extend(graph_block(data, theme, "received", network::history(data), HISTORY + 2));
    blocks.push(files_block(data, theme));
    blocks.push(cgroups_block(data, theme));
    blocks.push(published_block(data, theme));
    stack(blocks, buffer, right);
}

/// The lines with meters and numbers.
fn meters<'a>(data: &'a Data, theme: Theme, width: u16) -> Vec<Block<'a>> {
    let found = findings::line(data, theme, width.into());
    let is_raised = !data.findings.present.is_empty();
    // Findings come first; if there is none at present, their line comes last.
    let mut lines: Vec<_> = found.iter().filter(|_| is_raised).cloned().collect();
    lines.extend(full::line(data, theme, width.into()));
    lines.extend(damaged::line(data, theme, width.into()));
    lines.extend(paths::line(data, theme, width.into()));
    lines.extend(slow_device::line(data, theme, width.into()));
    let warnings = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    lines.extend(cpu::meters(data, theme, width.into()));
    lines.extend(memory::meters(data, theme, width.into()));
    lines.extend(cpu::load(data, theme, width.into()));
    lines.extend(cpu::pressure(data, theme, width.into()));
    lines.extend(network::tcp(data, theme, width.into()));
    lines.extend(system::processes(data, theme, width.into()));
    lines.extend(system::stretched(data, theme, width.into()));
    lines.extend(found.filter(|_| !is_raised));
    let rows = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    let draw: Draw<'a> = Box::new(move |buffer, area| {
        for (row, line) in lines.iter().enumerate() {
            put(buffer, area, row as u16, line);
        }
    });
    let least = LEAST_METERS.saturating_add(warnings);
    vec![Block { least: rows.min(least), most: rows, rank: 0, draw }]
}

fn disk_block(data: &Data, theme: Theme) -> Block<'_> {
    let count = disks::whole(data, usize::MAX).rows.len();
    table_block(theme, 2, count, move |room| disks::whole(data, room))
}

fn files_block(data: &Data, theme: Theme) -> Block<'_> {
    let families = [&fs::FAMILY, &remote_fs::FAMILY];
    let count = families.map(|family| data.instances(family).count()).iter().sum();
    table_block(theme, 3, count, move |room| files::fullest(data, room))
}

fn network_block(data: &Data, theme: Theme) -> Block<'_> {
    let count = data.instances(&netdev::FAMILY).count();
    table_block(theme, 3, count, move |room| network::busiest(data, room))
}

fn published_block(data: &Data, theme: Theme) -> Block<'_> {
    table_block(theme, 1, data.published().len(), move |room| topics::published(data, room))
}

fn cgroups_block(data: &Data, theme: Theme) -> Block<'_> {
    let count = cgroups::busiest(data).rows.len();
    let mut block = table_block(theme, 4, count, move |_| cgroups::busiest(data));
    block.most = block.most.min(MAX_CGROUPS);
    block
}

/// File systems and network, side by side if the screen is wide enough.
fn halves(data: &Data, theme: Theme, width: u16) -> Vec<Block<'_>> {
    let (left, right) = (files_block(data, theme), network_block(data, theme));
    if width < SIDE_BY_SIDE || left.most == 0 || right.most == 0 {
        return vec![left, right];
    }
    let draw: Draw<'_> = Box::new(move |buffer, area| {
        // Two rates need more room than a share and an amount.
        let half = area.width * 9 / 20;
        (left.draw)(buffer, Rect { width: half, ..area });
        let rest = Rect { x: area.x + half + 1, width: area.width - half - 1, ..area };
        (right.draw)(buffer, rest);
    });
    vec![Block { least: left.least, most: left.most.max(right.most), rank: 3, draw }]
}

fn table_block<'a>(
    theme: Theme,
    rank: u8,
    rows: usize,
    table: impl Fn(usize) -> Table + 'a,
) -> Block<'a> {
    // A heading needs a row, and a row that only says "more" is useless.
    let rows = u16::try_from(rows).unwrap_or(u16::MAX - 1);
    let (least, most) = if rows == 0 { (0, 0) } else { (rows.min(LEAST_ROWS) + 1, rows + 1) };
    let draw: Draw<'a> = Box::new(move |buffer, area| {
        let room = usize::from(area.height.saturating_sub(1));
        table(room).draw(buffer, area, theme, None);
    });
    Block { least, most, rank, draw }
}

/// The history of a topic, as far back as the ring reaches.
fn graph_block<'a>(
    data: &'a Data,
    theme: Theme,
    title: &'static str,
    topic: Option<Topic>,
    rank: u8,
) -> Option<Block<'a>> {
    let topic = topic?;
    let draw: Draw<'a> = Box::new(move |buffer, area| {
        let columns = usize::from(area.width.saturating_sub(2));
        let Some(series) = history::series(data, &topic, columns) else { return };
        let top = series.top();
        // The instance, where the title is not enough.
        let of = topic.as_str().rsplit('/').nth(1).filter(|_| topic.segments().count() > 3);
        let of = of.filter(|of| *of != "total").map_or_else(String::new, |of| format!(" {of}"));
        put(buffer, area, 0, &Line::styled(format!(" {title}{of}"), theme.title()));
        let scale = format!("0 to {}, last {} ", series.show(top), series.reach());
        put_right(buffer, area, 0, &Line::styled(scale, theme.quiet()));
        let below = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
        let inner = Rect { x: area.x + 1, width: area.width.saturating_sub(2), ..below };
        graph(buffer, inner, theme, &series.values, (0.0, top));
    });
    Some(Block { least: GRAPH_ROWS.0, most: GRAPH_ROWS.1, rank, draw })
}

/// Shares the rows of `area` among the blocks, and draws them from top to bottom.
fn stack(blocks: Vec<Block<'_>>, buffer: &mut Buffer, area: Rect) {
    let area = area.intersection(buffer.area);
    let wishes: Vec<_> = blocks.iter().map(|b| (b.least, b.most, b.rank)).collect();
    let heights = share_rows(&wishes, area.height);
    let shown = heights.iter().filter(|h| **h > 0).count() as u16;
    let used: u16 = heights.iter().sum();
    // A blank line between blocks, if there are rows left for it.
    let gap = u16::from(area.height - used >= shown.saturating_sub(1));
    let mut y = area.y;
    for (block, height) in blocks.iter().zip(heights).filter(|(_, height)| *height > 0) {
        (block.draw)(buffer, Rect { y, height, ..area }.intersection(area));
        y = y.saturating_add(height + gap);
    }
}

/// Shares rows among blocks of `(least, most, rank)`. Histories come after all others.
fn share_rows(wishes: &[(u16, u16, u8)], rows: u16) -> Vec<u16> {
    let mut heights = vec![0; wishes.len()];
    let mut left = rows;
    for is_history in [false, true] {
        let of_round = |i: &usize| wishes[*i].1 > 0 && (wishes[*i].2 >= HISTORY) == is_history;
        let mut order: Vec<usize> = (0..wishes.len()).filter(of_round).collect();
        order.sort_by_key(|&i| wishes[i].2);
        for &index in &order {
            if wishes[index].0 <= left {
                heights[index] = wishes[index].0;
                left -= wishes[index].0;
            }
        }
        // The meters get all of their rows before the tables grow.
        if let Some(&first) = order.first().filter(|&&first| wishes[first].2 == 0) {
            let more = (wishes[first].1 - heights[first]).min(left);
            heights[first] += more;
            left -= more;
        }
        while left > 0 {
            let wants = |&&i: &&usize| heights[i] > 0 && heights[i] < wishes[i].1;
            let Some(&index) = order.iter().filter(wants).min_by_key(|&&i| heights[i]) else {
                break;
            };
            heights[index] += 1;
            left -= 1;
        }
    }
    heights
}

/// The topics whose history the overview needs.
pub(crate) fn histories(data: &Data) -> Vec<Topic> {
    let topics = [cpu::history(data), memory::history(data), disks::history(data)];
    let topics = topics.into_iter().flatten().chain(network::history(data));
    topics.chain(full::histories(data)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_shared_by_importance() {
        let check = |rows, expected: &[u16]| {
            let wishes = [(1, 8, 0), (2, 4, 2), (2, 5, 3), (2, 9, 1), (3, 7, HISTORY)];
            assert_eq!(share_rows(&wishes, rows), expected, "{rows} rows");
        };
        check(0, &[0, 0, 0, 0, 0]);
        check(4, &[2, 0, 0, 2, 0]);
        check(14, &[8, 2, 2, 2, 0]);
        check(20, &[8, 4, 4, 4, 0]);
        check(28, &[8, 4, 5, 9, 0]);
        check(30, &[8, 4, 5, 9, 4]);
        check(99, &[8, 4, 5, 9, 7]);
    }
}
