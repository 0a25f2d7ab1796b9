package io.skopos.ranking;

import io.skopos.client.Candidates;
import io.skopos.client.Rank;
import io.skopos.client.RankReader;
import io.skopos.client.Segments;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Supplier;
import javax.management.JMException;
import javax.management.MBeanServer;
import javax.management.ObjectName;

/**
 * Orders the replicas of requests by the rank that the agent of this machine publishes.
 *
 * <p>A thread reads the rank ten times a second, and another one looks up the addresses of candidates, so that a resolver
 * that is slow or away takes no rank away. A request reads one field and draws; it never waits, and nothing here throws into
 * it. A rank that is stale, absent, or lacks a replica gives null, and the caller takes its native order.
 */
public final class ReplicaRanking implements ReplicaRankingMXBean, AutoCloseable {
    /** The system property that names the profile. */
    public static final String PROFILE_PROPERTY = "skopos.profile";

    /** The profile without a property. */
    public static final String DEFAULT_PROFILE = "cassandra";

    /** Time between two reads of the rank: a tenth of the usual tick of an agent. */
    private static final long READ_MILLIS = 100;

    /** Time between two searches for names that are due to be looked up. */
    private static final long LOOK_UP_MILLIS = 100;

    /** Reads until publishers and their candidates are looked for again: a second. */
    private static final int READS_UNTIL_REFRESH = 10;

    /** The least time between two messages, so that a rank that comes and goes does not fill a log. */
    private static final long SAY_NANOS = 10_000_000_000L;

    private final String profile;
    private final Runnable refresh;
    private final Supplier<Rank> read;
    private final Function<String, InetAddress> resolve;
    private final Consumer<String> log;
    private final LongAdder ranked = new LongAdder();
    private final LongAdder natively = new LongAdder();
    private final LongAdder unranked = new LongAdder();
    private final LongAdder failures = new LongAdder();
    private volatile Weights weights = Weights.NONE;
    private volatile List<String> unresolved = List.of();
    private volatile boolean isClosed;
    private Boolean saidActive;
    private long saidAt;

    /**
     * Makes a ranking without a thread; the caller calls {@link #update}.
     *
     * @param refresh looks for publishers, called less often than {@code read}
     * @param resolve returns the address of a candidate without waiting; null if it is not known
     */
    public ReplicaRanking(
            String profile,
            Runnable refresh,
            Supplier<Rank> read,
            Function<String, InetAddress> resolve,
            Consumer<String> log) {
        this.profile = profile;
        this.refresh = refresh;
        this.read = read;
        this.resolve = resolve;
        this.log = log;
    }

    /**
     * Starts a ranking as system properties say: {@link #PROFILE_PROPERTY}, {@link Segments#FOLDER_PROPERTY},
     * {@link Candidates#PROPERTY}.
     *
     * @param log takes a message when the rank is used, and when it is not used any more
     */
    public static ReplicaRanking start(Consumer<String> log) {
        String profile = System.getProperty(PROFILE_PROPERTY, DEFAULT_PROFILE);
        RankReader reader = new RankReader(Segments.open(), profile);
        Candidates candidates = Candidates.ofProperties();
        ReplicaRanking ranking =
                new ReplicaRanking(profile, reader::refresh, reader::read, candidates::known, log);
        ranking.register();
        ranking.begin(candidates::lookUp);
        return ranking;
    }

    /**
     * Starts the threads.
     *
     * @param lookUp looks up addresses that are not known or old; it may wait
     */
    void begin(Runnable lookUp) {
        begin("skopos-ranking", this::follow);
        begin("skopos-resolver", () -> lookUpNames(lookUp));
    }

    private static void begin(String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        thread.start();
    }

    /**
     * Draws an order of the replicas of a request.
     *
     * @return an order of these replicas, the first to be asked first; null if the native order is to be used
     */
    public Comparator<InetAddress> order(Iterable<InetAddress> replicas) {
        try {
            Weights now = weights;
            if (!now.areValid(System.nanoTime())) {
                natively.increment();
                return null;
            }
            for (InetAddress replica : replicas) {
                if (!now.has(replica)) {
                    unranked.increment();
                    return null;
                }
            }
            Comparator<InetAddress> drawn = now.draw(replicas, () -> ThreadLocalRandom.current().nextDouble());
            (drawn == null ? unranked : ranked).increment();
            return drawn;
        } catch (RuntimeException e) {
            failures.increment();
            return null;
        }
    }

    /** Reads the rank. */
    public void update() {
        Rank rank = read.get();
        long now = System.nanoTime();
        if (rank.problem() != null) {
            weights = Weights.absent(rank.problem());
            unresolved = List.of();
            return;
        }
        Map<InetAddress, Double> fresh = new HashMap<>();
        List<String> unknown = new ArrayList<>();
        rank.candidates().forEach((name, candidate) -> {
            InetAddress address = resolve.apply(name);
            if (address == null) {
                unknown.add(name);
            } else {
                fresh.merge(address, candidate.weight(), Double::sum);
            }
        });
        weights = Weights.after(weights, fresh, now + rank.validNanos());
        unresolved = List.copyOf(unknown);
    }

    private void follow() {
        for (long reads = 0; !isClosed; reads++) {
            attempt(reads % READS_UNTIL_REFRESH == 0);
        }
    }

    /** Reads the rank once, and sleeps. A failure leaves requests their native order. */
    private void attempt(boolean isRefresh) {
        try {
            try {
                if (isRefresh) {
                    refresh.run();
                }
                update();
                say();
            } finally {
                Thread.sleep(READ_MILLIS);
            }
        } catch (InterruptedException e) {
            isClosed = true;
        } catch (RuntimeException | LinkageError | InternalError e) {
            // An InternalError is a segment that its owner truncated. It can come as late as in the sleep, which is a native
            // call; the next refresh drops the file.
            failures.increment();
            weights = Weights.absent("the rank could not be read: " + e);
        }
    }

    private void lookUpNames(Runnable lookUp) {
        while (!isClosed) {
            try {
                try {
                    lookUp.run();
                } finally {
                    Thread.sleep(LOOK_UP_MILLIS);
                }
            } catch (InterruptedException e) {
                isClosed = true;
            } catch (RuntimeException | LinkageError e) {
                failures.increment();
            }
        }
    }

    /** Logs whether the rank is used, if that has changed. */
    void say() {
        boolean isActive = isActive();
        long now = System.nanoTime();
        boolean isSoon = saidActive != null && now - saidAt < SAY_NANOS;
        if (isSoon || saidActive != null && saidActive == isActive) {
            return;
        }
        saidActive = isActive;
        saidAt = now;
        log.accept(isActive
                ? "replicas are ordered by the rank `" + profile + "` of Skopos: " + getWeights()
                : "replicas have their native order: " + getProblem());
    }

    private void register() {
        try {
            MBeanServer server = ManagementFactory.getPlatformMBeanServer();
            ObjectName name = new ObjectName("io.skopos:type=ReplicaRanking,profile=" + ObjectName.quote(profile));
            if (server.isRegistered(name)) {
                server.unregisterMBean(name);
            }
            server.registerMBean(this, name);
        } catch (JMException | RuntimeException e) {
            // The order of replicas does not depend on it.
            log.accept("the counters of Skopos are not in JMX: " + e);
        }
    }

    @Override
    public String getProfile() {
        return profile;
    }

    @Override
    public boolean isActive() {
        return weights.areValid(System.nanoTime());
    }

    @Override
    public String getProblem() {
        Weights now = weights;
        if (now.areValid(System.nanoTime())) {
            return "";
        }
        return now.problem() == null ? "the rank is too old" : now.problem();
    }

    @Override
    public Map<String, Double> getWeights() {
        return weights.shown();
    }

    @Override
    public List<String> getUnresolvedCandidates() {
        return unresolved;
    }

    @Override
    public long getRankedRequests() {
        return ranked.sum();
    }

    @Override
    public long getNativeRequests() {
        return natively.sum();
    }

    @Override
    public long getUnrankedRequests() {
        return unranked.sum();
    }

    @Override
    public long getFailures() {
        return failures.sum();
    }

    /** Ends the threads. Requests have their native order once the rank is too old. */
    @Override
    public void close() {
        isClosed = true;
    }
}
