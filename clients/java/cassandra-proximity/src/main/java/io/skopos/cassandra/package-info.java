/** The node proximity of Skopos for Cassandra 6.0. */
package io.skopos.cassandra;
