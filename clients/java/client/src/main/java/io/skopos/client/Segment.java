package io.skopos.client;

import java.io.IOException;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HashMap;
import java.util.Map;

/** The file of one publisher, mapped for reading, and the vertices of its directory. */
final class Segment {
    /** Attempts at an entry that its publisher changes meanwhile. A change takes some stores. */
    private static final int ENTRY_ATTEMPTS = 1000;

    private static final Path BOOT_ID = Path.of("/proc/sys/kernel/random/boot_id");

    private final Path path;
    private final Object fileKey;
    private final ByteBuffer map;
    private final BootClock clock;
    private final String node;
    private final int directoryOffset;
    private final int directoryCapacity;
    private final long heapOffset;
    private long listedVersion;
    private Map<String, Vertex> vertices = Map.of();

    private Segment(Path path, Object fileKey, ByteBuffer map, BootClock clock) throws Refused {
        this.path = path;
        this.fileKey = fileKey;
        this.map = map;
        this.clock = clock;
        if (longAt(0) != Layout.MAGIC) {
            throw new Refused("it does not begin with SKOPOSEG");
        }
        int version = intAt(Layout.LAYOUT_VERSION);
        if (version != Layout.VERSION) {
            throw new Refused("its layout has version " + version + ", and this program reads version " + Layout.VERSION);
        }
        if (longAt(Layout.FILE_BYTES) != map.capacity()) {
            throw new Refused("it has " + map.capacity() + " bytes, and its header says " + longAt(Layout.FILE_BYTES));
        }
        long offset = longAt(Layout.DIRECTORY_OFFSET);
        long capacity = Integer.toUnsignedLong(intAt(Layout.DIRECTORY_CAPACITY));
        heapOffset = longAt(Layout.HEAP_OFFSET);
        boolean isInside = offset >= Layout.HEADER_BYTES && offset % 8 == 0 && heapOffset <= map.capacity()
                && offset <= heapOffset && capacity <= (heapOffset - offset) / Layout.ENTRY_BYTES;
        if (!isInside || intAt(Layout.ENTRY_LENGTH) != Layout.ENTRY_BYTES) {
            throw new Refused("its directory lies outside of the file");
        }
        directoryOffset = (int) offset;
        directoryCapacity = (int) capacity;
        node = text(Layout.NODE, intAt(Layout.NODE_LENGTH), Layout.MAX_NAME_BYTES);
        if (node == null) {
            throw new Refused("its node has no valid name");
        }
        if (state() == Layout.STATE_NEW) {
            throw new Refused("its publisher has not finished it");
        }
        if (state() == Layout.STATE_CLOSED) {
            throw new Refused("its publisher has closed it");
        }
        if (!isOfThisBoot()) {
            throw new Refused("it was made before the machine started");
        }
        listedVersion = longAcquire(Layout.DIRECTORY_VERSION) - 1;
    }

    /**
     * Maps a segment.
     *
     * @param user number of the user that this process runs as
     */
    static Segment open(Path path, int user, BootClock clock) throws Refused {
        try (FileChannel channel = FileChannel.open(path, StandardOpenOption.READ, LinkOption.NOFOLLOW_LINKS)) {
            // The owner of a file can truncate it under its readers. This user and root are trusted not to.
            int owner = (Integer) Files.getAttribute(path, "unix:uid", LinkOption.NOFOLLOW_LINKS);
            if (owner != user && owner != 0) {
                throw new Refused("it belongs to user " + owner);
            }
            long bytes = channel.size();
            if (bytes < Layout.HEADER_BYTES) {
                throw new Refused("it is shorter than a header");
            }
            if (bytes > Layout.MAX_FILE_BYTES) {
                throw new Refused("it has more than " + Layout.MAX_FILE_BYTES + " bytes");
            }
            ByteBuffer map = channel.map(FileChannel.MapMode.READ_ONLY, 0, bytes);
            return new Segment(path, keyOf(path), map, clock);
        } catch (IOException | UnsupportedOperationException e) {
            throw new Refused(e.toString());
        } catch (InternalError e) {
            throw new Refused("it was truncated while it was read");
        }
    }

    /** Returns what tells this file from another one that has its path later. */
    static Object keyOf(Path path) throws IOException {
        return Files.getAttribute(path, "unix:fileKey", LinkOption.NOFOLLOW_LINKS);
    }

    Path path() {
        return path;
    }

    String node() {
        return node;
    }

    BootClock clock() {
        return clock;
    }

    /** Returns true if the file at the path is still this one, whole, and its publisher has not closed it. */
    boolean isCurrent() {
        try {
            boolean isWhole = fileKey.equals(keyOf(path)) && Files.size(path) == map.capacity();
            return isWhole && state() != Layout.STATE_CLOSED;
        } catch (IOException | UnsupportedOperationException | InternalError e) {
            return false;
        }
    }

    /** Returns all registered vertices by their topics; the directory is read again only after a change. */
    Map<String, Vertex> vertices() {
        try {
            long version = longAcquire(Layout.DIRECTORY_VERSION);
            if (version != listedVersion) {
                vertices = list();
                listedVersion = version;
            }
        } catch (InternalError e) {
            vertices = Map.of();
        }
        return vertices;
    }

    private Map<String, Vertex> list() {
        Map<String, Vertex> found = new HashMap<>();
        long length = Integer.toUnsignedLong(intAcquire(Layout.DIRECTORY_LENGTH));
        int entries = (int) Math.min(length, directoryCapacity);
        for (int index = 0; index < entries; index++) {
            Vertex vertex = entry(index);
            if (vertex != null) {
                found.put(vertex.topic(), vertex);
            }
        }
        return found;
    }

    /** Returns the vertex of an entry; null if it is free, damaged, or still being changed. */
    private Vertex entry(int index) {
        int at = directoryOffset + index * Layout.ENTRY_BYTES;
        for (int attempt = 0; attempt < ENTRY_ATTEMPTS; attempt++) {
            int version = intAcquire(at);
            int state = intAt(at + 4);
            long offset = longAt(at + 8);
            int slots = intAt(at + 16);
            int traits = intAt(at + 24);
            String topic = text(at + 48, traits >>> 24, Layout.MAX_TOPIC_BYTES);
            VarHandle.acquireFence();
            if (version % 2 != 0 || intAt(at) != version) {
                Thread.onSpinWait();
                continue;
            }
            if (state != Layout.ENTRY_REGISTERED || topic == null || !isVertex(offset, slots)) {
                return null;
            }
            long owner = (index + 1L) << 32 | Integer.toUnsignedLong(version);
            return new Vertex(this, topic, (int) offset, slots, traits & 0xFF, owner);
        }
        return null;
    }

    private boolean isVertex(long offset, int slots) {
        boolean isRing = slots > 0 && slots <= Layout.MAX_SLOTS && Integer.bitCount(slots) == 1;
        long bytes = Layout.HEAD_BYTES + (long) slots * Layout.SLOT_BYTES;
        return isRing && offset >= heapOffset && offset % 64 == 0 && offset <= map.capacity() - bytes;
    }

    private int state() {
        return intAcquire(Layout.STATE);
    }

    private boolean isOfThisBoot() {
        byte[] own = new byte[16];
        for (int at = 0; at < own.length; at++) {
            own[at] = map.get(Layout.BOOT_ID + at);
        }
        StringBuilder hex = new StringBuilder();
        for (byte b : own) {
            hex.append(Character.forDigit(b >> 4 & 15, 16)).append(Character.forDigit(b & 15, 16));
        }
        try {
            String boot = new String(Files.readAllBytes(BOOT_ID), StandardCharsets.US_ASCII);
            return boot.trim().replace("-", "").contentEquals(hex);
        } catch (IOException e) {
            // A container may hide the file. Ages by the boot clock still tell an old value.
            return true;
        }
    }

    private String text(int at, int length, int longest) {
        if (length <= 0 || length > longest) {
            return null;
        }
        byte[] bytes = new byte[length];
        for (int i = 0; i < length; i++) {
            bytes[i] = map.get(at + i);
            if (bytes[i] <= ' ') {
                return null;
            }
        }
        return new String(bytes, StandardCharsets.US_ASCII);
    }

    int intAt(int at) {
        return (int) Layout.INT.getOpaque(map, at);
    }

    long longAt(int at) {
        return (long) Layout.LONG.getOpaque(map, at);
    }

    int intAcquire(int at) {
        return (int) Layout.INT.getAcquire(map, at);
    }

    long longAcquire(int at) {
        return (long) Layout.LONG.getAcquire(map, at);
    }
}
