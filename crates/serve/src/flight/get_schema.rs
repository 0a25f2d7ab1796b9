//! The complete service: `service`, and in addition `GetSchema`, which the Flight SQL library lacks, and downloads of jobs.

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::Any;
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, SchemaAsIpc, SchemaResult, Ticket,
};
use futures_util::stream::BoxStream;
use prost::Message as _;
use skopos_query::arrow::datatypes::Schema;
use skopos_query::arrow::ipc::writer::IpcWriteOptions;
use tonic::{Request, Response, Status, Streaming};

use skopos_hub::jobs::download_schema;
use skopos_wire::TicketSigner;

use super::download::Downloads;
use super::service::{SqlService, caller_of};

/// Answers `GetSchema` and requests of downloads, and passes on all others.
pub(super) struct FullService(SqlService, Downloads);

impl FullService {
    /// Adds `GetSchema` and `downloads` to `service`.
    pub(super) fn new(service: SqlService, downloads: Downloads) -> Self {
        Self(service, downloads)
    }
}

/// The response to one request.
type Answer<T> = Result<Response<T>, Status>;
/// A stream of responses.
type Answers<T> = BoxStream<'static, Result<T, Status>>;

#[tonic::async_trait]
impl FlightService for FullService {
    type HandshakeStream = Answers<HandshakeResponse>;
    type ListFlightsStream = Answers<FlightInfo>;
    type DoGetStream = Answers<FlightData>;
    type DoPutStream = Answers<PutResult>;
    type DoActionStream = Answers<arrow_flight::Result>;
    type ListActionsStream = Answers<ActionType>;
    type DoExchangeStream = Answers<FlightData>;

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Answer<SchemaResult> {
        if Downloads::is_command(request.get_ref()) {
            return encoded(&download_schema());
        }
        let command = Any::decode(&*request.get_ref().cmd);
        let command = command.map_err(|e| Status::invalid_argument(e.to_string()))?;
        let schema = match self.0.schema_of(&caller_of(&request), &command).await {
            Some(schema) => schema?,
            // Listings of the catalog have fixed columns.
            None => {
                let info = self.0.get_flight_info(request).await?.into_inner();
                return Ok(Response::new(SchemaResult { schema: info.schema }));
            }
        };
        encoded(&schema)
    }

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Answer<Self::HandshakeStream> {
        self.0.handshake(request).await
    }

    async fn list_flights(&self, request: Request<Criteria>) -> Answer<Self::ListFlightsStream> {
        self.0.list_flights(request).await
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Answer<FlightInfo> {
        if Downloads::is_command(request.get_ref()) {
            let caller = caller_of(&request);
            return self.1.places(caller, request.into_inner()).await.map(Response::new);
        }
        self.0.get_flight_info(request).await
    }

    async fn poll_flight_info(&self, request: Request<FlightDescriptor>) -> Answer<PollInfo> {
        self.0.poll_flight_info(request).await
    }

    async fn do_get(&self, request: Request<Ticket>) -> Answer<Self::DoGetStream> {
        if TicketSigner::is_ticket(&request.get_ref().ticket) {
            let caller = caller_of(&request);
            return self.1.get(caller, request.into_inner()).await.map(Response::new);
        }
        self.0.do_get(request).await
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Answer<Self::DoPutStream> {
        self.0.do_put(request).await
    }

    async fn do_action(&self, request: Request<Action>) -> Answer<Self::DoActionStream> {
        self.0.do_action(request).await
    }

    async fn list_actions(&self, request: Request<Empty>) -> Answer<Self::ListActionsStream> {
        self.0.list_actions(request).await
    }

    async fn do_exchange(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Answer<Self::DoExchangeStream> {
        self.0.do_exchange(request).await
    }
}

/// Returns the answer with a schema.
fn encoded(schema: &Schema) -> Answer<SchemaResult> {
    let options = IpcWriteOptions::default();
    let ipc = SchemaAsIpc::new(schema, &options);
    let result = SchemaResult::try_from(ipc).map_err(|e| Status::internal(e.to_string()))?;
    Ok(Response::new(result))
}
