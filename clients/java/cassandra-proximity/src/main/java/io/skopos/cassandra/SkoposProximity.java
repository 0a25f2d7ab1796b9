package io.skopos.cassandra;

import io.skopos.ranking.ReplicaRanking;
import java.net.InetAddress;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.locator.DynamicEndpointSnitch;
import org.apache.cassandra.locator.InetAddressAndPort;
import org.apache.cassandra.locator.NodeProximity;
import org.apache.cassandra.locator.Replica;
import org.apache.cassandra.locator.ReplicaCollection;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Orders replicas by a rank of Skopos, and without a valid rank as Cassandra's own dynamic snitch does.
 *
 * <p>Racks and data centers stay with {@code initial_location_provider}. In {@code cassandra.yaml}:
 *
 * <pre>
 * node_proximity: io.skopos.cassandra.SkoposProximity
 * dynamic_snitch: false
 * </pre>
 */
public final class SkoposProximity implements NodeProximity {
    /** The system property that names the stock proximity. */
    public static final String PROXIMITY_PROPERTY = "skopos.proximity";

    private static final Logger LOGGER = LoggerFactory.getLogger(SkoposProximity.class);

    private final NodeProximity stock;
    private final ReplicaRanking ranking;

    /** Makes it over NetworkTopologyProximity, or what {@link #PROXIMITY_PROPERTY} names. Cassandra calls it. */
    public SkoposProximity() {
        String name = System.getProperty(PROXIMITY_PROPERTY, "NetworkTopologyProximity");
        stock = new DynamicEndpointSnitch(DatabaseDescriptor.createProximityImpl(name), "skopos");
        ranking = ReplicaRanking.start(LOGGER::info);
        if (DatabaseDescriptor.getRawConfig().dynamic_snitch) {
            LOGGER.warn("dynamic_snitch is true, so Cassandra reorders what Skopos ordered; set it to false in cassandra.yaml");
        }
    }

    SkoposProximity(NodeProximity stock, ReplicaRanking ranking) {
        this.stock = stock;
        this.ranking = ranking;
    }

    @Override
    public <C extends ReplicaCollection<? extends C>> C sortedByProximity(InetAddressAndPort address, C replicas) {
        if (replicas.size() < 2) {
            return replicas;
        }
        List<InetAddress> addresses = new ArrayList<>(replicas.size());
        for (Replica replica : replicas) {
            addresses.add(replica.endpoint().getAddress());
        }
        Comparator<InetAddress> order = ranking.order(addresses);
        if (order == null) {
            return stock.sortedByProximity(address, replicas);
        }
        return replicas.sorted(Comparator.comparing(replica -> replica.endpoint().getAddress(), order));
    }

    @Override
    public int compareEndpoints(InetAddressAndPort target, Replica first, Replica second) {
        return stock.compareEndpoints(target, first, second);
    }

    @Override
    public boolean isWorthMergingForRangeQuery(
            ReplicaCollection<?> merged, ReplicaCollection<?> first, ReplicaCollection<?> second) {
        return stock.isWorthMergingForRangeQuery(merged, first, second);
    }
}
