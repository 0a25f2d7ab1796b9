package io.skopos.cassandra;

import io.skopos.ranking.ReplicaRanking;
import java.net.InetAddress;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.locator.DynamicEndpointSnitch;
import org.apache.cassandra.locator.IEndpointSnitch;
import org.apache.cassandra.locator.InetAddressAndPort;
import org.apache.cassandra.locator.Replica;
import org.apache.cassandra.locator.ReplicaCollection;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Orders replicas by a rank of Skopos, and without a valid rank as the stock dynamic snitch does.
 *
 * <p>Racks and data centers are those of a stock snitch: SimpleSnitch, or the one that the system property
 * {@code skopos.snitch} names. In {@code cassandra.yaml}:
 *
 * <pre>
 * endpoint_snitch: io.skopos.cassandra.SkoposSnitch
 * dynamic_snitch: false
 * </pre>
 *
 * The second line keeps Cassandra from wrapping this snitch in its dynamic one, which would reorder what this one ordered.
 */
public class SkoposSnitch implements IEndpointSnitch {
    /** The system property that names the snitch for racks and data centers. */
    public static final String SNITCH_PROPERTY = "skopos.snitch";

    private static final Logger LOGGER = LoggerFactory.getLogger(SkoposSnitch.class);

    /** Stock snitches by name. An operator can replace snitches by JMX, and Cassandra closes none that is inside another. */
    private static final Map<String, IEndpointSnitch> STOCK = new ConcurrentHashMap<>();

    private final IEndpointSnitch stock;
    private final ReplicaRanking ranking;

    /** Makes the snitch over the stock one that {@link #SNITCH_PROPERTY} names. Cassandra calls it. */
    public SkoposSnitch() {
        this(System.getProperty(SNITCH_PROPERTY, "SimpleSnitch"));
    }

    /** Makes the snitch over a stock one, named as in {@code cassandra.yaml}. */
    protected SkoposSnitch(String stock) {
        this(STOCK.computeIfAbsent(stock, SkoposSnitch::dynamic), Started.RANKING);
        if (DatabaseDescriptor.getRawConfig().dynamic_snitch) {
            LOGGER.warn("dynamic_snitch is true, so Cassandra reorders what Skopos ordered; set it to false in cassandra.yaml");
        }
    }

    /** Starts the ranking of this process with the first snitch. */
    private static final class Started {
        private static final ReplicaRanking RANKING = ReplicaRanking.start(LOGGER::info);
    }

    /** Makes a stock snitch with the dynamic one around it, as Cassandra itself would, but with a name of its own in JMX. */
    private static IEndpointSnitch dynamic(String stock) {
        return new DynamicEndpointSnitch(DatabaseDescriptor.createEndpointSnitch(false, stock), "skopos-" + stock);
    }

    SkoposSnitch(IEndpointSnitch stock, ReplicaRanking ranking) {
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
    public String getRack(InetAddressAndPort endpoint) {
        return stock.getRack(endpoint);
    }

    @Override
    public String getDatacenter(InetAddressAndPort endpoint) {
        return stock.getDatacenter(endpoint);
    }

    @Override
    public void gossiperStarting() {
        stock.gossiperStarting();
    }

    @Override
    public boolean isWorthMergingForRangeQuery(
            ReplicaCollection<?> merged, ReplicaCollection<?> first, ReplicaCollection<?> second) {
        return stock.isWorthMergingForRangeQuery(merged, first, second);
    }

    @Override
    public boolean validate(Set<String> datacenters, Set<String> racks) {
        return stock.validate(datacenters, racks);
    }
}
