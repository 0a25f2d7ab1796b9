package io.skopos.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Reads what a real agent publishes. {@code SKOPOS_PROGRAM} is the path of the program {@code skopos}. */
class LiveTest {
    private static final long PATIENCE_NANOS = 180_000_000_000L;

    private static final String CONFIGURATION = "[[rank]]\n"
            + "candidates = ['10.0.0.2:9042', 'n03']\n"
            + "every = '200ms'\n"
            + "[rank.profile]\n"
            + "name = 'reads'\n"
            + "[[rank.profile.metrics]]\n"
            + "name = 'read'\n"
            + "topic = '{self}/app/{candidate}/seconds'\n"
            + "floor = 1e-4\n"
            + "max_age_seconds = 3600\n";

    private final String program = System.getenv("SKOPOS_PROGRAM");
    private Path folder;
    private Process agent;

    @BeforeEach
    void start() throws IOException {
        assumeTrue(program != null && new File(program).canExecute(), "SKOPOS_PROGRAM is not the path of skopos");
        folder = TestSegment.folder();
        Path config = Files.writeString(folder.resolve("skopos.toml"), CONFIGURATION);
        agent = skopos("agent", "--node", "n01", "--config", config.toString());
    }

    @AfterEach
    void stop() throws IOException, InterruptedException {
        if (agent != null) {
            agent.destroy();
            if (!agent.waitFor(60, TimeUnit.SECONDS)) {
                agent.destroyForcibly();
            }
        }
        if (folder != null) {
            try (Stream<Path> files = Files.walk(folder)) {
                files.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
            }
        }
    }

    @Test
    void facts_and_a_published_value_of_an_agent() throws IOException, InterruptedException {
        Segments segments = Segments.in(folder);
        await("the agent measures memory", () -> {
            segments.refresh();
            return segments.find("n01/mem/total_bytes") != null && segments.find("n01/mem/total_bytes").latest() != null;
        });
        assertTrue(segments.find("n01/mem/total_bytes").latest().value() > 1e6);

        assertEquals(0, skopos("publish", "app/depth", "17").waitFor());
        segments.refresh();
        Vertex depth = segments.find("n01/app/depth");
        assertEquals(17, depth.latest().value());
        assertTrue(depth.latest().ageNanos() < PATIENCE_NANOS);
        assertEquals(0, skopos("publish", "app/depth", "18").waitFor());
        assertEquals(18, depth.latest().value());

        agent.destroy();
        agent.waitFor();
        agent = null;
        segments.refresh();
        assertEquals(null, segments.find("n01/app/depth"), "the agent closed its segment");
    }

    @Test
    void a_rank_of_an_agent_until_the_agent_is_gone() throws IOException, InterruptedException {
        RankReader reader = new RankReader(Segments.in(folder), "reads");
        await("the agent ranks", () -> {
            reader.refresh();
            return !reader.read().problem().contains("no agent");
        });
        assertTrue(reader.read().problem().contains("nothing recent"), reader.read().problem());

        assertEquals(0, skopos("publish", "app/10.0.0.2:9042/seconds", "0.001").waitFor());
        assertEquals(0, skopos("publish", "app/n03/seconds", "0.004").waitFor());
        await("both are ranked", () -> {
            reader.refresh();
            Rank rank = reader.read();
            return rank.problem() == null && rank.candidates().get("n03").score() > 2;
        });
        Rank rank = reader.read();
        assertEquals(0, rank.candidates().get("10.0.0.2:9042").score());
        double sum = rank.candidates().values().stream().mapToDouble(Rank.Candidate::weight).sum();
        assertEquals(1, sum, 1e-9);
        assertTrue(rank.candidates().get("n03").weight() < 0.2);

        // It has no time to close anything.
        agent.destroyForcibly().waitFor();
        agent = null;
        await("the rank ends by its age", () -> {
            reader.refresh();
            return reader.read().problem() != null;
        });
    }

    private Process skopos(String... words) throws IOException {
        ProcessBuilder builder = new ProcessBuilder(program);
        builder.command().addAll(java.util.List.of(words));
        builder.environment().put("SKOPOS_DIR", folder.toString());
        builder.environment().put("SKOPOS_STATE", folder.resolve("state").toString());
        builder.redirectOutput(ProcessBuilder.Redirect.DISCARD).redirectError(ProcessBuilder.Redirect.INHERIT);
        return builder.start();
    }

    private static void await(String what, BooleanSupplier holds) throws InterruptedException {
        long since = System.nanoTime();
        while (!holds.getAsBoolean()) {
            assertTrue(System.nanoTime() - since < PATIENCE_NANOS, what);
            Thread.sleep(20);
        }
    }
}
