//! Statistics in the metadata of a part, which show that rows need not be read.

use std::ops::RangeInclusive;

use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::statistics::Statistics;

use super::column::{Column, TEXT_COLUMNS};
use super::selection::Piece;

/// Leaves out pages without wanted times.
pub(super) fn narrow_to_pages(
    wanted: &mut Vec<Piece>,
    metadata: &ParquetMetaData,
    group: usize,
    times: &RangeInclusive<i64>,
) {
    let time = TEXT_COLUMNS + Column::Time as usize;
    let pages = metadata.offset_index().and_then(|index| index.get(group)?.get(time));
    let index = metadata.column_index().and_then(|index| index.get(group)?.get(time));
    let (Some(pages), Some(ColumnIndexMetaData::INT64(index))) = (pages, index) else { return };
    let group_rows = usize::try_from(metadata.row_group(group).num_rows()).unwrap_or(0);
    let starts: Vec<usize> = pages
        .page_locations()
        .iter()
        .map(|page| usize::try_from(page.first_row_index).unwrap_or(0))
        .chain([group_rows])
        .collect();
    let mut kept = Vec::with_capacity(wanted.len());
    for piece in wanted.drain(..) {
        if piece.is_whole {
            kept.push(piece);
            continue;
        }
        for (page, bounds) in starts.windows(2).enumerate() {
            let rows = piece.rows.start.max(bounds[0])..piece.rows.end.min(bounds[1]);
            let is_then = match (index.min_value(page), index.max_value(page)) {
                (Some(from), Some(to)) => from <= times.end() && to >= times.start(),
                _ => true,
            };
            if !rows.is_empty() && is_then {
                kept.push(Piece { rows, ..piece.clone() });
            }
        }
    }
    *wanted = kept;
}

/// Returns the first and the last time of a row group.
pub(super) fn times_of(group: &RowGroupMetaData) -> Option<(i64, i64)> {
    match group.column(TEXT_COLUMNS + Column::Time as usize).statistics()? {
        Statistics::Int64(times) => Some((*times.min_opt()?, *times.max_opt()?)),
        _ => None,
    }
}
