package io.skopos.bench;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.DriverException;
import com.datastax.oss.driver.api.core.cql.BoundStatement;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.Row;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.Vector;
import java.util.concurrent.ConcurrentHashMap;
import org.HdrHistogram.ConcurrentHistogram;
import org.HdrHistogram.Histogram;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.Status;

/** YCSB's binding for Cassandra: each operation is one prepared statement, at the default consistency of the session. */
final class CassandraBinding extends DB {
    private static final Map<String, PreparedStatement> PREPARED = new ConcurrentHashMap<>();

    /** The longest time that is distinguished from longer ones, in microseconds: a minute. */
    private static final long LONGEST_MICROS = 60_000_000;

    private final CqlSession session;
    private final Histogram reads;

    /** Makes a binding that records the times of reads in microseconds. */
    CassandraBinding(CqlSession session, Histogram reads) {
        this.session = session;
        this.reads = reads;
    }

    /** Makes the histogram of some bindings. */
    static Histogram histogram() {
        return new ConcurrentHistogram(LONGEST_MICROS, 3);
    }

    @Override
    public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
        long start = System.nanoTime();
        Row row = execute("SELECT * FROM " + table + " WHERE y_id = ?", Map.of(), key);
        reads.recordValue(Math.min((System.nanoTime() - start) / 1000, LONGEST_MICROS));
        if (row == null) {
            return Status.NOT_FOUND;
        }
        for (int column = 1; column < row.getColumnDefinitions().size(); column++) {
            String name = row.getColumnDefinitions().get(column).getName().toString();
            result.put(name, new ByteArrayByteIterator(row.getString(column).getBytes()));
        }
        return Status.OK;
    }

    @Override
    public Status update(String table, String key, Map<String, ByteIterator> values) {
        StringBuilder text = new StringBuilder("UPDATE " + table + " SET ");
        String comma = "";
        Map<String, ByteIterator> ordered = new TreeMap<>(values);
        for (String field : ordered.keySet()) {
            text.append(comma).append(field).append(" = ?");
            comma = ", ";
        }
        execute(text + " WHERE y_id = ?", ordered, key);
        return Status.OK;
    }

    @Override
    public Status insert(String table, String key, Map<String, ByteIterator> values) {
        return update(table, key, values);
    }

    @Override
    public Status scan(
            String table, String key, int count, Set<String> fields, Vector<HashMap<String, ByteIterator>> result) {
        return Status.NOT_IMPLEMENTED;
    }

    @Override
    public Status delete(String table, String key) {
        return Status.NOT_IMPLEMENTED;
    }

    /** @throws DriverException if no replica answers in time; the driver of the benchmark counts it */
    private Row execute(String text, Map<String, ByteIterator> values, String key) {
        BoundStatement bound = PREPARED.computeIfAbsent(text, session::prepare).bind();
        int at = 0;
        for (ByteIterator value : values.values()) {
            bound = bound.setString(at++, value.toString());
        }
        return session.execute(bound.setString(at, key)).one();
    }
}
