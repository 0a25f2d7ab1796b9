package io.skopos.client;

/** The latest sample of a vertex. */
public final class Reading {
    private final double value;
    private final long time;
    private final long age;

    Reading(double value, long time, long age) {
        this.value = value;
        this.time = time;
        this.age = age;
    }

    /** Returns the value; NaN if the publisher says that it is unknown. */
    public double value() {
        return value;
    }

    /** Returns the UNIX time in ns since which the value holds. */
    public long time() {
        return time;
    }

    /** Returns the ns since the publisher last checked the value, by a clock that never steps. */
    public long ageNanos() {
        return age;
    }
}
