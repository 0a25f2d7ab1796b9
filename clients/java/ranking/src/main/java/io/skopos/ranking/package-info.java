/**
 * Orders the replicas of a request by a published rank, for any program that has a list of replicas and an order of its
 * own. {@link io.skopos.ranking.ReplicaRanking} is the whole of it.
 */
package io.skopos.ranking;
