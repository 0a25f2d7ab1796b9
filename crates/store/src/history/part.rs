//! A part: samples that do not change any more, in a sealed file or in memory.
//!
//! A part is sorted by topic and lists the number of rows of each series, so the position of a row gives
//! its series: no column of texts is read.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};

use super::block::{Block, Stretch};
use super::chunks::{Chunks, with_time};
use super::column::{Column, is_schema};
use super::file::GroupReader;
use super::pages::{narrow_to_pages, times_of};
use super::seal::PartName;
use super::selection::Selection;
use super::series::{Samples, Series};
use super::series_list;
use crate::log::{Disk, Error, OsDisk, io_at};
use crate::sealed::{self, Blocks, failed};

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
    File(Box<Sealed>),
}

/// A sealed file.
#[derive(Debug)]
struct Sealed {
    path: PathBuf,
    metadata: ParquetMetaData,
    /// The rows of each group.
    groups: Vec<Range<u64>>,
    blocks: Arc<Blocks>,
}

impl Part {
    /// Opens a sealed part.
    ///
    /// # Errors
    /// The file cannot be read, or is not a part.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::open_on(&OsDisk, path)
    }

    pub(super) fn open_on(disk: &dyn Disk, path: &Path) -> Result<Self, Error> {
        let damaged = |e: ParquetError| Error::damaged(path, &e);
        let because = |why: &str| Error::damaged(path, &why);
        let name = path.file_name().and_then(|name| name.to_str()).and_then(PartName::parse);
        let name = name.ok_or_else(|| because("its name is not that of a part"))?;
        let file = disk.open_to_read(path).map_err(io_at(path, "it cannot be opened"))?;
        let tail = sealed::tail(&*file, (name.tail, name.sum), &name.covered());
        let tail = tail.map_err(|e| failed(path, e.into()))?;
        let tail = tail.ok_or_else(|| because("the checksum of its metadata is wrong"))?;
        let reader = ParquetMetaDataReader::new();
        let reader = reader.with_page_index_policy(PageIndexPolicy::Optional);
        let metadata = reader.parse_and_finish(&tail).map_err(damaged)?;
        if !is_schema(metadata.file_metadata().schema_descr()).map_err(damaged)? {
            return Err(because("its columns are not those of a part"));
        }
        let stored = |key: &str| {
            let pairs = metadata.file_metadata().key_value_metadata()?;
            pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
        };
        let list = stored(series_list::KEY).and_then(series_list::read);
        let stretches = list.ok_or_else(|| because("its list of series is damaged"))?;
        let sums = stored(sealed::KEY).and_then(|sums| Blocks::new(file.into(), sums, tail.at));
        let blocks = Arc::new(sums.ok_or_else(|| because("its list of checksums is damaged"))?);
        let (mut groups, mut rows) = (Vec::new(), 0u64);
        for group in metadata.row_groups() {
            let count = u64::try_from(group.num_rows()).unwrap_or(0);
            groups.push(rows..rows.saturating_add(count));
            rows = rows.saturating_add(count);
        }
        let listed = stretches.last().map_or(0, |last| last.range().end);
        if listed != rows {
            return Err(because("its rows differ from its list of series"));
        }
        let sealed = Sealed { path: path.to_path_buf(), metadata, groups, blocks };
        Ok(Self { stretches, rows, data: Data::File(Box::new(sealed)) })
    }

    /// Checks all bytes of a sealed part.
    ///
    /// # Errors
    /// The file is damaged, or it cannot be read.
    pub(super) fn verify(disk: &dyn Disk, path: &Path) -> Result<(), Error> {
        match Self::open_on(disk, path)?.data {
            Data::Memory(_) => Ok(()),
            Data::File(sealed) => sealed.blocks.check().map_err(|e| failed(path, e)),
        }
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
            Data::File(sealed) => sealed.groups.len(),
        }
    }

    /// Returns true if a group may have wanted rows, as far as its metadata shows.
    pub fn may_have(&self, group: usize, selection: &Selection) -> bool {
        let Data::File(sealed) = &self.data else { return !selection.stretches.is_empty() };
        let Sealed { metadata, groups, .. } = &**sealed;
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
            Data::File(sealed) => {
                let Sealed { path, metadata, groups, blocks } = &**sealed;
                let rows = &groups[group];
                let mut wanted = selection.pieces(&self.stretches, rows);
                narrow_to_pages(&mut wanted, metadata, group, &selection.times);
                if wanted.is_empty() {
                    return Ok(Chunks::nothing());
                }
                let columns = with_time(columns, &wanted);
                let reader = GroupReader::open(blocks, metadata, group, &columns);
                let reader = reader.map_err(|e| failed(path, e))?;
                Ok(Chunks::of_file(path, reader, wanted, selection.times.clone()))
            }
        }
    }
}
