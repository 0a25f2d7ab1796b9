/** The snitch of Skopos for Cassandra 4.1 and 5.0. */
package io.skopos.cassandra;
