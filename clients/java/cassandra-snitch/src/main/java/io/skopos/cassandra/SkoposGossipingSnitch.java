package io.skopos.cassandra;

/**
 * The {@link SkoposSnitch} over GossipingPropertyFileSnitch, which most production clusters have: racks and data centers are
 * read from {@code cassandra-rackdc.properties} and gossiped.
 */
public final class SkoposGossipingSnitch extends SkoposSnitch {
    /** Makes the snitch. Cassandra calls it. */
    public SkoposGossipingSnitch() {
        super("GossipingPropertyFileSnitch");
    }
}
