//! The nodes of Cassandra, from the jars that Maven fetched.

use std::fs::{self, File};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use super::place::{CLIENT, COORDINATOR, NODES, Place};
use crate::child::{Process, wait_for};
use crate::outcome::Outcome;
use crate::programs::JAVA_CLIENT;

/// The version in `bench/cassandra/pom.xml`.
pub(super) const VERSION: &str = "5.0.9";

/// The folder of the jars of Cassandra, the driver and YCSB, below the repository.
const BENCH: &str = "bench/cassandra/target";

/// The jar of the client in that folder, which is built last.
const BENCH_JAR: &str = "skopos-bench-cassandra.jar";
/// The jar of the snitch, below the repository.
const SNITCH: &str = "clients/java/cassandra-snitch/target/skopos-cassandra-snitch-0.1.0.jar";

/// Three nodes start together in about a minute on two cores.
const START: Duration = Duration::from_secs(240);

/// Options that Cassandra needs on Java 17, from its `jvm17-server.options`, and a small heap.
const JAVA: [&str; 34] = [
    "-Xms400m",
    "-Xmx400m",
    "-XX:+UseSerialGC",
    "-XX:MaxDirectMemorySize=128m",
    "-XX:TieredStopAtLevel=1",
    "-Djdk.attach.allowAttachSelf=true",
    "-Dcassandra-foreground=yes",
    "-Dcassandra.ring_delay_ms=2000",
    "-Dcassandra.skip_wait_for_gossip_to_settle=0",
    "-Dcassandra.jmx.remote.port=7199",
    "-Dcom.sun.management.jmxremote.authenticate=false",
    "-Dskopos.profile=cassandra",
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.management.rmi/com.sun.jmx.remote.internal.rmi=ALL-UNNAMED",
    "--add-exports=java.rmi/sun.rmi.registry=ALL-UNNAMED",
    "--add-exports=java.rmi/sun.rmi.server=ALL-UNNAMED",
    "--add-exports=java.sql/java.sql=ALL-UNNAMED",
    "--add-exports=java.base/java.lang.ref=ALL-UNNAMED",
    "--add-exports=jdk.unsupported/sun.misc=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.module=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.loader=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.reflect=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.math=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.module=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.util.jar=ALL-UNNAMED",
    "--add-opens=jdk.management/com.sun.management.internal=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
];

/// Writes warnings to stdout; without it, Cassandra writes each step.
const LOGGING: &str = "<configuration><appender name='OUT' class='ch.qos.logback.core.ConsoleAppender'><encoder>\
    <pattern>%-5level %d{HH:mm:ss.SSS} %logger{20} %msg%n</pattern></encoder></appender>\
    <root level='WARN'><appender-ref ref='OUT'/></root>\
    <logger name='io.skopos' level='INFO'/></configuration>\n";

/// The jars of the benchmark.
pub(super) struct Jars {
    bench: PathBuf,
    snitch: PathBuf,
    severity: PathBuf,
}

impl Jars {
    /// Finds the jars below the current folder, the root of the repository.
    pub(super) fn find() -> Outcome<Self> {
        let root = std::env::current_dir()?;
        let [bench, snitch, severity] = [BENCH, SNITCH, JAVA_CLIENT].map(|path| root.join(path));
        for path in [&bench.join(BENCH_JAR), &snitch, &severity] {
            if !path.exists() {
                let path = path.display();
                return Err(
                    format!("there is no {path}; `make bench BENCH=cassandra` builds it").into()
                );
            }
        }
        Ok(Self { bench, snitch, severity })
    }

    /// Returns the class path of a node and of the client.
    pub(super) fn class_path(&self) -> String {
        let bench = self.bench.display();
        format!("{bench}/{BENCH_JAR}:{bench}/lib/*:{}", self.snitch.display())
    }

    /// Returns the program that sets severities.
    pub(super) fn severity(&self) -> &Path {
        &self.severity
    }
}

/// The running nodes. They end when this is dropped.
pub(super) struct Nodes(Vec<Process>);

impl Nodes {
    /// Starts all nodes and waits until each takes requests. The folder `skopos` has the segments of the coordinator's agent.
    pub(super) fn start(
        place: &Place,
        jars: &Jars,
        scratch: &Path,
        skopos: &Path,
    ) -> Outcome<Self> {
        let mut nodes = Self(Vec::new());
        for (at, node) in NODES.iter().enumerate() {
            let folder = scratch.join(node);
            fs::create_dir_all(&folder)?;
            let yaml = folder.join("cassandra.yaml");
            fs::write(&yaml, configuration(place, node, at, &folder)?)?;
            let logging = folder.join("logback.xml");
            fs::write(&logging, LOGGING)?;
            let address = place.address(node)?;
            let mut command = place.lab.command(node, "java")?;
            command
                .args(JAVA)
                .arg(format!("-Dcassandra.config=file://{}", yaml.display()))
                .arg(format!("-Dcassandra.storagedir={}", folder.display()))
                .arg(format!("-Dlogback.configurationFile={}", logging.display()))
                .arg(format!("-Djava.rmi.server.hostname={address}"))
                .arg(format!("-Dskopos.dir={}", skopos.display()))
                .args(["-cp", &jars.class_path(), "org.apache.cassandra.service.CassandraDaemon"])
                .stdin(Stdio::null())
                .stdout(File::create(folder.join("out"))?)
                .stderr(File::create(folder.join("err"))?);
            nodes.0.push(Process::start(&mut command)?);
        }
        for (node, process) in NODES.iter().zip(&mut nodes.0) {
            let address = format!("{}:9042", place.address(node)?).parse()?;
            let from = place.lab.namespace(CLIENT)?;
            let connects = || {
                let patience = Duration::from_secs(1);
                from.run(|| Ok(TcpStream::connect_timeout(&address, patience).ok())).ok()?
            };
            let ready = wait_for(process, START, connects);
            ready.map_err(|why| format!("{node}: {why}{}", last_words(&scratch.join(node))))?;
        }
        Ok(nodes)
    }

    /// Returns an error if a node has ended.
    pub(super) fn check(&mut self, scratch: &Path) -> Outcome<()> {
        for (node, process) in NODES.iter().zip(&mut self.0) {
            if !process.runs() {
                return Err(format!("{node} has ended{}", last_words(&scratch.join(node))).into());
            }
        }
        Ok(())
    }
}

/// Returns the last line that a program wrote about an error, in the files `err` and `out` of its folder.
pub(super) fn last_words(folder: &Path) -> String {
    let said = ["err", "out"].map(|name| fs::read_to_string(folder.join(name)).unwrap_or_default());
    let words = ["ERROR", "Exception", "error:"];
    let is_fault = |line: &&str| words.iter().any(|word| line.contains(word));
    let line = said.iter().flat_map(|text| text.lines()).rfind(is_fault);
    line.map_or_else(String::new, |line| format!(": {line}"))
}

/// Returns a configuration with Cassandra's defaults, but for its size: one token, and rows on the disk of the lab. Commit logs
/// lie elsewhere, so that disks decide about reads alone; files are read and not mapped, so that their pages can be dropped.
fn configuration(place: &Place, node: &str, at: usize, folder: &Path) -> Outcome<String> {
    let (address, seed) = (place.address(node)?, place.address(COORDINATOR)?);
    let (data, folder) = (place.disk(node)?.join("data"), folder.display().to_string());
    let step = u64::MAX / NODES.len() as u64;
    let token = i128::from(i64::MIN) + i128::from(step) * at as i128 + 1;
    Ok(format!(
        "cluster_name: skopos\nnum_tokens: 1\ninitial_token: {token}\nauto_bootstrap: false\n\
         partitioner: org.apache.cassandra.dht.Murmur3Partitioner\nendpoint_snitch: SimpleSnitch\n\
         data_file_directories: ['{}']\ncommitlog_directory: {folder}/commitlog\nhints_directory: {folder}/hints\n\
         saved_caches_directory: {folder}/saved\ncdc_raw_directory: {folder}/cdc\ncommitlog_sync: periodic\n\
         commitlog_sync_period: 1000ms\nlisten_address: {address}\nrpc_address: {address}\n\
         start_native_transport: true\nmemtable_heap_space: 64MiB\nmemtable_offheap_space: 64MiB\n\
         disk_access_mode: standard\nauto_snapshot: false\nseed_provider:\n\
         - class_name: org.apache.cassandra.locator.SimpleSeedProvider\n  parameters:\n  - seeds: '{seed}'\n",
        data.display()
    ))
}
