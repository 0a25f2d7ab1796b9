package io.skopos.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

class RankReaderTest {
    private static final long SECOND = 1_000_000_000L;

    private final Path folder = TestSegment.folder();
    private final TestSegment segment = TestSegment.create(folder, "n01");

    RankReaderTest() throws IOException {}

    private void candidate(String name, double weight, double score, long age) {
        segment.publish(segment.register("n01/rank/db@" + name + "/weight", TestSegment.F64), weight, age);
        segment.publish(segment.register("n01/rank/db@" + name + "/score", TestSegment.F64), score, age);
    }

    private int about(String column, int type) {
        return segment.register("n01/rank_profile/db/" + column, type);
    }

    private Rank read() {
        return new RankReader(Segments.in(folder), "db").read();
    }

    @Test
    void weights_and_scores_of_the_own_node() {
        candidate("10.0.0.2:9042", 0.75, 0, 0);
        candidate("n03", 0.25, 2, 0);
        segment.publish(segment.register("n09/rank/db@n04/weight", TestSegment.F64), 1.0, 0);
        segment.publish(segment.register("n01/rank/other@n04/weight", TestSegment.F64), 1.0, 0);
        Rank rank = read();
        assertNull(rank.problem());
        assertEquals(2, rank.candidates().size());
        assertEquals(0.75, rank.candidates().get("10.0.0.2:9042").weight());
        assertEquals(2, rank.candidates().get("n03").score());
        assertTrue(rank.validNanos() > 4 * SECOND && rank.validNanos() <= 5 * SECOND, "" + rank.validNanos());
    }

    @Test
    void a_rank_ends_when_its_publisher_says() {
        candidate("n02", 1, 0, 3 * SECOND);
        assertNull(read().problem(), "valid for five seconds without a word");
        int valid = about("valid_seconds", TestSegment.F64);
        segment.publish(valid, 2.0, 0);
        assertTrue(read().problem().contains("too old"), read().problem());
        segment.publish(valid, 10.0, 0);
        assertNull(read().problem());
        segment.publish(valid, Double.NaN, 0);
        assertNull(read().problem());
    }

    @Test
    void each_absence_has_a_reason() {
        assertTrue(read().problem().contains("no agent"), read().problem());
        candidate("n02", 0, 0, 0);
        assertTrue(read().problem().contains("zero"), read().problem());
        candidate("n03", Double.NaN, 0, 0);
        assertTrue(read().problem().contains("weight of n03"), read().problem());
        segment.publish(about("native", TestSegment.U64), 1L, 0);
        assertTrue(read().problem().contains("nothing recent"), read().problem());
    }

    @Test
    void a_candidate_that_joins_is_found_by_the_next_refresh() {
        candidate("n02", 1, 0, 0);
        RankReader reader = new RankReader(Segments.in(folder), "db");
        assertEquals(1, reader.read().candidates().size());
        candidate("n03", 0.5, 0, 0);
        reader.refresh();
        assertEquals(2, reader.read().candidates().size());
    }

    @Test
    void names_of_candidates_become_addresses() throws IOException {
        InetAddress known = InetAddress.getByName("10.0.0.7");
        Candidates candidates = new Candidates(Map.of("n07", known), System::nanoTime);
        assertEquals(known, candidates.addressOf("n07"));
        assertEquals(InetAddress.getByName("10.0.0.2"), candidates.addressOf("10.0.0.2"));
        assertEquals(InetAddress.getByName("10.0.0.2"), candidates.addressOf("10.0.0.2:9042"));
        assertEquals(InetAddress.getByName("fd77::2"), candidates.addressOf("fd77::2"));
        assertNull(candidates.addressOf("no such=name"));
    }

    @Test
    @Timeout(180)
    void a_resolver_that_hangs_takes_no_known_address_away() throws Exception {
        AtomicLong now = new AtomicLong();
        CountDownLatch asked = new CountDownLatch(1);
        CountDownLatch end = new CountDownLatch(1);
        InetAddress first = InetAddress.getByName("10.0.0.7");
        Candidates candidates = new Candidates(Map.of(), now::get, name -> {
            if (now.get() == 0) {
                return first;
            }
            asked.countDown();
            awaited(end);
            return null;
        });
        assertNull(candidates.known("n07"), "it was not looked up yet");
        candidates.lookUp();
        assertEquals(first, candidates.known("n07"));
        now.set(61 * SECOND);
        Thread resolver = new Thread(candidates::lookUp);
        resolver.start();
        asked.await();
        assertEquals(first, candidates.known("n07"));
        assertNull(candidates.known("n08"));
        assertEquals(InetAddress.getByName("10.0.0.2"), candidates.known("10.0.0.2:9042"));
        end.countDown();
        resolver.join();
        assertEquals(first, candidates.known("n07"), "a resolver that knows nothing now takes nothing away");
    }

    @Test
    void a_name_that_is_not_asked_for_any_more_is_not_looked_up() throws IOException {
        AtomicLong now = new AtomicLong();
        List<String> resolved = new ArrayList<>();
        InetAddress address = InetAddress.getByName("10.0.0.7");
        Candidates candidates = new Candidates(Map.of(), now::get, name -> {
            resolved.add(name);
            return address;
        });
        candidates.known("n07");
        candidates.lookUp();
        now.set(61 * SECOND);
        candidates.lookUp();
        assertEquals(List.of("n07"), resolved);
        assertEquals(address, candidates.known("n07"));
        candidates.lookUp();
        assertEquals(List.of("n07", "n07"), resolved);
    }

    @Test
    void a_name_that_the_resolver_does_not_find_holds_up_no_other_one() throws IOException {
        AtomicLong now = new AtomicLong();
        List<String> resolved = new ArrayList<>();
        InetAddress address = InetAddress.getByName("10.0.0.7");
        AtomicReference<Candidates> candidates = new AtomicReference<>();
        candidates.set(new Candidates(Map.of(), now::get, name -> {
            resolved.add(name);
            if (!name.startsWith("dead")) {
                return address;
            }
            if (now.get() > 0) {
                // A replica joins while the resolver hangs on this name.
                candidates.get().known("n08");
            }
            return null;
        }));
        List<String> names = List.of("dead1", "dead2", "n07", "dead3", "dead4");
        names.forEach(candidates.get()::known);
        candidates.get().lookUp();
        assertEquals(5, resolved.size());
        resolved.clear();
        now.set(61 * SECOND);
        names.forEach(candidates.get()::known);
        candidates.get().lookUp();
        assertEquals(6, resolved.size());
        assertEquals("n07", resolved.get(0), "it was found before");
        assertEquals("n08", resolved.get(2), "it came while the first of the others was looked up");
        assertEquals(address, candidates.get().known("n08"));
    }

    private static void awaited(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    @Test
    void a_severity_is_a_score_without_its_noise() {
        assertEquals(0, Severity.of(0));
        assertEquals(0, Severity.of(0.2));
        assertEquals(0, Severity.of(Double.NaN));
        assertEquals(3, Severity.of(3));
        assertEquals(10, Severity.of(Double.POSITIVE_INFINITY));
    }

    @Test
    void a_wrong_call_prints_the_usage() throws InterruptedException {
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        PrintStream stream = new PrintStream(err, true, StandardCharsets.UTF_8);
        assertEquals(2, Main.run(new String[] {"rank"}, stream, stream));
        assertTrue(err.toString(StandardCharsets.UTF_8).startsWith("usage:"));
    }

    @Test
    void a_folder_without_rights_is_no_error() throws IOException {
        Files.delete(segment.path);
        Files.createDirectory(segment.path);
        assertTrue(read().problem().contains("no agent"));
    }
}
