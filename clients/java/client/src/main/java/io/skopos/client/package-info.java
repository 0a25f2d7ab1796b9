/**
 * Reads facts and ranks from the shared memory of Skopos.
 *
 * <p>A read takes no lock, makes no system call, and has no exceptions: a value that is damaged, absent or gone is reported as
 * such. Only the owner of a file can truncate it while it is mapped; then the virtual machine raises an
 * {@link java.lang.InternalError} in the thread that reads, there or some instructions later. So a program that must not end
 * reads in a thread that catches it, until {@link io.skopos.client.Segments#refresh} drops the file. The layout of the files is the documentation of {@code crates/shm/src/layout.rs}, version 1. Read in this order:
 * {@link io.skopos.client.Segments}, {@link io.skopos.client.Vertex}, {@link io.skopos.client.RankReader}.
 */
package io.skopos.client;
