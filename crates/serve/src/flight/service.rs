//! Answers statements, prepared statements and listings of the catalog.

use std::future::ready;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::sql::server::{FlightSqlService, PeekableFlightDataStream};
use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest,
    ActionCreatePreparedStatementResult, Any, CommandGetCatalogs, CommandGetCrossReference,
    CommandGetDbSchemas, CommandGetExportedKeys, CommandGetImportedKeys, CommandGetPrimaryKeys,
    CommandGetSqlInfo, CommandGetTableTypes, CommandGetTables, CommandGetXdbcTypeInfo,
    CommandPreparedStatementQuery, CommandPreparedStatementUpdate, CommandStatementIngest,
    CommandStatementQuery, CommandStatementUpdate, DoPutPreparedStatementResult, ProstMessageExt,
    SqlInfo, TicketStatementQuery,
};
use arrow_flight::{
    Action, FlightDescriptor, FlightEndpoint, FlightInfo, IpcMessage, SchemaAsIpc, Ticket,
};
use futures_util::TryStreamExt as _;
use prost::Message as _;
use prost::bytes::Bytes;
use skopos_access::Caller;
use skopos_query::arrow::array::{RecordBatch, RecordBatchOptions};
use skopos_query::arrow::datatypes::Schema;
use skopos_query::arrow::ipc::writer::IpcWriteOptions;
use skopos_query::{Engine, Limits, Stream};
use tokio::time::timeout;
use tonic::{Request, Response, Status};

use super::catalog::{self, Keys};
use super::flow::{self, Flow, plain};
use super::handle::Handle;
use super::info::{SQL_INFO, TYPES};
use super::plain_data::refusal;
use super::prepared::{Bound, Statements};
use super::put::{Acknowledgements, Streams, put};
use super::status;
use skopos_hub::counts::Counts;
use skopos_hub::jobs::JobsPlace;

/// Limits of a query. Answers are streamed, so they may be long: ten million rows are some hundred megabytes.
const LIMITS: Limits = Limits { deadline: Duration::from_secs(60), rows: 10_000_000, threads: 0 };

/// Number of messages that carry the values of a statement: a schema, the row, and some that are empty.
const MAX_VALUE_MESSAGES: usize = 4;

/// Time in which a client sends the values of a statement.
const VALUES_TIME: Duration = Duration::from_secs(10);

/// The service with all requests of Flight SQL.
pub(super) struct SqlService {
    engine: Arc<Engine>,
    jobs: Arc<JobsPlace>,
    counts: Arc<Counts>,
    statements: Statements,
    puts: Streams,
    /// Identifier of this hub: handles of an earlier hub at this address are unknown.
    hub: u64,
}

/// The response to one request.
type Answer<T> = Result<Response<T>, Status>;

impl SqlService {
    /// Answers from `engine`, and stores records in `jobs`.
    pub(super) fn new(engine: Arc<Engine>, jobs: Arc<JobsPlace>, counts: Arc<Counts>) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            engine,
            jobs,
            counts,
            statements: Statements::default(),
            puts: Streams::default(),
            hub: u64::try_from(since.as_nanos()).unwrap_or_default(),
        }
    }

    /// Returns the columns of the statement in `command`; `None` if the command is not a statement.
    pub(super) async fn schema_of(
        &self,
        caller: &Caller,
        command: &Any,
    ) -> Option<Result<Arc<Schema>, Status>> {
        if let Ok(Some(query)) = command.unpack::<CommandStatementQuery>() {
            let schema = self.engine.describe(caller, &query.query).await;
            return Some(schema.map(|s| plain(&s)).map_err(|e| status::of(&e)));
        }
        let query = command.unpack::<CommandPreparedStatementQuery>().ok()??;
        let bound = self.find(caller, &query.prepared_statement_handle);
        Some(bound.map(|bound| plain(bound.prepared.schema())))
    }

    fn find(&self, caller: &Caller, handle: &[u8]) -> Result<Bound, Status> {
        self.statements.find(caller, self.number(handle)?).ok_or_else(status::unknown_handle)
    }

    fn number(&self, handle: &[u8]) -> Result<u64, Status> {
        match Handle::decode(handle) {
            Some(Handle::Prepared { hub, number }) if hub == self.hub => Ok(number),
            Some(Handle::Prepared { .. }) => Err(status::unknown_handle()),
            _ => Err(Status::invalid_argument("the handle is not one of a prepared statement")),
        }
    }

    /// Returns the description of an answer, with the ticket that fetches it.
    fn info<T: ProstMessageExt>(
        schema: &Schema,
        ticket: &T,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        let ticket = Ticket::new(ticket.as_any().encode_to_vec());
        let info = FlightInfo::new()
            .try_with_schema(schema)
            .map_err(|e| Status::internal(e.to_string()))?
            .with_endpoint(FlightEndpoint::new().with_ticket(ticket))
            .with_descriptor(request.into_inner());
        Ok(Response::new(info))
    }

    /// Sends an answer: that of a small point read at once.
    async fn run(
        &self,
        point: Option<skopos_query::Answer>,
        answer: impl Future<Output = Result<Stream, skopos_query::Error>> + Send,
    ) -> Answer<Flow> {
        let running = self.counts.run();
        if let Some(answer) = point {
            let is_held = answer.is_held();
            let answer = Stream::of(answer, &LIMITS).map_err(|e| status::of(&e))?;
            if is_held {
                return Ok(Response::new(flow::send(answer, running, &LIMITS)));
            }
            running.done();
            return Ok(Response::new(flow::at_once(answer)));
        }
        match answer.await {
            Ok(answer) => Ok(Response::new(flow::send(answer, running, &LIMITS))),
            Err(e) => {
                running.done();
                Err(status::of(&e))
            }
        }
    }
}

/// Returns the caller that the guard has found.
pub(super) fn caller_of<T>(request: &Request<T>) -> Caller {
    request.extensions().get().cloned().unwrap_or(Caller::Stranger)
}

/// Sends a listing.
fn listing(batch: Result<RecordBatch, FlightError>) -> Answer<Flow> {
    let batch = batch.map_err(|e| Status::invalid_argument(e.to_string()))?;
    Ok(Response::new(flow::whole(batch)))
}

/// Returns a constant answer. A failure to build it is a bug.
fn constant<T>(built: &'static Result<T, FlightError>) -> Result<&'static T, Status> {
    built.as_ref().map_err(|e| Status::internal(e.to_string()))
}

/// Returns an empty row, for statements without parameters.
fn no_values() -> RecordBatch {
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let empty = Arc::new(Schema::empty());
    RecordBatch::try_new_with_options(empty.clone(), Vec::new(), &options)
        .unwrap_or_else(|_| RecordBatch::new_empty(empty))
}

/// Reads the row of values that a client sends.
async fn values(stream: PeekableFlightDataStream) -> Result<RecordBatch, Status> {
    let refused = |e: FlightError| match e {
        FlightError::Tonic(status) => *status,
        other => Status::invalid_argument(format!("the values are not valid: {other}")),
    };
    let mut messages = 0;
    let data = stream.into_peekable().map_err(FlightError::from).and_then(move |data| {
        messages += 1;
        let too_many = "the values are sent in too many messages";
        let reason = refusal(&data).or((messages > MAX_VALUE_MESSAGES).then_some(too_many));
        ready(reason.map_or(Ok(data), |reason| Err(Status::invalid_argument(reason).into())))
    });
    let mut batches = FlightRecordBatchStream::new_from_flight_data(data);
    let mut found: Option<RecordBatch> = None;
    while let Some(batch) = batches.try_next().await.map_err(refused)? {
        let rows = batch.num_rows() + found.as_ref().map_or(0, RecordBatch::num_rows);
        if rows > 1 {
            return Err(status::of(&skopos_query::Error::ParameterRows(rows)));
        }
        if batch.num_rows() == 1 || found.is_none() {
            found = Some(batch);
        }
    }
    found.ok_or_else(|| status::of(&skopos_query::Error::ParameterRows(0)))
}

#[tonic::async_trait]
impl FlightSqlService for SqlService {
    type FlightService = Self;

    async fn get_flight_info_statement(
        &self,
        query: CommandStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        let caller = caller_of(&request);
        let schema = self.engine.describe(&caller, &query.query).await;
        let schema = schema.map_err(|e| status::of(&e))?;
        let statement_handle = Handle::Statement(query.query).encode();
        Self::info(&plain(&schema), &TicketStatementQuery { statement_handle }, request)
    }

    async fn do_get_statement(
        &self,
        ticket: TicketStatementQuery,
        request: Request<Ticket>,
    ) -> Answer<Flow> {
        let caller = caller_of(&request);
        match Handle::decode(&ticket.statement_handle) {
            Some(Handle::Statement(sql)) => {
                let point = self.engine.read(&caller, &sql).await.map_err(|e| status::of(&e))?;
                self.run(point, self.engine.planned(&caller, &sql, &LIMITS)).await
            }
            _ => Err(Status::invalid_argument("the ticket is not one of a statement")),
        }
    }

    async fn do_action_create_prepared_statement(
        &self,
        query: ActionCreatePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        let caller = caller_of(&request);
        let prepared = self.engine.prepare(&caller, &query.query).await;
        let prepared = prepared.map_err(|e| status::of(&e))?;
        let (schema, parameters) = (plain(prepared.schema()), prepared.parameters().clone());
        let number = self.statements.add(caller, prepared);
        let handle = Handle::Prepared { hub: self.hub, number };
        Ok(ActionCreatePreparedStatementResult {
            prepared_statement_handle: handle.encode(),
            dataset_schema: encoded(&schema)?,
            parameter_schema: encoded(&parameters)?,
        })
    }

    async fn do_action_close_prepared_statement(
        &self,
        query: ActionClosePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<(), Status> {
        // An unknown or evicted statement counts as closed.
        if let Ok(number) = self.number(&query.prepared_statement_handle) {
            self.statements.remove(&caller_of(&request), number);
        }
        Ok(())
    }

    async fn do_put_prepared_statement_query(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<DoPutPreparedStatementResult, Status> {
        let number = self.number(&query.prepared_statement_handle)?;
        let caller = caller_of(&request);
        self.find(&caller, &query.prepared_statement_handle)?;
        let values = timeout(VALUES_TIME, values(request.into_inner())).await;
        let values =
            values.map_err(|_| Status::deadline_exceeded("the values came too slowly"))??;
        match self.statements.bind(&caller, number, values) {
            true => Ok(DoPutPreparedStatementResult {
                prepared_statement_handle: Some(query.prepared_statement_handle),
            }),
            false => Err(status::unknown_handle()),
        }
    }

    async fn get_flight_info_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        let caller = caller_of(&request);
        let Bound { prepared, values } = self.find(&caller, &query.prepared_statement_handle)?;
        let values = values.unwrap_or_else(no_values);
        let schema = self.engine.describe_prepared(&caller, &prepared, &values, &LIMITS).await;
        let schema = schema.map_err(|e| status::of(&e))?;
        Self::info(&plain(&schema), &query, request)
    }

    async fn do_get_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<Ticket>,
    ) -> Answer<Flow> {
        let caller = caller_of(&request);
        let Bound { prepared, values } = self.find(&caller, &query.prepared_statement_handle)?;
        let values = values.unwrap_or_else(no_values);
        let point = self.engine.read_prepared(&caller, &prepared, &values).await;
        let point = point.map_err(|e| status::of(&e))?;
        self.run(point, self.engine.stream_prepared(&caller, &prepared, &values, &LIMITS)).await
    }

    async fn get_flight_info_catalogs(
        &self,
        query: CommandGetCatalogs,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        Self::info(&query.into_builder().schema(), &query, request)
    }

    async fn do_get_catalogs(&self, query: CommandGetCatalogs, _: Request<Ticket>) -> Answer<Flow> {
        listing(catalog::catalogs(query))
    }

    async fn get_flight_info_schemas(
        &self,
        query: CommandGetDbSchemas,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        Self::info(&query.clone().into_builder().schema(), &query, request)
    }

    async fn do_get_schemas(&self, query: CommandGetDbSchemas, _: Request<Ticket>) -> Answer<Flow> {
        listing(catalog::schemas(query))
    }

    async fn get_flight_info_tables(
        &self,
        query: CommandGetTables,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        Self::info(&query.clone().into_builder().schema(), &query, request)
    }

    async fn do_get_tables(
        &self,
        query: CommandGetTables,
        request: Request<Ticket>,
    ) -> Answer<Flow> {
        listing(catalog::tables(&self.engine, &caller_of(&request), query).await)
    }

    async fn get_flight_info_table_types(
        &self,
        query: CommandGetTableTypes,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        Self::info(&query.into_builder().schema(), &query, request)
    }

    async fn do_get_table_types(
        &self,
        query: CommandGetTableTypes,
        _: Request<Ticket>,
    ) -> Answer<Flow> {
        listing(catalog::table_types(query))
    }

    async fn get_flight_info_sql_info(
        &self,
        query: CommandGetSqlInfo,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        Self::info(&constant(&SQL_INFO)?.schema(), &query, request)
    }

    async fn do_get_sql_info(&self, query: CommandGetSqlInfo, _: Request<Ticket>) -> Answer<Flow> {
        listing(query.into_builder(constant(&SQL_INFO)?).build())
    }

    async fn get_flight_info_xdbc_type_info(
        &self,
        query: CommandGetXdbcTypeInfo,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        Self::info(&constant(&TYPES)?.schema(), &query, request)
    }

    async fn do_get_xdbc_type_info(
        &self,
        query: CommandGetXdbcTypeInfo,
        _: Request<Ticket>,
    ) -> Answer<Flow> {
        listing(query.into_builder(constant(&TYPES)?).build())
    }

    async fn get_flight_info_primary_keys(
        &self,
        query: CommandGetPrimaryKeys,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        Self::info(&catalog::keys(Keys::Primary).schema(), &query, request)
    }

    async fn do_get_primary_keys(
        &self,
        _: CommandGetPrimaryKeys,
        _: Request<Ticket>,
    ) -> Answer<Flow> {
        listing(Ok(catalog::keys(Keys::Primary)))
    }

    async fn get_flight_info_exported_keys(
        &self,
        query: CommandGetExportedKeys,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        Self::info(&catalog::keys(Keys::Foreign).schema(), &query, request)
    }

    async fn do_get_exported_keys(
        &self,
        _: CommandGetExportedKeys,
        _: Request<Ticket>,
    ) -> Answer<Flow> {
        listing(Ok(catalog::keys(Keys::Foreign)))
    }

    async fn get_flight_info_imported_keys(
        &self,
        query: CommandGetImportedKeys,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        Self::info(&catalog::keys(Keys::Foreign).schema(), &query, request)
    }

    async fn do_get_imported_keys(
        &self,
        _: CommandGetImportedKeys,
        _: Request<Ticket>,
    ) -> Answer<Flow> {
        listing(Ok(catalog::keys(Keys::Foreign)))
    }

    async fn get_flight_info_cross_reference(
        &self,
        query: CommandGetCrossReference,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        Self::info(&catalog::keys(Keys::Foreign).schema(), &query, request)
    }

    async fn do_get_cross_reference(
        &self,
        _: CommandGetCrossReference,
        _: Request<Ticket>,
    ) -> Answer<Flow> {
        listing(Ok(catalog::keys(Keys::Foreign)))
    }

    async fn do_put_statement_update(
        &self,
        _: CommandStatementUpdate,
        _: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        Err(status::refused_write())
    }

    async fn do_put_statement_ingest(
        &self,
        _: CommandStatementIngest,
        _: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        Err(status::refused_write())
    }

    async fn do_put_prepared_statement_update(
        &self,
        _: CommandPreparedStatementUpdate,
        _: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        Err(status::refused_write())
    }

    async fn do_put_fallback(
        &self,
        request: Request<PeekableFlightDataStream>,
        _: Any,
    ) -> Answer<Acknowledgements> {
        let caller = caller_of(&request);
        put((self.jobs.clone(), &self.puts), caller, request.into_inner()).await.map(Response::new)
    }

    /// Does nothing: the properties are constants.
    async fn register_sql_info(&self, _: i32, _: &SqlInfo) {}
}

fn encoded(schema: &Schema) -> Result<Bytes, Status> {
    let options = IpcWriteOptions::default();
    let ipc = SchemaAsIpc::new(schema, &options);
    let message = IpcMessage::try_from(ipc).map_err(|e| Status::internal(e.to_string()))?;
    Ok(message.0)
}
