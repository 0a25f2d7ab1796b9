package io.skopos.bench;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.DriverException;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.loadbalancing.NodeDistance;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.atomic.LongAdder;
import javax.management.JMException;
import org.HdrHistogram.Histogram;
import site.ycsb.DB;
import site.ycsb.WorkloadException;
import site.ycsb.measurements.Measurements;
import site.ycsb.workloads.CoreWorkload;

/**
 * The client of the benchmark: reads commands from stdin, a line each, and answers each with a line.
 *
 * <pre>
 * load ROWS                        makes the table on three replicas and fills it
 * snitch stock|skopos              gives the coordinator a new snitch
 * release                          sets all severities to 0, and waits until the coordinator, with the stock snitch, knows it
 * gossip                           waits until the coordinator, with the stock snitch, knows the severities of all nodes
 * run A|B|C ROWS THREADS SECONDS   runs a workload of YCSB, and answers with one line of JSON
 * </pre>
 */
public final class Client {
    /** The time after which the share of each replica is noted: the goal of a cold start. */
    private static final long COLD_NANOS = 5_000_000_000L;

    /** A driver that waits longer for a request than Cassandra itself. */
    private static final Duration REQUEST_TIMEOUT = Duration.ofSeconds(20);

    /** The longest wait for a state of the cluster. Gossip and threads of a busy machine need seconds. */
    private static final long PATIENCE_NANOS = 60_000_000_000L;

    /** Time between two looks at a state. */
    private static final long LOOK_MILLIS = 50;

    /** A state of the cluster. */
    private interface State {
        /** Returns the reason why it is not reached yet; null if it is. */
        String problem() throws IOException, JMException;
    }

    private final Nodes nodes;
    private final CqlSession session;

    private Client(List<String> addresses) throws IOException {
        nodes = new Nodes(addresses);
        InetSocketAddress coordinator = new InetSocketAddress(addresses.get(0), 9042);
        session = CqlSession.builder()
                .addContactPoint(coordinator)
                .withLocalDatacenter("datacenter1")
                .withNodeDistanceEvaluator((node, datacenter) ->
                        node.getEndPoint().resolve().equals(coordinator) ? NodeDistance.LOCAL : NodeDistance.IGNORED)
                .withConfigLoader(DriverConfigLoader.programmaticBuilder()
                        .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, REQUEST_TIMEOUT)
                        .withDuration(DefaultDriverOption.CONNECTION_INIT_QUERY_TIMEOUT, REQUEST_TIMEOUT)
                        .withString(DefaultDriverOption.REQUEST_CONSISTENCY, "ONE")
                        .build())
                .build();
    }

    /** Serves until the end of stdin. The words are the addresses of the nodes, the coordinator first. */
    public static void main(String[] addresses) throws Exception {
        // Libraries write their messages to stdout, which is for answers alone.
        PrintStream answers = System.out;
        System.setOut(System.err);
        Client client = new Client(List.of(addresses));
        answers.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            answers.println(client.answer(line.trim().split(" ")));
        }
        client.session.close();
        client.nodes.close();
    }

    private String answer(String[] words) {
        try {
            switch (words[0]) {
                case "load":
                    load(Integer.parseInt(words[1]));
                    return "done";
                case "snitch":
                    snitch(words[1]);
                    return "done";
                case "release":
                    nodes.release();
                    await(nodes::gossipProblem);
                    return "done";
                case "gossip":
                    await(nodes::gossipProblem);
                    return "done";
                case "run":
                    return run(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]),
                            Double.parseDouble(words[4]));
                default:
                    return "error: `" + words[0] + "` is not a command";
            }
        } catch (Exception e) {
            return "error: " + e;
        }
    }

    private void snitch(String kind) throws IOException, JMException, InterruptedException {
        if (kind.equals("stock")) {
            nodes.snitch("SimpleSnitch", true);
            return;
        }
        nodes.snitch("io.skopos.cassandra.SkoposSnitch", false);
        // Measured is the snitch with its rank: a program that was just loaded has read none yet.
        await(nodes::rankProblem);
    }

    /** Waits until a state is reached. */
    private static void await(State state) throws IOException, JMException, InterruptedException {
        long begin = System.nanoTime();
        for (String problem = state.problem(); problem != null; problem = state.problem()) {
            if (System.nanoTime() - begin > PATIENCE_NANOS) {
                throw new IOException(problem);
            }
            Thread.sleep(LOOK_MILLIS);
        }
    }

    private void load(int rows) throws IOException, JMException, WorkloadException, InterruptedException {
        await(nodes::lifeProblem);
        session.execute("CREATE KEYSPACE IF NOT EXISTS ycsb WITH replication = {'class': 'SimpleStrategy', "
                + "'replication_factor': " + nodes.size() + "}");
        StringBuilder fields = new StringBuilder();
        for (int field = 0; field < 10; field++) {
            fields.append(", field").append(field).append(" text");
        }
        // Small chunks, so that a cold read fetches about as many bytes as it needs.
        session.execute("CREATE TABLE IF NOT EXISTS ycsb.usertable (y_id text PRIMARY KEY" + fields
                + ") WITH compression = {'class': 'LZ4Compressor', 'chunk_length_in_kb': 4}");
        CoreWorkload workload = workload("A", rows);
        DB binding = new CassandraBinding(session, CassandraBinding.histogram());
        for (int row = 0; row < rows; row++) {
            if (!workload.doInsert(binding, null)) {
                throw new IOException("row " + row + " was not inserted");
            }
        }
        nodes.settle();
    }

    /** Returns the core workload of YCSB: half, a twentieth or none of the operations are updates. */
    private static CoreWorkload workload(String name, int rows) throws WorkloadException {
        double updates = List.of(0.5, 0.05, 0.0).get("ABC".indexOf(name));
        Properties properties = new Properties();
        properties.setProperty("table", "ycsb.usertable");
        properties.setProperty("recordcount", Integer.toString(rows));
        properties.setProperty("readproportion", Double.toString(1 - updates));
        properties.setProperty("updateproportion", Double.toString(updates));
        properties.setProperty("scanproportion", "0");
        properties.setProperty("insertproportion", "0");
        properties.setProperty("requestdistribution", "uniform");
        Measurements.setProperties(properties);
        CoreWorkload workload = new CoreWorkload();
        workload.init(properties);
        return workload;
    }

    private String run(String name, int rows, int threads, double seconds) throws Exception {
        CoreWorkload workload = workload(name, rows);
        Histogram latencies = CassandraBinding.histogram();
        LongAdder operations = new LongAdder();
        LongAdder failures = new LongAdder();
        long[] before = nodes.reads();
        long begin = System.nanoTime();
        long end = begin + (long) (seconds * 1e9);
        List<Thread> workers = new ArrayList<>();
        for (int number = 0; number < threads; number++) {
            DB binding = new CassandraBinding(session, latencies);
            Thread worker = new Thread(() -> work(workload, binding, end, operations, failures));
            worker.start();
            workers.add(worker);
        }
        sleepUntil(Math.min(begin + COLD_NANOS, end));
        long[] cold = since(before);
        for (Thread worker : workers) {
            worker.join();
        }
        double took = (System.nanoTime() - begin) / 1e9;
        return String.format(
                Locale.ROOT,
                "{\"operations\":%d,\"failures\":%d,\"seconds\":%.3f,\"p50_ms\":%.3f,\"p99_ms\":%.3f,"
                        + "\"cold_reads\":%s,\"reads\":%s}",
                operations.sum(), failures.sum(), took,
                latencies.getValueAtPercentile(50) / 1e3, latencies.getValueAtPercentile(99) / 1e3,
                Arrays.toString(cold), Arrays.toString(since(before)));
    }

    private static void work(
            CoreWorkload workload, DB binding, long end, LongAdder operations, LongAdder failures) {
        while (System.nanoTime() - end < 0) {
            try {
                workload.doTransaction(binding, null);
                operations.increment();
            } catch (DriverException e) {
                failures.increment();
            }
        }
    }

    private static void sleepUntil(long nanoTime) throws InterruptedException {
        long left = nanoTime - System.nanoTime();
        if (left > 0) {
            Thread.sleep(left / 1_000_000, (int) (left % 1_000_000));
        }
    }

    private long[] since(long[] before) throws IOException, JMException {
        long[] now = nodes.reads();
        for (int node = 0; node < now.length; node++) {
            now[node] -= before[node];
        }
        return now;
    }
}
