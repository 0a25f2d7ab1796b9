package io.skopos.client;

import java.io.IOException;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import javax.management.JMException;

/** The program in the jar: prints a rank, or steers nodes of Cassandra without a jar in them. */
public final class Main {
    private static final String USAGE = "usage: java -jar skopos-client.jar rank PROFILE\n"
            + "       java -jar skopos-client.jar severity PROFILE [HOST:PORT]...\n\n"
            + "rank      prints the candidates of a profile, each with weight and score\n"
            + "severity  sets the severity of each node of Cassandra at these addresses of JMX (127.0.0.1:7199)\n"
            + "          from its score, once a second; when it is ended, it sets them to 0\n";

    /** Time between two settings. Cassandra gossips once a second. */
    private static final long EVERY_MILLIS = 1000;

    /** Time in which a node takes severity 0 at the end. One that is away would hold up the end by minutes. */
    private static final long GIVE_BACK_MILLIS = 10_000;

    private static final String DEFAULT_ADDRESS = "127.0.0.1:7199";

    private Main() {}

    /** Runs a command. Exit code 0 is success, 1 that there is no rank, 2 a wrong call. */
    public static void main(String[] words) throws InterruptedException {
        int code = run(words, System.out, System.err);
        System.exit(code);
    }

    static int run(String[] words, PrintStream out, PrintStream err) throws InterruptedException {
        if (words.length == 2 && words[0].equals("rank")) {
            return rank(new RankReader(Segments.open(), words[1]), out, err);
        }
        if (words.length >= 2 && words[0].equals("severity")) {
            List<String> addresses = Arrays.asList(words).subList(2, words.length);
            return severity(words[1], addresses.isEmpty() ? List.of(DEFAULT_ADDRESS) : addresses, err);
        }
        err.print(USAGE);
        return 2;
    }

    private static int rank(RankReader reader, PrintStream out, PrintStream err) {
        Rank rank = reader.read();
        if (rank.problem() != null) {
            err.println("no rank: " + rank.problem());
            return 1;
        }
        for (Map.Entry<String, Rank.Candidate> candidate : rank.candidates().entrySet()) {
            out.printf("%s\t%.4f\t%.4f%n", candidate.getKey(), candidate.getValue().weight(), candidate.getValue().score());
        }
        return 0;
    }

    private static int severity(String profile, List<String> addresses, PrintStream err) throws InterruptedException {
        List<Thread> threads = new ArrayList<>();
        for (String address : addresses) {
            Severity severity;
            try {
                severity = new Severity(address, new RankReader(Segments.open(), profile), Candidates.ofProperties());
            } catch (IOException e) {
                err.println("error: `" + address + "` is not an address of JMX: " + e.getMessage());
                return 2;
            }
            Runtime.getRuntime().addShutdownHook(new Thread(() -> giveBackInTime(severity, address, err)));
            // A node that does not answer delays no other.
            threads.add(new Thread(() -> follow(severity, address, err)));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        return 0;
    }

    /** Sets the severity of a node until the program is ended, and says each change. */
    private static void follow(Severity severity, String address, PrintStream err) {
        String last = null;
        while (true) {
            try {
                String now = address + String.format(Locale.ROOT, ": severity %.2f", severity.apply());
                String problem = severity.problem();
                last = say(err, last, problem == null ? now : now + ": " + problem);
                Thread.sleep(EVERY_MILLIS);
            } catch (IOException | JMException | RuntimeException | InternalError e) {
                // Said once for each cause: a node that restarts is away for a minute.
                last = say(err, last, "warning: " + address + ": " + e + "; trying again");
                severity.disconnect();
                pause();
            } catch (InterruptedException e) {
                return;
            }
        }
    }

    /** Prints a line about a node, unless it is the last one. Returns the line. */
    private static String say(PrintStream err, String last, String line) {
        if (!line.equals(last)) {
            err.println(line);
        }
        return line;
    }

    private static void pause() {
        try {
            Thread.sleep(EVERY_MILLIS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static void giveBackInTime(Severity severity, String address, PrintStream err) {
        Thread thread = new Thread(() -> giveBack(severity, address, err));
        thread.setDaemon(true);
        thread.start();
        try {
            thread.join(GIVE_BACK_MILLIS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        if (thread.isAlive()) {
            err.println("warning: " + address + ": the severity could not be set to 0: the node does not answer");
        }
    }

    private static void giveBack(Severity severity, String address, PrintStream err) {
        try {
            severity.reset();
        } catch (IOException | JMException | RuntimeException e) {
            err.println("warning: " + address + ": the severity could not be set to 0: " + e);
        }
    }
}
