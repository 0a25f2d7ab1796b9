package io.skopos.client;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * The time on {@code CLOCK_BOOTTIME}, which no step of the wall clock changes.
 *
 * <p>Java has no such clock. {@link System#nanoTime} runs at its pace but stands still while the machine sleeps, so the
 * difference is read from {@code /proc/uptime} at each {@link #adjust}. The resolution is that of the file, 10 ms.
 */
final class BootClock {
    private static final Path UPTIME = Path.of("/proc/uptime");
    private static final double NANOS = 1e9;

    /** Boot time less {@code nanoTime} in ns, or {@link Long#MIN_VALUE} if it is not known. */
    private volatile long ahead = Long.MIN_VALUE;

    BootClock() {
        adjust();
    }

    /** Reads the difference of both clocks again: a system call or two. */
    void adjust() {
        try {
            String text = new String(Files.readAllBytes(UPTIME), StandardCharsets.US_ASCII);
            int end = text.indexOf(' ');
            double seconds = Double.parseDouble(end < 0 ? text.trim() : text.substring(0, end));
            ahead = (long) (seconds * NANOS) - System.nanoTime();
        } catch (IOException | NumberFormatException e) {
            ahead = Long.MIN_VALUE;
        }
    }

    /** Returns true if the time is known. */
    boolean isKnown() {
        return ahead != Long.MIN_VALUE;
    }

    /** Returns the time since the machine started in ns. */
    long now() {
        return System.nanoTime() + ahead;
    }
}
