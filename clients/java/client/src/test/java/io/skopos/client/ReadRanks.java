package io.skopos.client;

import java.io.PrintStream;
import java.nio.file.Path;
import java.util.Locale;

/** Reads topics in turns for {@code skopos-bench rank}, and prints the mean ns of a read without and with its age. */
public final class ReadRanks {
    /** Rounds before the one that counts: the virtual machine compiles the loop in the first ones. */
    private static final int WARM_UPS = 4;

    /** The greatest age of a rank that is used. */
    private static final long VALID_NANOS = 5_000_000_000L;

    private static final String USAGE = "usage: ReadRanks READS FOLDER TOPIC...";

    private ReadRanks() {}

    /** Runs the program. Exit code 0 is success, 1 that a topic is not published, 2 a wrong call. */
    public static void main(String[] words) {
        System.exit(run(words, System.out, System.err));
    }

    static int run(String[] words, PrintStream out, PrintStream err) {
        if (words.length < 3) {
            err.println(USAGE);
            return 2;
        }
        int reads = Integer.parseInt(words[0]);
        Segments segments = Segments.in(Path.of(words[1]));
        Vertex[] vertices = new Vertex[words.length - 2];
        for (int at = 0; at < vertices.length; at++) {
            vertices[at] = segments.find(words[2 + at]);
            if (vertices[at] == null) {
                err.println("no segment has " + words[2 + at] + " " + segments.refused());
                return 1;
            }
        }
        for (boolean withAge : new boolean[] {false, true}) {
            double nanos = 0;
            for (int round = 0; round <= WARM_UPS; round++) {
                long started = System.nanoTime();
                double sum = withAge ? readWithAge(vertices, reads) : read(vertices, reads);
                nanos = (double) (System.nanoTime() - started) / reads;
                if (!(sum > 0)) {
                    err.println("no rank was read");
                    return 1;
                }
            }
            out.printf(Locale.ROOT, "%.3f%n", nanos);
        }
        return 0;
    }

    /** Returns the sum of all values, so that no read can be left out. */
    private static double read(Vertex[] vertices, int reads) {
        double sum = 0;
        int at = 0;
        for (int read = 0; read < reads; read++) {
            Reading reading = vertices[at].latest();
            if (reading != null) {
                sum += reading.value();
            }
            at = at + 1 == vertices.length ? 0 : at + 1;
        }
        return sum;
    }

    private static double readWithAge(Vertex[] vertices, int reads) {
        double sum = 0;
        int at = 0;
        for (int read = 0; read < reads; read++) {
            Reading reading = vertices[at].latest();
            if (reading != null && reading.ageNanos() < VALID_NANOS) {
                sum += reading.value();
            }
            at = at + 1 == vertices.length ? 0 : at + 1;
        }
        return sum;
    }
}
