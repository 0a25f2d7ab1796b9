package io.skopos.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;

class ReadRanksTest {
    private final ByteArrayOutputStream out = new ByteArrayOutputStream();
    private final ByteArrayOutputStream err = new ByteArrayOutputStream();

    private int run(String... words) {
        return ReadRanks.run(
                words,
                new PrintStream(out, true, StandardCharsets.UTF_8),
                new PrintStream(err, true, StandardCharsets.UTF_8));
    }

    @Test
    void two_numbers_are_printed_if_all_topics_are_published() throws IOException {
        Path folder = TestSegment.folder();
        TestSegment segment = TestSegment.create(folder, "n01");
        segment.publish(segment.register("n01/rank/reads@n02/weight", TestSegment.F64), 0.5, 0);
        segment.publish(segment.register("n01/rank/reads@n03/weight", TestSegment.F64), 0.5, 0);
        String[] topics = {"n01/rank/reads@n02/weight", "n01/rank/reads@n03/weight"};
        assertEquals(0, run("1000", folder.toString(), topics[0], topics[1]), err.toString(StandardCharsets.UTF_8));
        String[] lines = out.toString(StandardCharsets.UTF_8).trim().split("\\s+");
        assertEquals(2, lines.length);
        for (String line : lines) {
            assertTrue(Double.parseDouble(line) > 0, line);
        }
        assertEquals(1, run("1000", folder.toString(), topics[0], "n01/rank/reads@n04/weight"));
        assertTrue(err.toString(StandardCharsets.UTF_8).contains("n04"));
        assertEquals(2, run("1000", folder.toString()));
    }
}
