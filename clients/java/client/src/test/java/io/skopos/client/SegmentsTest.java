package io.skopos.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Comparator;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class SegmentsTest {
    private static final long SECOND = 1_000_000_000L;

    private Path folder;
    private TestSegment segment;

    @BeforeEach
    void make() throws IOException {
        folder = TestSegment.folder();
        segment = TestSegment.create(folder, "n01");
    }

    @AfterEach
    void remove() throws IOException {
        try (Stream<Path> files = Files.walk(folder)) {
            files.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        }
    }

    @Test
    void the_latest_value_with_its_age() {
        int load = segment.register("n01/load/load_1m", TestSegment.F64);
        Segments segments = Segments.in(folder);
        Vertex vertex = segments.find("n01/load/load_1m");
        assertNotNull(vertex, segments.refused().toString());
        assertNull(vertex.latest(), "nothing was published yet");
        for (int value = 0; value < 10; value++) {
            segment.publish(load, (double) value, 3 * SECOND);
            Reading reading = vertex.latest();
            assertEquals(value, reading.value());
            assertEquals(1000 + value, reading.time());
            assertTrue(reading.ageNanos() >= 2.9 * SECOND, "age " + reading.ageNanos());
        }
    }

    @Test
    void the_age_of_a_reading_grows_while_a_program_holds_it() throws InterruptedException {
        segment.publish(segment.register("n01/a", TestSegment.F64), 1.0, SECOND);
        Reading reading = Segments.in(folder).find("n01/a").latest();
        long before = reading.ageNanos();
        Thread.sleep(1);
        assertTrue(reading.ageNanos() > before, "age " + before);
    }

    @Test
    void a_number_of_each_type() {
        int large = segment.register("n01/a", TestSegment.U64);
        int signed = segment.register("n01/b", 2);
        int structured = segment.register("n01/c", 4);
        segment.publish(large, -1L, 0);
        segment.publish(signed, -7L, 0);
        segment.publish(structured, 0L, 0);
        Segments segments = Segments.in(folder);
        assertEquals(0x1p64, segments.find("n01/a").latest().value());
        assertEquals(-7, segments.find("n01/b").latest().value());
        assertNull(segments.find("n01/c").latest(), "not a number");
        segment.map.putLong(signed + 64 + 24, 2);
        assertTrue(Double.isNaN(segments.find("n01/b").latest().value()), "its publisher does not know it");
    }

    @Test
    void a_vertex_that_ended_has_no_value() {
        int place = segment.register("n01/a", TestSegment.F64);
        segment.publish(place, 1.0, 0);
        Vertex vertex = Segments.in(folder).find("n01/a");
        assertNotNull(vertex.latest());
        segment.map.putLong(place, 0);
        assertNull(vertex.latest());
    }

    @Test
    void a_sample_that_is_being_written_is_not_read() {
        int place = segment.register("n01/a", TestSegment.F64);
        segment.publish(place, 1.0, 0);
        Vertex vertex = Segments.in(folder).find("n01/a");
        segment.map.putLong(place + 64, 1);
        assertNull(vertex.latest(), "the mark is odd");
    }

    @Test
    void a_reader_beside_a_writer_sees_whole_samples_only() throws InterruptedException {
        int place = segment.register("n01/a", TestSegment.U64);
        segment.publish(place, 0L, 0);
        Vertex vertex = Segments.in(folder).find("n01/a");
        Thread writer = new Thread(() -> {
            for (long n = 1; n < 200_000; n++) {
                segment.publish(place, n, 0);
            }
        });
        writer.start();
        long last = 0;
        long reads = 0;
        boolean isRunning = true;
        while (isRunning) {
            isRunning = writer.isAlive();
            Reading reading = vertex.latest();
            if (reading != null) {
                assertEquals(reading.time() - 1000, (long) reading.value(), "value and time are of one sample");
                assertTrue(reading.value() >= last, "samples do not go back");
                last = (long) reading.value();
                reads += 1;
            }
        }
        writer.join();
        assertTrue(reads > 0);
        assertEquals(199_999, last);
    }

    @Test
    void a_publisher_that_starts_again_is_found() throws IOException {
        segment.publish(segment.register("n01/a", TestSegment.F64), 1.0, 0);
        Segments segments = Segments.in(folder);
        assertEquals(1, segments.find("n01/a").latest().value());
        segment.map.putInt(256, 2);
        segments.refresh();
        assertNull(segments.find("n01/a"), "it was closed");
        TestSegment next = TestSegment.create(folder, "n01");
        next.publish(next.register("n01/a", TestSegment.F64), 2.0, 0);
        segments.refresh();
        assertEquals(2, segments.find("n01/a").latest().value());
    }

    /** Changes one number of the header or of an entry; the reader must refuse the file or leave the entry out. */
    @ParameterizedTest
    @CsvSource({
        "0, 4, 7, begin with SKOPOSEG",
        "8, 4, 2, version 2",
        "16, 8, 1099511627776, its header says",
        "40, 8, 65536, directory",
        "40, 8, -8, directory",
        "48, 4, 1000000, directory",
        "52, 4, 321, directory",
        "56, 8, 9999999, directory",
        "64, 4, 0, before the machine started",
        "108, 4, 65, name",
        "256, 4, 0, not finished",
    })
    void a_damaged_header_is_refused_with_a_reason(int at, int bytes, long number, String reason) {
        segment.publish(segment.register("n01/a", TestSegment.F64), 1.0, 0);
        put(at, bytes, number);
        Segments segments = Segments.in(folder);
        assertNull(segments.find("n01/a"));
        assertTrue(segments.refused().toString().contains(reason), segments.refused().toString());
    }

    @ParameterizedTest
    @CsvSource({"8, 8, 9999999", "8, 8, 16385", "8, 8, -64", "8, 8, 0", "16, 4, 3", "16, 4, 0", "16, 4, 1048576",
            "0, 4, 3", "4, 4, 0", "24, 4, 1", "24, 4, -1"})
    void a_damaged_entry_is_left_out(int at, int bytes, long number) {
        segment.publish(segment.register("n01/a", TestSegment.F64), 1.0, 0);
        segment.publish(segment.register("n01/b", TestSegment.F64), 2.0, 0);
        put(TestSegment.DIRECTORY + at, bytes, number);
        Segments segments = Segments.in(folder);
        assertNull(segments.find("n01/a"));
        assertEquals(2, segments.find("n01/b").latest().value(), "the other one is whole");
    }

    @Test
    void a_head_beyond_what_was_written_gives_no_value() {
        int place = segment.register("n01/a", TestSegment.F64);
        segment.publish(place, 1.0, 0);
        Vertex vertex = Segments.in(folder).find("n01/a");
        for (long head : new long[] {2, 5, Long.MAX_VALUE, -1, Long.MIN_VALUE}) {
            segment.map.putLong(place + 8, head);
            assertNull(vertex.latest(), "head " + head);
        }
    }

    @Test
    void a_directory_that_says_more_entries_than_fit_is_read_to_its_end() {
        segment.publish(segment.register("n01/a", TestSegment.F64), 1.0, 0);
        segment.map.putInt(272, -1);
        assertNotNull(Segments.in(folder).find("n01/a"));
    }

    @Test
    void files_that_are_cut_are_refused_and_one_cut_while_mapped_is_dropped()
            throws IOException, InterruptedException {
        segment.publish(segment.register("n01/a", TestSegment.F64), 1.0, 0);
        Segments segments = Segments.in(folder);
        Vertex vertex = segments.find("n01/a");
        for (int length : new int[] {60_000, 4096, 4095, 8, 0}) {
            cut(length);
            Segments after = Segments.in(folder);
            assertNull(after.find("n01/a"));
            assertEquals(1, after.refused().size(), "length " + length);
        }
        // The pages behind the end of the file are gone. The machine refuses the loads, and the process survives.
        try {
            for (int n = 0; n < 20_000; n++) {
                Reading reading = vertex.latest();
                assertTrue(reading == null || reading.value() != 1, "the value is gone");
            }
            // The error may come as late as in the next native call.
            Thread.sleep(1);
        } catch (InternalError e) {
            // As the documentation of the package says.
        }
        segments.refresh();
        assertNull(segments.find("n01/a"));
    }

    @Test
    void a_folder_that_others_may_write_to_is_not_read() throws IOException {
        segment.publish(segment.register("n01/a", TestSegment.F64), 1.0, 0);
        Files.setPosixFilePermissions(folder, PosixFilePermissions.fromString("rwxrwxrwx"));
        Segments segments = Segments.in(folder);
        assertNull(segments.find("n01/a"));
        assertTrue(segments.refused().toString().contains("other users may write"), segments.refused().toString());
    }

    @Test
    void without_a_folder_there_is_nothing_and_no_error() {
        Segments segments = Segments.in(folder.resolve("none"));
        assertNull(segments.find("n01/a"));
        assertTrue(segments.refused().isEmpty());
    }

    private void put(int at, int bytes, long number) {
        if (bytes == 4) {
            segment.map.putInt(at, (int) number);
        } else {
            segment.map.putLong(at, number);
        }
    }

    private void cut(int length) throws IOException {
        try (FileChannel channel = FileChannel.open(segment.path, StandardOpenOption.WRITE)) {
            channel.truncate(length);
        }
    }
}
