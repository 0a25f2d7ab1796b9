package io.skopos.ranking;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.skopos.client.Rank;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.concurrent.CountDownLatch;
import java.util.function.Supplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

class ReplicaRankingTest {
    private static final long HOUR = 3_600_000_000_000L;
    private static final int DRAWS = 20_000;

    private final InetAddress fast = address(1);
    private final InetAddress near = address(2);
    private final InetAddress slow = address(3);
    private final List<InetAddress> all = List.of(slow, near, fast);
    private Rank rank = Rank.absent("no agent");
    private final ReplicaRanking ranking =
            new ReplicaRanking("db", () -> {}, () -> rank, this::resolved, message -> {});

    private static InetAddress address(int last) {
        try {
            return InetAddress.getByAddress(new byte[] {10, 0, 0, (byte) last});
        } catch (UnknownHostException e) {
            throw new AssertionError(e);
        }
    }

    private InetAddress resolved(String name) {
        return Map.of("n1", fast, "n2", near, "n3", slow).get(name);
    }

    private void publish(double first, double second, double third) {
        rank = Rank.of(
                Map.of(
                        "n1", new Rank.Candidate(first, 0),
                        "n2", new Rank.Candidate(second, 0),
                        "n3", new Rank.Candidate(third, 0)),
                HOUR);
        ranking.update();
    }

    private List<InetAddress> ordered(Comparator<InetAddress> order) {
        List<InetAddress> ordered = new ArrayList<>(all);
        ordered.sort(order);
        return ordered;
    }

    @Test
    void without_a_rank_the_order_is_native() {
        ranking.update();
        assertNull(ranking.order(all));
        assertEquals(1, ranking.getNativeRequests());
        assertFalse(ranking.isActive());
        assertEquals("no agent", ranking.getProblem());
    }

    @Test
    void near_equal_replicas_are_drawn_by_weight_and_a_slow_one_is_seldom_first() {
        publish(0.5, 0.4, 0.1);
        Map<InetAddress, Integer> first = new HashMap<>();
        for (int draw = 0; draw < DRAWS; draw++) {
            List<InetAddress> order = ordered(ranking.order(all));
            first.merge(order.get(0), 1, Integer::sum);
            assertTrue(order.get(0).equals(slow) || order.get(2).equals(slow), "first or last");
        }
        assertEquals(Weights.EXPLORE, first.get(slow) / (double) DRAWS, 0.004);
        // Five ninths; the deviation of a share of 20,000 draws is 0.0035.
        assertEquals(5.0 / 9, first.get(fast) / (double) DRAWS, 0.02);
        assertEquals(DRAWS, ranking.getRankedRequests());
    }

    @Test
    void shares_follow_weights_for_many_near_equals() {
        SplittableRandom random = new SplittableRandom(7);
        Map<InetAddress, Double> weights = Map.of(fast, 0.4, near, 0.35, slow, 0.25);
        Weights of = Weights.after(Weights.NONE, weights, 0);
        Map<InetAddress, Integer> first = new HashMap<>();
        for (int draw = 0; draw < DRAWS; draw++) {
            first.merge(ordered(of.draw(all, random::nextDouble)).get(0), 1, Integer::sum);
        }
        weights.forEach((replica, weight) -> assertEquals(weight, first.get(replica) / (double) DRAWS, 0.02));
    }

    @Test
    void a_rank_that_is_too_old_gives_the_native_order() {
        publish(0.5, 0.4, 0.1);
        assertNotNull(ranking.order(all));
        rank = Rank.of(rank.candidates(), -1);
        ranking.update();
        assertNull(ranking.order(all));
        assertEquals("the rank is too old", ranking.getProblem());
    }

    @Test
    void a_replica_without_a_rank_gives_the_native_order() {
        publish(0.5, 0.4, 0.1);
        assertNull(ranking.order(List.of(fast, address(9))));
        assertEquals(1, ranking.getUnrankedRequests());
        assertNotNull(ranking.order(List.of(fast, slow)), "other requests are ordered by the rank");
    }

    @Test
    void replicas_that_all_have_weight_zero_keep_their_native_order() {
        publish(1, 0, 0);
        assertNull(ranking.order(List.of(near, slow)));
        assertEquals(fast, ordered(ranking.order(all)).get(0));
    }

    @Test
    void an_excluded_replica_is_never_first() {
        publish(0.5, 0.5, 0);
        for (int draw = 0; draw < DRAWS; draw++) {
            assertEquals(slow, ordered(ranking.order(all)).get(2));
        }
    }

    @Test
    void a_small_change_is_held_back() {
        publish(0.5, 0.4, 0.1);
        publish(0.45, 0.45, 0.1);
        assertEquals(0.5, ranking.getWeights().get("10.0.0.1"), "a tenth is noise");
        publish(0.3, 0.6, 0.1);
        assertEquals(0.3, ranking.getWeights().get("10.0.0.1"));
        assertEquals(0.6, ranking.getWeights().get("10.0.0.2"));
    }

    @Test
    void a_candidate_without_an_address_is_named() {
        rank = Rank.of(Map.of("n1", new Rank.Candidate(0.5, 0), "n8", new Rank.Candidate(0.5, 0)), HOUR);
        ranking.update();
        assertEquals(List.of("n8"), ranking.getUnresolvedCandidates());
        assertNull(ranking.order(List.of(fast, near)));
    }

    @Test
    void a_rank_is_not_used_before_a_candidate_has_an_address() {
        Map<String, InetAddress> known = new HashMap<>();
        List<String> messages = new ArrayList<>();
        Rank fresh = Rank.of(Map.of("n1", new Rank.Candidate(0.5, 0), "n2", new Rank.Candidate(0.5, 0)), HOUR);
        ReplicaRanking named = new ReplicaRanking("db", () -> {}, () -> fresh, known::get, messages::add);
        named.update();
        named.say();
        assertFalse(named.isActive());
        assertEquals("no candidate has an address yet", named.getProblem());
        assertEquals(List.of("n1", "n2"), named.getUnresolvedCandidates());
        assertNull(named.order(List.of(fast)));
        assertEquals(1, named.getNativeRequests());
        assertEquals(List.of("replicas have their native order: no candidate has an address yet"), messages);
        known.put("n1", fast);
        named.update();
        assertTrue(named.isActive());
        assertEquals("", named.getProblem());
        assertNotNull(named.order(List.of(fast)));
    }

    @Test
    @Timeout(180)
    void the_rank_is_read_while_a_resolver_hangs() throws InterruptedException {
        CountDownLatch hangs = new CountDownLatch(1);
        CountDownLatch reads = new CountDownLatch(3);
        CountDownLatch end = new CountDownLatch(1);
        Rank fresh = Rank.of(Map.of("n1", new Rank.Candidate(1, 0)), HOUR);
        Supplier<Rank> read = () -> {
            if (hangs.getCount() == 0) {
                reads.countDown();
            }
            return fresh;
        };
        try (ReplicaRanking running = new ReplicaRanking("db", () -> {}, read, this::resolved, message -> {})) {
            running.begin(() -> {
                hangs.countDown();
                try {
                    end.await();
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            });
            reads.await();
            assertTrue(running.isActive());
            assertNotNull(running.order(List.of(fast)));
        } finally {
            end.countDown();
        }
    }

    @Test
    void a_failure_leaves_the_request_as_it_was() {
        publish(0.5, 0.4, 0.1);
        assertNull(ranking.order(() -> {
            throw new IllegalStateException("a broken list");
        }));
        assertEquals(1, ranking.getFailures());
    }

    @Test
    void an_order_is_consistent_however_often_it_is_asked() {
        publish(0.5, 0.4, 0.1);
        Comparator<InetAddress> order = ranking.order(all);
        assertTrue(ordered(order).equals(ordered(order)));
    }
}
