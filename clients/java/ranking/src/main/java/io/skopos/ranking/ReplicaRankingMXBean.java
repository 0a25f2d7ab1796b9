package io.skopos.ranking;

import java.util.List;
import java.util.Map;

/** The state of a ranking by JMX, as {@code io.skopos:type=ReplicaRanking,profile=PROFILE}. */
public interface ReplicaRankingMXBean {
    /** Returns the profile whose rank is used. */
    String getProfile();

    /** Returns true if requests are ordered by the rank now. */
    boolean isActive();

    /** Returns the reason why requests have their native order; empty if they are ordered by the rank. */
    String getProblem();

    /** Returns the weights in use by address. */
    Map<String, Double> getWeights();

    /** Returns the candidates whose addresses are not known. */
    List<String> getUnresolvedCandidates();

    /** Returns the number of requests that were ordered by the rank. */
    long getRankedRequests();

    /** Returns the number of requests that had their native order because there was no valid rank. */
    long getNativeRequests();

    /** Returns the number of requests that had their native order because a replica is not in the rank. */
    long getUnrankedRequests();

    /** Returns the number of failures of this code, each of which left a request or a read of the rank as it was. */
    long getFailures();
}
