package io.skopos.cassandra;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.skopos.client.Rank;
import io.skopos.ranking.ReplicaRanking;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.dht.Murmur3Partitioner;
import org.apache.cassandra.dht.Token;
import org.apache.cassandra.locator.EndpointsForToken;
import org.apache.cassandra.locator.InetAddressAndPort;
import org.apache.cassandra.locator.Replica;
import org.apache.cassandra.locator.ReplicaCollection;
import org.apache.cassandra.locator.NoOpProximity;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** The proximity over replicas of Cassandra itself. The stock one is a proximity whose order is easy to see. */
class SkoposProximityTest {
    private static final long HOUR = 3_600_000_000_000L;

    private Rank rank = Rank.absent("no agent");
    private final ReplicaRanking ranking =
            new ReplicaRanking("db", () -> {}, () -> rank, SkoposProximityTest::address, message -> {});
    private final SkoposProximity proximity = new SkoposProximity(new Reversed(), ranking);

    /** Orders replicas by the opposite of the ring, as no rank of these tests does. */
    private static final class Reversed extends NoOpProximity {
        @Override
        public <C extends ReplicaCollection<? extends C>> C sortedByProximity(InetAddressAndPort address, C replicas) {
            return replicas.sorted((a, b) -> b.endpoint().compareTo(a.endpoint()));
        }
    }

    @BeforeAll
    static void configure() {
        DatabaseDescriptor.clientInitialization();
    }

    private static InetAddress address(String name) {
        try {
            return InetAddress.getByName(name);
        } catch (UnknownHostException e) {
            return null;
        }
    }

    private static InetAddressAndPort endpoint(int last) {
        return InetAddressAndPort.getByAddressOverrideDefaults(address("10.0.0." + last), 7000);
    }

    private List<String> sorted() {
        Token low = new Murmur3Partitioner.LongToken(0);
        Token high = new Murmur3Partitioner.LongToken(100);
        Token token = new Murmur3Partitioner.LongToken(50);
        EndpointsForToken replicas = EndpointsForToken.of(
                token,
                Replica.fullReplica(endpoint(1), low, high),
                Replica.fullReplica(endpoint(2), low, high),
                Replica.fullReplica(endpoint(3), low, high));
        List<String> names = new ArrayList<>();
        for (Replica replica : proximity.sortedByProximity(endpoint(1), replicas)) {
            names.add(replica.endpoint().getAddress().getHostAddress());
        }
        return names;
    }

    private void publish(double first, double second, double third, long validNanos) {
        rank = Rank.of(
                Map.of(
                        "10.0.0.1", new Rank.Candidate(first, 0),
                        "10.0.0.2", new Rank.Candidate(second, 0),
                        "10.0.0.3", new Rank.Candidate(third, 0)),
                validNanos);
        ranking.update();
    }

    @Test
    void without_an_agent_replicas_have_the_stock_order() {
        ranking.update();
        assertEquals(List.of("10.0.0.3", "10.0.0.2", "10.0.0.1"), sorted());
    }

    @Test
    void with_a_rank_the_best_replica_is_first() {
        publish(0, 1, 0, HOUR);
        assertEquals(List.of("10.0.0.2", "10.0.0.1", "10.0.0.3"), sorted());
    }

    @Test
    void when_the_agent_is_gone_replicas_have_the_stock_order_again() {
        publish(0, 1, 0, HOUR);
        publish(0, 1, 0, -1);
        assertEquals(List.of("10.0.0.3", "10.0.0.2", "10.0.0.1"), sorted());
        rank = Rank.absent("its segment was closed");
        ranking.update();
        assertEquals(List.of("10.0.0.3", "10.0.0.2", "10.0.0.1"), sorted());
    }
}
