//! Options that several verbs have.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use skopos_rpc::Stage;

use crate::children::Launcher;
use crate::config::Config;
use crate::process::Common;
use crate::tracer::{Setup, Start, Tracer};
use crate::{Error, Result};

/// Options of recording.
#[derive(Args, Clone, Debug)]
pub(crate) struct Recording {
    /// Folder for the traces of all processes. It is made if it does not exist.
    #[arg(long, value_name = "FOLDER")]
    trace: Option<PathBuf>,
    /// Folder for the segments of the recorders, instead of the runtime directory.
    #[arg(long, value_name = "FOLDER")]
    segments: Option<PathBuf>,
    /// The amount that is recorded: off, context, spans or full. The default is full with --trace, and off without.
    #[arg(long, value_parser = stage)]
    stage: Option<Stage>,
    /// Leave out performance variables.
    #[arg(long)]
    without_variables: bool,
}

/// Options of a process of the service.
#[derive(Args, Debug)]
pub(crate) struct Process {
    /// Name of the process in traces.
    #[arg(long)]
    name: String,
    /// Number among the processes of its kind, from 0.
    #[arg(long, default_value_t = 0)]
    number: u32,
    /// The knobs that differ from their defaults, as JSON: '{"execution_streams": 20}'.
    #[arg(long, default_value = "{}")]
    config: String,
    /// Collector of spans, as http://HOST:PORT: the recorder that the program brings records instead of Skopos.
    #[arg(long, value_name = "URL")]
    collector: Option<String>,
    /// End with the process that started this one.
    #[arg(long)]
    with_parent: bool,
    #[command(flatten)]
    recording: Recording,
}

fn stage(name: &str) -> std::result::Result<Stage, String> {
    Stage::from_name(name).ok_or_else(|| "it is off, context, spans or full".to_owned())
}

impl Recording {
    fn stage(&self) -> Stage {
        let default = if self.trace.is_some() { Stage::Full } else { Stage::Off };
        self.stage.unwrap_or(default)
    }

    /// Makes the folder of traces.
    fn make_folder(&self) -> Result<()> {
        let Some(folder) = &self.trace else { return Ok(()) };
        std::fs::create_dir_all(folder).map_err(|source| Error::Path {
            path: folder.clone(),
            doing: "make the folder of traces",
            source,
        })
    }

    /// The launcher of this program's processes. The folder of traces is made.
    pub(crate) fn launcher(&self) -> Result<Launcher> {
        self.make_folder()?;
        Ok(Launcher {
            stage: self.stage(),
            trace: self.trace.clone(),
            segments: self.segments.clone(),
            without_variables: self.without_variables,
            ..launcher()?
        })
    }
}

/// The launcher of this program's processes, which records nothing.
pub(crate) fn launcher() -> Result<Launcher> {
    let program = std::env::current_exe()
        .map_err(|source| Error::System { doing: "find this program", source })?;
    Ok(Launcher {
        program,
        stage: Stage::Off,
        trace: None,
        segments: None,
        without_variables: false,
        collector: None,
        config: Config::default(),
    })
}

impl Process {
    /// The settings of this process; `start` starts the recorder that the program brings.
    pub(crate) fn common(&self, start: Option<Start>) -> Result<Common> {
        if self.with_parent {
            let signal = Some(rustix::process::Signal::KILL);
            rustix::process::set_parent_process_death_signal(signal).map_err(|error| {
                Error::System {
                    doing: "follow the process that started this",
                    source: error.into(),
                }
            })?;
        }
        self.recording.make_folder()?;
        Ok(Common {
            name: self.name.clone(),
            number: self.number,
            stage: self.recording.stage(),
            trace: self.recording.trace.clone(),
            segments: self.recording.segments.clone(),
            without_variables: self.recording.without_variables,
            other: self.other(start)?,
            config: serde_json::from_str(&self.config)
                .map_err(|source| Error::Json { doing: "read --config", source })?,
        })
    }

    /// Starts the recorder that records instead of Skopos, if there is a collector for it.
    fn other(&self, start: Option<Start>) -> Result<Option<Arc<dyn Tracer>>> {
        let Some(collector) = &self.collector else { return Ok(None) };
        let missing = || Error::Tracer("this program brings none; `skopos-peers-rpc` does".into());
        let has_values = self.recording.stage() == Stage::Full;
        let start = start.ok_or_else(missing)?;
        start(&Setup { collector, has_values }).map(Some)
    }
}
