package io.skopos.ranking;

import java.net.InetAddress;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.DoubleSupplier;

/** The weights of replicas by address, until a time. */
final class Weights {
    /**
     * Replicas with at least this share of the best weight are near-equal: requests are drawn among them by weight. Below
     * it a replica is twice as bad or worse, and gets requests only when the others cannot answer.
     */
    static final double NEAR = 0.5;

    /** Changes of a weight below this share are held back, so that noise does not move requests. */
    static final double STEP = 0.2;

    /**
     * Share of requests that ask a replica first which is not near-equal. A disk that is not read shows no times, so without
     * them a replica that became fast again would not be found. Half of what a 99th percentile leaves out.
     */
    static final double EXPLORE = 0.005;

    static final Weights NONE = new Weights(Map.of(), 0, "the rank was not read yet");

    /** The key of a replica before all others, which have 0 or more. */
    private static final double FIRST = -1;

    private final Map<InetAddress, Double> byAddress;
    private final long validUntil;
    private final String problem;

    private Weights(Map<InetAddress, Double> byAddress, long validUntil, String problem) {
        this.byAddress = byAddress;
        this.validUntil = validUntil;
        this.problem = problem;
    }

    /**
     * Makes weights from new ones, and from the old ones where the difference is small. Without an address they are not
     * valid.
     */
    static Weights after(Weights old, Map<InetAddress, Double> fresh, long validUntil) {
        Map<InetAddress, Double> kept = new HashMap<>(fresh);
        if (old.byAddress.keySet().equals(fresh.keySet())) {
            kept.replaceAll((address, weight) -> {
                double before = old.byAddress.get(address);
                return Math.abs(weight - before) <= STEP * Math.max(weight, before) ? before : weight;
            });
        }
        return new Weights(kept, validUntil, kept.isEmpty() ? "no candidate has an address yet" : null);
    }

    static Weights absent(String problem) {
        return new Weights(Map.of(), 0, problem);
    }

    /** Returns true if the weights may be used at this {@link System#nanoTime}. */
    boolean areValid(long nanoTime) {
        return problem == null && nanoTime - validUntil < 0;
    }

    boolean has(InetAddress address) {
        return byAddress.containsKey(address);
    }

    String problem() {
        return problem;
    }

    /** Returns the weights by the text of the address. */
    Map<String, Double> shown() {
        Map<String, Double> shown = new TreeMap<>();
        byAddress.forEach((address, weight) -> shown.put(address.getHostAddress(), weight));
        return shown;
    }

    /**
     * Draws an order: near-equal replicas by chance with their weights, then the others with the greatest weight first; but
     * now and then one of the others is before all.
     * All replicas must be known. Returns null if no replica has a weight above zero.
     *
     * @param random numbers from 0, included, to 1, excluded
     */
    Comparator<InetAddress> draw(Iterable<InetAddress> replicas, DoubleSupplier random) {
        double best = 0;
        for (InetAddress replica : replicas) {
            best = Math.max(best, byAddress.get(replica));
        }
        if (!(best > 0)) {
            return null;
        }
        Map<InetAddress, Double> keys = new HashMap<>();
        List<InetAddress> others = new ArrayList<>();
        for (InetAddress replica : replicas) {
            double weight = byAddress.get(replica);
            boolean isNear = weight >= NEAR * best;
            keys.put(replica, isNear ? drawn(weight / best, random.getAsDouble()) : 2 - weight / best);
            // A weight of zero excludes a replica.
            if (!isNear && weight > 0) {
                others.add(replica);
            }
        }
        if (!others.isEmpty() && random.getAsDouble() < EXPLORE) {
            keys.put(others.get((int) (random.getAsDouble() * others.size())), FIRST);
        }
        return Comparator.comparing(keys::get);
    }

    /**
     * Maps an exponential variate of rate {@code weight} to the numbers below 1. The smallest of several such numbers
     * belongs to each of them with the probability of its share of the weights.
     */
    private static double drawn(double weight, double random) {
        double time = -Math.log1p(-random) / weight;
        return time / (1 + time);
    }
}
