//! A scan of pieces as a message between hubs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use datafusion::common::{exec_err, internal_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use prost::Message as _;
use skopos_model::Timestamp;

use super::exec::PiecesExec;
use crate::column::schema_of;
use crate::scan::Scan;
use crate::table::Table;
use crate::tables::topic_filter;

/// The most streams of a scan that another hub sends: more than there are cores.
const MAX_PARTITIONS: usize = 1024;

/// The tables in pieces of this hub, by name.
pub(crate) type Pieced = Arc<BTreeMap<String, Arc<dyn Table>>>;

/// Writes and reads scans of pieces, of these tables alone.
#[derive(Clone)]
pub(crate) struct PieceCodec(pub(crate) Pieced);

impl fmt::Debug for PieceCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct Encoded {
    #[prost(string, tag = "1")]
    table: String,
    #[prost(uint32, repeated, tag = "2")]
    columns: Vec<u32>,
    #[prost(message, repeated, tag = "3")]
    partitions: Vec<Partition>,
    #[prost(message, repeated, tag = "4")]
    times: Vec<Times>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Partition {
    #[prost(bytes = "vec", repeated, tag = "1")]
    pieces: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Times {
    #[prost(string, tag = "1")]
    column: String,
    #[prost(sint64, tag = "2")]
    from: i64,
    #[prost(sint64, tag = "3")]
    to: i64,
}

impl PhysicalExtensionCodec for PieceCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let wrong = |e| DataFusionError::External(Box::new(e));
        let Encoded { table, columns, partitions, times } =
            Encoded::decode(bytes).map_err(wrong)?;
        let Some(table) = self.0.get(&table).filter(|_| inputs.is_empty()) else {
            return exec_err!("the table of a plan is not one that hubs read together");
        };
        let all = schema_of(table.columns());
        let columns: Vec<usize> = columns.into_iter().map(|at| at as usize).collect();
        if partitions.len() > MAX_PARTITIONS || columns.len() > all.fields().len() {
            return exec_err!("a scan has too many streams or columns");
        }
        let range = |Times { column, from, to }| {
            (column, Timestamp::from_nanos(from)..=Timestamp::from_nanos(to))
        };
        let scan = Scan {
            // A column that the table does not have is an error.
            schema: Arc::new(all.project(&columns)?),
            columns,
            topics: topic_filter(&[]),
            times: times.into_iter().map(range).collect(),
            equals: Vec::new(),
            numbers: Vec::new(),
            calls: Vec::new(),
            limit: None,
            context: None,
        };
        let partitions = partitions.into_iter().map(|partition| partition.pieces).collect();
        Ok(Arc::new(PiecesExec::of(table.clone(), scan, partitions)))
    }

    fn try_encode(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let Some(exec) = plan.downcast_ref::<PiecesExec>() else {
            return internal_err!("{} cannot be sent to another hub", plan.name());
        };
        let times = exec.scan.times.iter().map(|(column, range)| Times {
            column: column.clone(),
            from: range.start().as_nanos(),
            to: range.end().as_nanos(),
        });
        let columns = exec.scan.columns.iter().map(|at| u32::try_from(*at).unwrap_or(u32::MAX));
        let partition = |pieces: &Vec<Vec<u8>>| Partition { pieces: pieces.clone() };
        let encoded = Encoded {
            table: exec.table.name().to_owned(),
            columns: columns.collect(),
            partitions: exec.partitions.iter().map(partition).collect(),
            times: times.collect(),
        };
        encoded.encode(bytes).map_err(|e| DataFusionError::External(Box::new(e)))
    }
}
