package io.skopos.client;

import java.io.IOException;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;

/** A publisher written from the layout, so that tests can damage what it wrote. One thread writes. */
final class TestSegment {
    static final int DIRECTORY = 8192;
    static final int ENTRIES = 16;
    static final int HEAP = 16384;
    static final int BYTES = 65536;
    static final int SLOTS = 4;
    static final int F64 = 1;
    static final int U64 = 3;

    final Path path;
    final ByteBuffer map;
    private int entries;
    private int end = HEAP;

    private TestSegment(Path path, ByteBuffer map) {
        this.path = path;
        this.map = map;
    }

    /** Makes a folder that a reader trusts. */
    static Path folder() throws IOException {
        return Files.createTempDirectory(
                "skopos-java", PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
    }

    static TestSegment create(Path folder, String node) throws IOException {
        Path path = folder.resolve("agent.seg");
        Files.deleteIfExists(path);
        ByteBuffer map;
        try (FileChannel channel = FileChannel.open(
                path, StandardOpenOption.CREATE_NEW, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            map = channel.map(FileChannel.MapMode.READ_WRITE, 0, BYTES).order(ByteOrder.LITTLE_ENDIAN);
        }
        TestSegment segment = new TestSegment(path, map);
        segment.text(0, "SKOPOSEG");
        map.putInt(8, 1).putInt(12, 4096).putLong(16, BYTES);
        map.putLong(40, DIRECTORY).putInt(48, ENTRIES).putInt(52, 320).putLong(56, HEAP);
        String boot = Files.readString(Path.of("/proc/sys/kernel/random/boot_id")).trim().replace("-", "");
        for (int at = 0; at < 16; at++) {
            map.put(64 + at, (byte) Integer.parseInt(boot.substring(2 * at, 2 * at + 2), 16));
        }
        map.putInt(108, node.length());
        segment.text(176, node);
        map.putInt(256, 1);
        return segment;
    }

    /** Registers a vertex, and returns its place. */
    int register(String topic, int type) {
        int entry = DIRECTORY + entries * 320;
        map.putInt(entry, 2).putInt(entry + 4, 1).putLong(entry + 8, end).putInt(entry + 16, SLOTS);
        map.putInt(entry + 24, type | 2 << 8 | topic.length() << 24);
        text(entry + 48, topic);
        map.putLong(end, (entries + 1L) << 32 | 2);
        entries += 1;
        map.putInt(272, entries);
        map.putLong(264, map.getLong(264) + 1);
        int vertex = end;
        end += 64 + SLOTS * 32;
        return vertex;
    }

    /** Publishes a number that was checked so many ns ago. Sample {@code n} has the time 1000 + n. */
    void publish(int vertex, long bits, long ageNanos) {
        long sample = map.getLong(vertex + 8);
        int slot = vertex + 64 + (int) (sample & SLOTS - 1) * 32;
        Layout.LONG.setRelease(map, slot, 2 * sample + 1);
        VarHandle.fullFence();
        Layout.LONG.setOpaque(map, slot + 8, 1_000 + sample);
        Layout.LONG.setOpaque(map, slot + 16, bits);
        Layout.LONG.setOpaque(map, slot + 24, 0L);
        Layout.LONG.setRelease(map, slot, 2 * sample + 2);
        Layout.LONG.setRelease(map, vertex + 8, sample + 1);
        map.putLong(vertex + 16, 1_000 + sample);
        map.putLong(vertex + 48, new BootClock().now() - ageNanos);
    }

    void publish(int vertex, double value, long ageNanos) {
        publish(vertex, Double.doubleToRawLongBits(value), ageNanos);
    }

    private void text(int at, String text) {
        byte[] bytes = text.getBytes(StandardCharsets.US_ASCII);
        for (int i = 0; i < bytes.length; i++) {
            map.put(at + i, bytes[i]);
        }
    }
}
