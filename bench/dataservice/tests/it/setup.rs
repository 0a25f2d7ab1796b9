//! A server and a client in this process.

use std::path::PathBuf;
use std::sync::Arc;

use skopos_dataservice::Result;
use skopos_dataservice::call::Provider;
use skopos_dataservice::children::Launcher;
use skopos_dataservice::client::{keyvalue, object::Objects, sequencer::Names};
use skopos_dataservice::config::Config;
use skopos_dataservice::origin::{Caller, Origin, Role};
use skopos_dataservice::pool::{Pool, Tasks, run};
use skopos_dataservice::probe::{Probe, Recording};
use skopos_dataservice::provider::keyvalue::KeyValue;
use skopos_dataservice::provider::object::Object;
use skopos_dataservice::provider::sequencer::{Clients, Sequencer};
use skopos_dataservice::reply::{Answer, Reply};
use skopos_dataservice::server::{Options, Server};
use skopos_dataservice::tracer::Tracer;
use skopos_rpc::Stage;

/// A service in one process. Fields are dropped in their order: clients before servers.
pub(crate) struct Service {
    origin: Origin,
    _relay: Origin,
    pool: Pool,
    _server: Server,
    pub(crate) socket: PathBuf,
    pub(crate) probe: Arc<Probe>,
    databases: u32,
    _folder: tempfile::TempDir,
}

impl Service {
    pub(crate) fn start(config: &Config) -> Self {
        Self::recorded_by(config, None)
    }

    /// Starts a service that another recorder records.
    pub(crate) fn recorded_by(config: &Config, other: Option<&Arc<dyn Tracer>>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("s");
        let server_pool = Pool::start("server", config.execution_streams).expect("a pool");
        let probe = Probe::start(
            "server",
            &Recording { stage: Stage::Off, other, ..Recording::default() },
            config,
            &server_pool.tasks(),
        );
        let probe = probe.expect("a probe");
        let sequencer = Arc::new(Sequencer::default());
        let providers: [Arc<dyn Provider>; 3] = [
            Arc::new(KeyValue::new(config, 0)),
            Arc::new(Object::new(config)),
            Arc::<Sequencer>::clone(&sequencer),
        ];
        let options = Options { name: "server", path: &socket, ends_with_clients: false };
        let server = Server::start(&options, config, &providers, &probe, server_pool);
        let server = server.expect("a server");
        let own = [socket.clone()];
        let relay = Origin::connect("server", Role::Server, &own, config, &probe, None);
        let relay = relay.expect("connected to itself");
        sequencer.connect(Clients {
            keyvalue: keyvalue::KeyValue::new(relay.caller(), config.databases),
            objects: Objects::new(relay.caller(), 0),
        });
        let pool = Pool::start("client", 1).expect("a pool");
        let tasks = pool.tasks();
        let shared = (!config.progress_thread).then_some(&tasks);
        let origin = Origin::connect("client", Role::Client, &own, config, &probe, shared);
        let origin = origin.expect("connected");
        let databases = config.databases;
        Self {
            origin,
            _relay: relay,
            pool,
            _server: server,
            socket,
            probe,
            databases,
            _folder: folder,
        }
    }

    pub(crate) fn caller(&self) -> Caller {
        self.origin.caller()
    }

    pub(crate) fn keyvalue(&self) -> keyvalue::KeyValue {
        keyvalue::KeyValue::new(self.caller(), self.databases)
    }

    pub(crate) fn objects(&self) -> Objects {
        Objects::new(self.caller(), 0)
    }

    pub(crate) fn names(&self) -> Names {
        Names::new(self.caller(), 0)
    }

    pub(crate) fn tasks(&self) -> Tasks {
        self.pool.tasks()
    }

    /// Waits for a call.
    pub(crate) fn finish(&self, reply: Result<Reply>) -> Result<Answer> {
        let reply = reply?;
        run(&self.tasks(), reply).expect("the pool runs")
    }
}

/// Starts processes of the program under test, with traces in `trace`.
pub(crate) fn launcher(trace: Option<PathBuf>) -> Launcher {
    let stage = if trace.is_some() { Stage::Full } else { Stage::Off };
    let program = PathBuf::from(env!("CARGO_BIN_EXE_skopos-dataservice"));
    // Beside the trace, so that no segment of a killed process stays in the runtime directory.
    let segments = trace.as_ref().map(|folder| folder.join("segments"));
    Launcher {
        program,
        stage,
        trace,
        segments,
        without_variables: false,
        collector: None,
        config: Config::default(),
    }
}
