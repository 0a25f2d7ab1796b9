package io.skopos.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.rmi.registry.LocateRegistry;
import java.rmi.registry.Registry;
import java.rmi.server.UnicastRemoteObject;
import java.util.Map;
import javax.management.JMException;
import javax.management.MBeanServer;
import javax.management.MBeanServerFactory;
import javax.management.ObjectName;
import javax.management.StandardMBean;
import javax.management.remote.JMXConnectorServer;
import javax.management.remote.JMXConnectorServerFactory;
import javax.management.remote.JMXServiceURL;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** A server with the two beans of a node of Cassandra. */
class SeverityTest {
    private static final long HOUR = 3_600_000_000_000L;

    private final Snitch snitch = new Snitch();
    private Registry registry;
    private JMXConnectorServer server;
    private String address;

    /** The dynamic snitch of Cassandra, as far as it is set. */
    public interface SnitchMBean {
        double getSeverity();

        void setSeverity(double severity);
    }

    /** The storage service of Cassandra, as far as it is read. */
    public interface StorageMBean {
        String getLocalHostId();

        Map<String, String> getEndpointToHostId();
    }

    private static final class Snitch implements SnitchMBean {
        private double severity;
        private int changes;

        @Override
        public double getSeverity() {
            return severity;
        }

        @Override
        public void setSeverity(double next) {
            severity = next;
            changes += 1;
        }
    }

    private static final class Storage implements StorageMBean {
        @Override
        public String getLocalHostId() {
            return "id-2";
        }

        @Override
        public Map<String, String> getEndpointToHostId() {
            return Map.of("10.0.0.1", "id-1", "10.0.0.2", "id-2");
        }
    }

    @BeforeEach
    void serve() throws IOException, JMException {
        MBeanServer beans = MBeanServerFactory.newMBeanServer();
        beans.registerMBean(
                new StandardMBean(snitch, SnitchMBean.class), new ObjectName("org.apache.cassandra.db:type=DynamicEndpointSnitch"));
        beans.registerMBean(
                new StandardMBean(new Storage(), StorageMBean.class), new ObjectName("org.apache.cassandra.db:type=StorageService"));
        int port;
        try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            port = free.getLocalPort();
        }
        registry = LocateRegistry.createRegistry(port);
        address = "127.0.0.1:" + port;
        JMXServiceURL url = new JMXServiceURL("service:jmx:rmi:///jndi/rmi://" + address + "/jmxrmi");
        server = JMXConnectorServerFactory.newJMXConnectorServer(url, null, beans);
        server.start();
    }

    @AfterEach
    void end() throws IOException {
        server.stop();
        UnicastRemoteObject.unexportObject(registry, true);
    }

    @Test
    void the_severity_of_a_node_is_its_score_while_there_is_a_rank() throws IOException, JMException {
        Path folder = TestSegment.folder();
        TestSegment segment = TestSegment.create(folder, "n01");
        int weight = segment.register("n01/rank/db@10.0.0.2/weight", TestSegment.F64);
        int score = segment.register("n01/rank/db@10.0.0.2/score", TestSegment.F64);
        segment.publish(weight, 0.1, 0);
        segment.publish(score, 4.0, 0);
        Severity severity = new Severity(
                address, new RankReader(Segments.in(folder), "db"), new Candidates(Map.of(), System::nanoTime));
        assertEquals(4, severity.apply());
        assertEquals(4, snitch.severity);
        segment.publish(score, 4.2, 0);
        severity.apply();
        assertEquals(1, snitch.changes, "a change of a twentieth is not gossiped");
        segment.publish(weight, 0.1, HOUR);
        assertEquals(0, severity.apply(), "the rank is too old, so Cassandra judges alone");
        segment.publish(weight, 0.1, 0);
        assertEquals(4.2, severity.apply());
        severity.reset();
        assertEquals(0, snitch.severity);
        severity.apply();
        assertEquals(0, snitch.severity, "it has ended");
    }

    @Test
    void a_node_whose_connection_failed_is_given_back_as_well() throws IOException, JMException {
        Path folder = TestSegment.folder();
        TestSegment segment = TestSegment.create(folder, "n01");
        segment.publish(segment.register("n01/rank/db@10.0.0.2/weight", TestSegment.F64), 0.1, 0);
        segment.publish(segment.register("n01/rank/db@10.0.0.2/score", TestSegment.F64), 4.0, 0);
        Severity severity = new Severity(
                address, new RankReader(Segments.in(folder), "db"), new Candidates(Map.of(), System::nanoTime));
        severity.apply();
        assertEquals(4, snitch.severity);
        severity.disconnect();
        severity.reset();
        assertEquals(0, snitch.severity);
    }

    @Test
    void a_severity_without_a_score_has_its_reason() throws IOException, JMException {
        Path folder = TestSegment.folder();
        TestSegment segment = TestSegment.create(folder, "n01");
        Severity severity = new Severity(
                address, new RankReader(Segments.in(folder), "db"), new Candidates(Map.of(), System::nanoTime));
        assertEquals(0, severity.apply());
        assertEquals("no agent on this machine publishes the rank `db`; is `skopos agent` running?", severity.problem());
        segment.publish(segment.register("n01/rank/db@10.0.0.1/weight", TestSegment.F64), 0.1, 0);
        assertEquals(0, severity.apply());
        assertEquals("no candidate of the rank has the address 10.0.0.2", severity.problem());
        segment.publish(segment.register("n01/rank/db@10.0.0.2/weight", TestSegment.F64), 0.1, 0);
        assertEquals(0, severity.apply());
        assertEquals("the score of 10.0.0.2 is not known", severity.problem());
        segment.publish(segment.register("n01/rank/db@10.0.0.2/score", TestSegment.F64), 0.0, 0);
        assertEquals(0, severity.apply());
        assertNull(severity.problem(), "the best node has severity 0 by its score");
    }
}
