package io.skopos.bench;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.management.Attribute;
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
    private static final String SNITCH = "org.apache.cassandra.db:type=DynamicEndpointSnitch";
    private static final String GOSSIP = "org.apache.cassandra.net:type=FailureDetector";

    /** The line of a severity in a node's state of gossip: name, version, value. */
    private static final Pattern SEVERITY = Pattern.compile("(?m)^\\s*SEVERITY:\\d+:(.+)$");

    private final List<String> addresses;
    private final List<JMXConnector> connectors = new ArrayList<>();
    private final List<MBeanServerConnection> servers = new ArrayList<>();

    Nodes(List<String> addresses) throws IOException {
        this.addresses = addresses;
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

    /** Returns null if the coordinator sees all nodes alive, and otherwise how many it sees. */
    String lifeProblem() throws IOException, JMException {
        int alive = ((List<?>) servers.get(0).getAttribute(new ObjectName(STORAGE), "LiveNodes")).size();
        return alive < size() ? "only " + alive + " nodes are alive" : null;
    }

    /** Gives the coordinator a new snitch, whose knowledge of replicas begins at nothing. */
    void snitch(String name, boolean isDynamic) throws IOException, JMException {
        Object[] words = {name, isDynamic, null, null, null};
        String[] types = {"java.lang.String", "java.lang.Boolean", "java.lang.Integer", "java.lang.Integer",
                "java.lang.Double"};
        servers.get(0).invoke(new ObjectName(STORAGE), "updateSnitch", words, types);
    }

    /** Returns null if the coordinator orders replicas by a rank, and otherwise the reason why not. */
    String rankProblem() throws IOException, JMException {
        for (ObjectName name : servers.get(0).queryNames(new ObjectName(RANKING), null)) {
            boolean isActive = (Boolean) servers.get(0).getAttribute(name, "Active");
            return isActive ? null : "the coordinator has no rank: " + servers.get(0).getAttribute(name, "Problem");
        }
        return "the coordinator has not loaded the snitch of Skopos";
    }

    /**
     * Returns null if the coordinator has got the severity of each node by gossip, and otherwise what differs. The coordinator
     * needs a dynamic snitch.
     */
    String gossipProblem() throws IOException, JMException {
        for (int node = 0; node < servers.size(); node++) {
            double own = severity(node);
            double known = knownSeverity(node);
            if (own != known) {
                return addresses.get(node) + " has severity " + own + ", and the coordinator knows " + known;
            }
        }
        return null;
    }

    /** Sets all severities to 0. The coordinator needs a dynamic snitch. */
    void release() throws IOException, JMException {
        for (int node = 0; node < servers.size(); node++) {
            if (severity(node) != 0) {
                servers.get(node).setAttribute(new ObjectName(SNITCH), new Attribute("Severity", 0.0));
            }
        }
    }

    /** Returns the severity that a node has. */
    private double severity(int node) throws IOException, JMException {
        return (Double) servers.get(node).getAttribute(new ObjectName(SNITCH), "Severity");
    }

    /** Returns the severity of a node as the coordinator knows it; 0 if it was never set. */
    private double knownSeverity(int node) throws IOException, JMException {
        Object[] words = {addresses.get(node)};
        String[] types = {"java.lang.String"};
        Object state = servers.get(0).invoke(new ObjectName(GOSSIP), "getEndpointState", words, types);
        Matcher severity = SEVERITY.matcher((String) state);
        return severity.find() ? Double.parseDouble(severity.group(1)) : 0;
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
