package io.skopos.client;

import java.io.IOException;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.Map;
import javax.management.Attribute;
import javax.management.JMException;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/**
 * Tells a node of Cassandra how bad it is itself, by the attribute {@code Severity} of its own dynamic snitch.
 *
 * <p>Cassandra gossips the value, and every coordinator adds it to the score of the node, which is 0 to 1 by latency.
 * A node is therefore avoided by all coordinators alike. Severity 0 is Cassandra's own behaviour.
 */
final class Severity {
    /** The largest severity. A latency gives at most 1, so a greater number changes no order among several bad nodes. */
    private static final double MOST = 10;

    /** Scores below it are noise, and severity is 0. It is the hysteresis of a rank. */
    private static final double LEAST = 0.25;

    /** The share by which a severity has to change to be set, because each change is gossiped. */
    private static final double STEP = 0.1;

    private static final String SNITCH = "org.apache.cassandra.db:type=DynamicEndpointSnitch";
    private static final String STORAGE = "org.apache.cassandra.db:type=StorageService";

    private final JMXServiceURL url;
    private final RankReader rank;
    private final Candidates candidates;
    private JMXConnector connector;
    private double set = Double.NaN;
    /** True if the node may have a severity other than 0 by this program. */
    private boolean isSteered;
    private boolean isEnded;
    private String problem;

    Severity(String address, RankReader rank, Candidates candidates) throws IOException {
        this.url = new JMXServiceURL("service:jmx:rmi:///jndi/rmi://" + address + "/jmxrmi");
        this.rank = rank;
        this.candidates = candidates;
    }

    /** Sets the severity that follows from the rank now. Returns the severity. */
    synchronized double apply() throws IOException, JMException {
        if (isEnded) {
            return 0;
        }
        rank.refresh();
        MBeanServerConnection server = server();
        double next = severity(rank.read(), own(server));
        boolean isChange = Double.isNaN(set) || (next == 0) != (set == 0) || Math.abs(next - set) > STEP * set;
        if (isChange) {
            set(server, next);
        }
        return set;
    }

    /** Returns the reason why the last severity is 0 without a score; null if it follows from a score. */
    synchronized String problem() {
        return problem;
    }

    /** Gives the node back to its own judgement; {@link #apply} then does nothing. */
    synchronized void reset() throws IOException, JMException {
        isEnded = true;
        // A node whose connection failed has its severity still, so another connection is made.
        if (isSteered) {
            set(server(), 0);
        }
    }

    /** Forgets a connection that failed. */
    synchronized void disconnect() {
        JMXConnector old = connector;
        connector = null;
        set = Double.NaN;
        try {
            if (old != null) {
                old.close();
            }
        } catch (IOException e) {
            // It had failed before.
        }
    }

    private double severity(Rank now, InetAddress own) {
        problem = now.problem();
        for (Map.Entry<String, Rank.Candidate> candidate : now.candidates().entrySet()) {
            if (own.equals(candidates.addressOf(candidate.getKey()))) {
                double score = candidate.getValue().score();
                problem = Double.isNaN(score) ? "the score of " + candidate.getKey() + " is not known" : null;
                return of(score);
            }
        }
        // Without a rank of this node, Cassandra judges alone.
        if (problem == null) {
            problem = "no candidate of the rank has the address " + own.getHostAddress();
        }
        return 0;
    }

    /** Returns the severity of a score. */
    static double of(double score) {
        return score >= LEAST ? Math.min(score, MOST) : 0;
    }

    private void set(MBeanServerConnection server, double severity) throws IOException, JMException {
        // The node may have taken it although the answer is lost.
        isSteered |= severity != 0;
        server.setAttribute(new ObjectName(SNITCH), new Attribute("Severity", severity));
        set = severity;
        isSteered = severity != 0;
    }

    /** Returns the address by which other nodes know this one. */
    private static InetAddress own(MBeanServerConnection server) throws IOException, JMException {
        ObjectName storage = new ObjectName(STORAGE);
        Object id = server.getAttribute(storage, "LocalHostId");
        Map<?, ?> ids = (Map<?, ?>) server.getAttribute(storage, "EndpointToHostId");
        for (Map.Entry<?, ?> entry : ids.entrySet()) {
            if (entry.getValue().equals(id)) {
                return addressIn(entry.getKey().toString());
            }
        }
        throw new IOException("the node does not know its own address yet");
    }

    /** Reads {@code /10.0.0.1}, {@code host/10.0.0.1} or {@code 10.0.0.1}. */
    private static InetAddress addressIn(String text) throws UnknownHostException {
        return InetAddress.getByName(text.substring(text.indexOf('/') + 1));
    }

    private MBeanServerConnection server() throws IOException {
        if (connector == null) {
            connector = JMXConnectorFactory.connect(url);
        }
        return connector.getMBeanServerConnection();
    }
}
