package io.skopos.client;

import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermission;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/**
 * All segments that are published on this machine and that this user may trust: those of its own programs and of the
 * system's agent, which runs as root.
 *
 * <p>{@link #refresh} looks for new and ended publishers; it makes system calls, so a program calls it once a second from a
 * thread of its own. No method throws. The object is for one thread, the vertices that it returns are for all.
 */
public final class Segments {
    /** The variable, and the system property, that name the only folder to search. */
    public static final String FOLDER_VARIABLE = "SKOPOS_DIR";

    /** The system property that replaces {@link #FOLDER_VARIABLE}. */
    public static final String FOLDER_PROPERTY = "skopos.dir";

    /** The most files of a folder that are looked at. A machine has a publisher for each service. */
    private static final int MAX_FILES = 4096;

    private static final String ENDING = ".seg";

    private final List<Path> folders;
    private final int user;
    private final BootClock clock = new BootClock();
    private final Map<Path, Segment> segments = new TreeMap<>();
    private final Map<Path, String> refused = new TreeMap<>();

    private Segments(List<Path> folders) {
        this.folders = folders;
        this.user = effectiveUser();
        refresh();
    }

    /** Opens the segments in the usual folders. */
    public static Segments open() {
        String pinned = System.getProperty(FOLDER_PROPERTY, System.getenv(FOLDER_VARIABLE));
        if (pinned != null && !pinned.isEmpty()) {
            return in(Path.of(pinned));
        }
        int user = effectiveUser();
        List<Path> folders = new ArrayList<>();
        folders.add(Path.of("/dev/shm/skopos-" + user));
        if (user != 0) {
            folders.add(Path.of("/dev/shm/skopos-0"));
        }
        return new Segments(folders);
    }

    /** Opens the segments in one folder. */
    public static Segments in(Path folder) {
        return new Segments(List.of(folder));
    }

    /** Looks for new and ended publishers. */
    public void refresh() {
        clock.adjust();
        refused.clear();
        segments.values().removeIf(segment -> !segment.isCurrent());
        for (Path folder : folders) {
            for (Path path : files(folder)) {
                if (!segments.containsKey(path)) {
                    try {
                        segments.put(path, Segment.open(path, user, clock));
                    } catch (Refused e) {
                        refused.put(path, e.getMessage());
                    }
                }
            }
        }
    }

    /** Returns the files that are not read, with the reasons. */
    public Map<Path, String> refused() {
        return Map.copyOf(refused);
    }

    /**
     * Returns the vertices of all nodes whose topics begin with a path below the publisher's own node, by the rest of the
     * topic: {@code below("rank/db@")} has {@code 10.0.0.2/weight} for {@code n01/rank/db@10.0.0.2/weight}.
     */
    public Map<String, Vertex> below(String path) {
        Map<String, Vertex> found = new HashMap<>();
        for (Segment segment : segments.values()) {
            // Copies of other nodes have their names; each node ranks for its own programs.
            String prefix = segment.node() + "/" + path;
            segment.vertices().forEach((topic, vertex) -> {
                if (topic.startsWith(prefix)) {
                    found.putIfAbsent(topic.substring(prefix.length()), vertex);
                }
            });
        }
        return found;
    }

    /** Returns the vertex of a topic; null without one. */
    public Vertex find(String topic) {
        for (Segment segment : segments.values()) {
            Vertex vertex = segment.vertices().get(topic);
            if (vertex != null) {
                return vertex;
            }
        }
        return null;
    }

    private List<Path> files(Path folder) {
        List<Path> files = new ArrayList<>();
        try {
            int owner = (Integer) Files.getAttribute(folder, "unix:uid", LinkOption.NOFOLLOW_LINKS);
            if (owner != user && owner != 0) {
                refused.put(folder, "it belongs to user " + owner);
                return files;
            }
            Set<PosixFilePermission> allowed = Files.getPosixFilePermissions(folder, LinkOption.NOFOLLOW_LINKS);
            if (allowed.contains(PosixFilePermission.GROUP_WRITE) || allowed.contains(PosixFilePermission.OTHERS_WRITE)) {
                refused.put(folder, "other users may write to it");
                return files;
            }
            try (DirectoryStream<Path> entries = Files.newDirectoryStream(folder, "*" + ENDING)) {
                for (Path path : entries) {
                    if (files.size() == MAX_FILES) {
                        refused.put(folder, "it has more than " + MAX_FILES + " segments, and the rest is not read");
                        break;
                    }
                    files.add(path);
                }
            }
        } catch (NoSuchFileException | NotDirectoryException e) {
            // Skopos does not run here.
        } catch (IOException | RuntimeException e) {
            refused.put(folder, e.toString());
        }
        return files;
    }

    private static int effectiveUser() {
        try {
            return (Integer) Files.getAttribute(Path.of("/proc/self"), "unix:uid");
        } catch (IOException | RuntimeException e) {
            // Root's files are still trusted.
            return 0;
        }
    }
}
