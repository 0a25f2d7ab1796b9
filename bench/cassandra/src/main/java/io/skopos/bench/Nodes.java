package io.skopos.bench;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import javax.management.JMException;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/** The nodes of the cluster by JMX; the first one is the coordinator of all requests. */
final class Nodes implements AutoCloseable {
    private static final String STORAGE = "org.apache.cassandra.db:type=StorageService";
    private static final String READS =
            "org.apache.cassandra.metrics:type=Table,keyspace=ycsb,scope=usertable,name=ReadLatency";
    private static final String RANKING = "io.skopos:type=ReplicaRanking,*";

    private final List<JMXConnector> connectors = new ArrayList<>();
    private final List<MBeanServerConnection> servers = new ArrayList<>();

    Nodes(List<String> addresses) throws IOException {
        for (String address : addresses) {
            JMXConnector connector = JMXConnectorFactory.connect(
                    new JMXServiceURL("service:jmx:rmi:///jndi/rmi://" + address + ":7199/jmxrmi"));
            connectors.add(connector);
            servers.add(connector.getMBeanServerConnection());
        }
    }

    int size() {
        return servers.size();
    }

    /** Returns the number of reads that each node has served from its own data. */
    long[] reads() throws IOException, JMException {
        long[] reads = new long[servers.size()];
        for (int node = 0; node < reads.length; node++) {
            reads[node] = (Long) servers.get(node).getAttribute(new ObjectName(READS), "Count");
        }
        return reads;
    }

    /** Returns the number of nodes that the coordinator sees alive. */
    int alive() throws IOException, JMException {
        return ((List<?>) servers.get(0).getAttribute(new ObjectName(STORAGE), "LiveNodes")).size();
    }

    /** Gives the coordinator a new snitch, whose knowledge of replicas begins at nothing. */
    void snitch(String name, boolean isDynamic) throws IOException, JMException {
        Object[] words = {name, isDynamic, null, null, null};
        String[] types = {"java.lang.String", "java.lang.Boolean", "java.lang.Integer", "java.lang.Integer",
                "java.lang.Double"};
        servers.get(0).invoke(new ObjectName(STORAGE), "updateSnitch", words, types);
    }

    /** Returns true if the coordinator orders replicas by a rank. */
    boolean isRanked() throws IOException, JMException {
        for (ObjectName name : servers.get(0).queryNames(new ObjectName(RANKING), null)) {
            return (Boolean) servers.get(0).getAttribute(name, "Active");
        }
        return false;
    }

    /** Writes all rows to disk, and leaves the files as they are from then on. */
    void settle() throws IOException, JMException {
        for (MBeanServerConnection server : servers) {
            Object[] words = {"ycsb", new String[0]};
            String[] types = {"java.lang.String", "[Ljava.lang.String;"};
            server.invoke(new ObjectName(STORAGE), "forceKeyspaceFlush", words, types);
            server.invoke(new ObjectName(STORAGE), "disableAutoCompaction", words, types);
        }
    }

    @Override
    public void close() throws IOException {
        for (JMXConnector connector : connectors) {
            connector.close();
        }
    }
}
