//! A part: samples that do not change any more, in a sealed file or in memory.
//!
//! A part is sorted by topic and lists the number of rows of each series, so the position of a row gives
//! its series: no column of texts is read.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};

use super::block::{Block, Stretch};
use super::chunks::Chunks;
use super::column::{Column, is_schema};
use super::error::{Error, io_at};
use super::pages::{narrow_to_pages, times_of};
use super::selection::Selection;
use super::series::{Samples, Series};
use super::series_list;

/// Samples that do not change any more.
#[derive(Debug)]
pub struct Part {
    stretches: Vec<Stretch>,
    rows: u64,
    data: Data,
}

#[derive(Debug)]
enum Data {
    Memory(Arc<Samples>),
    File { path: PathBuf, metadata: Box<ParquetMetaData>, groups: Vec<Range<u64>> },
}

impl Part {
    /// Opens a sealed part.
    ///
    /// # Errors
    /// The file cannot be read, or is not a part.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(io_at(path, "it cannot be opened"))?;
        let reader = ParquetMetaDataReader::new();
        let reader = reader.with_page_index_policy(PageIndexPolicy::Optional);
        let damaged = |e| Error::damaged(path, &e);
        let metadata = Box::new(reader.parse_and_finish(&file).map_err(damaged)?);
        if !is_schema(metadata.file_metadata().schema_descr()).map_err(damaged)? {
            return Err(Error::damaged(path, &"its columns are not those of a part"));
        }
        let lines = metadata.file_metadata().key_value_metadata().and_then(|pairs| {
            pairs.iter().find(|pair| pair.key == series_list::KEY)?.value.as_deref()
        });
        let lines = lines.ok_or_else(|| Error::damaged(path, &"it does not list its series"))?;
        let stretches = series_list::read(lines)
            .ok_or_else(|| Error::damaged(path, &"its list of series is damaged"))?;
        let (mut groups, mut rows) = (Vec::new(), 0);
        for group in metadata.row_groups() {
            let count = u64::try_from(group.num_rows()).unwrap_or(0);
            groups.push(rows..rows + count);
            rows += count;
        }
        let listed = stretches.last().map_or(0, |last| last.range().end);
        if listed != rows {
            return Err(Error::damaged(path, &"its rows differ from its list of series"));
        }
        let data = Data::File { path: path.to_path_buf(), metadata, groups };
        Ok(Self { stretches, rows, data })
    }

    /// Makes a part of samples in memory.
    pub fn of_samples(all: Vec<(Series, Samples)>) -> Self {
        Self::of_block(Block::new(all))
    }

    pub(super) fn of_block(block: Block) -> Self {
        let rows = block.rows.len() as u64;
        Self { stretches: block.stretches, rows, data: Data::Memory(Arc::new(block.rows)) }
    }

    /// Returns its stretches, in the order of the rows.
    #[inline]
    pub fn stretches(&self) -> &[Stretch] {
        &self.stretches
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the number of groups, which can be read side by side.
    pub fn groups(&self) -> usize {
        match &self.data {
            Data::Memory(_) => 1,
            Data::File { groups, .. } => groups.len(),
        }
    }

    /// Returns true if a group may have wanted rows, as far as its metadata shows.
    pub fn may_have(&self, group: usize, selection: &Selection) -> bool {
        let Data::File { metadata, groups, .. } = &self.data else {
            return !selection.stretches.is_empty();
        };
        let may_be_then = times_of(metadata.row_group(group)).is_none_or(|(from, to)| {
            from <= *selection.times.end() && to >= *selection.times.start()
        });
        may_be_then && !selection.pieces(&self.stretches, &groups[group]).is_empty()
    }

    /// Reads the wanted rows of one group.
    ///
    /// # Errors
    /// The file cannot be opened, or its metadata do not fit.
    pub fn read(
        &self,
        group: usize,
        columns: &[Column],
        selection: &Selection,
    ) -> Result<Chunks, Error> {
        match &self.data {
            Data::Memory(rows) => {
                let wanted = selection.pieces(&self.stretches, &(0..self.rows));
                Ok(Chunks::of_memory(rows, columns, wanted, selection.times.clone()))
            }
            Data::File { path, metadata, groups } => {
                let rows = &groups[group];
                let mut wanted = selection.pieces(&self.stretches, rows);
                narrow_to_pages(&mut wanted, metadata, group, &selection.times);
                Chunks::of_file(path, metadata, group, columns, wanted, selection.times.clone())
            }
        }
    }
}
