package io.skopos.client;

import java.util.HashMap;
import java.util.Map;

/**
 * Reads the rank that the agent of this machine publishes for one profile.
 *
 * <p>The topics are {@code NODE/rank/PROFILE@CANDIDATE/weight} and {@code score} for each candidate, and {@code native} and
 * {@code valid_seconds} in {@code NODE/rank_profile/PROFILE/}. For one thread.
 */
public final class RankReader {
    /** Validity of a rank that does not say it: five ticks of an agent that ranks once a second. */
    private static final double VALID_SECONDS = 5;

    /** The longest validity that is believed. An hour-old rank says nothing of a node's load. */
    private static final double MAX_VALID_SECONDS = 3600;

    private final Segments segments;
    private final String profile;
    private Map<String, Vertex> columns = Map.of();
    private Map<String, Vertex> about = Map.of();

    /** Makes a reader of a profile. */
    public RankReader(Segments segments, String profile) {
        this.segments = segments;
        this.profile = profile;
        refresh();
    }

    /** Returns the profile. */
    public String profile() {
        return profile;
    }

    /** Looks for the publisher and its candidates again; once a second is enough. */
    public void refresh() {
        segments.refresh();
        columns = segments.below("rank/" + profile + "@");
        about = segments.below("rank_profile/" + profile + "/");
    }

    /** Returns the rank as it is now; never null. */
    public Rank read() {
        if (number(about.get("native"), 0) != 0) {
            return Rank.absent("nothing recent is known of the candidates; `skopos rank --explain` says more");
        }
        double seconds = number(about.get("valid_seconds"), VALID_SECONDS);
        seconds = seconds >= 0 ? Math.min(seconds, MAX_VALID_SECONDS) : VALID_SECONDS;
        long valid = (long) (seconds * 1e9);
        Map<String, Rank.Candidate> candidates = new HashMap<>();
        for (Map.Entry<String, Vertex> column : columns.entrySet()) {
            String name = candidateOf(column.getKey());
            if (name == null) {
                continue;
            }
            Reading weight = column.getValue().latest();
            if (weight == null || !(weight.value() >= 0) || Double.isInfinite(weight.value())) {
                return Rank.absent("the weight of " + name + " is not known");
            }
            valid = Math.min(valid, (long) (seconds * 1e9) - weight.ageNanos());
            candidates.put(name, new Rank.Candidate(weight.value(), number(columns.get(name + "/score"), Double.NaN)));
        }
        if (candidates.isEmpty()) {
            return Rank.absent("no agent on this machine publishes the rank `" + profile + "`; is `skopos agent` running?");
        }
        if (valid <= 0) {
            return Rank.absent("the rank is too old; is `skopos agent` running?");
        }
        double sum = candidates.values().stream().mapToDouble(Rank.Candidate::weight).sum();
        if (!(sum > 0)) {
            return Rank.absent("all weights are zero");
        }
        return Rank.of(candidates, valid);
    }

    /** Returns the candidate of a column {@code CANDIDATE/weight}; null for other columns. */
    private static String candidateOf(String column) {
        int slash = column.indexOf('/');
        return slash > 0 && column.substring(slash).equals("/weight") ? column.substring(0, slash) : null;
    }

    private static double number(Vertex vertex, double otherwise) {
        Reading reading = vertex == null ? null : vertex.latest();
        return reading == null || Double.isNaN(reading.value()) ? otherwise : reading.value();
    }
}
