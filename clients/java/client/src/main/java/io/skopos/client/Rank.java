package io.skopos.client;

import java.util.Collections;
import java.util.Map;
import java.util.TreeMap;

/** The rank of a profile at one moment: a weight for each candidate, or the reason why there is no rank. */
public final class Rank {
    private final Map<String, Candidate> candidates;
    private final long validNanos;
    private final String problem;

    private Rank(Map<String, Candidate> candidates, long validNanos, String problem) {
        this.candidates = candidates;
        this.validNanos = validNanos;
        this.problem = problem;
    }

    /** Makes the answer that there is no rank. */
    public static Rank absent(String problem) {
        return new Rank(Map.of(), 0, problem);
    }

    /** Makes a rank that may be used for some ns. */
    public static Rank of(Map<String, Candidate> candidates, long validNanos) {
        return new Rank(Collections.unmodifiableMap(new TreeMap<>(candidates)), validNanos, null);
    }

    /** Returns the candidates by name; empty without a rank. */
    public Map<String, Candidate> candidates() {
        return candidates;
    }

    /** Returns the ns from the read until the rank is too old to be used. */
    public long validNanos() {
        return validNanos;
    }

    /** Returns the reason why there is no rank, with what to do; null if there is one. */
    public String problem() {
        return problem;
    }

    /** A node among which programs choose. */
    public static final class Candidate {
        private final double weight;
        private final double score;

        /** Makes a candidate; the score is NaN if it is not known. */
        public Candidate(double weight, double score) {
            this.weight = weight;
            this.score = score;
        }

        /** Returns the share of requests, from 0 to 1. */
        public double weight() {
            return weight;
        }

        /** Returns the score: 0 is the best, 1 is twice as bad; NaN if it is not published. */
        public double score() {
            return score;
        }
    }
}
