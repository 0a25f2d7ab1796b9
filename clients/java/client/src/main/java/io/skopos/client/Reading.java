package io.skopos.client;

/** The latest sample of a vertex. */
public final class Reading {
    private final double value;
    private final long time;
    /** The boot time of the last check in ns; 0 if it is unknown. */
    private final long checked;

    private final BootClock clock;

    Reading(double value, long time, long checked, BootClock clock) {
        this.value = value;
        this.time = time;
        this.checked = checked;
        this.clock = clock;
    }

    /** Returns the value; NaN if the publisher says that it is unknown. */
    public double value() {
        return value;
    }

    /** Returns the UNIX time in ns since which the value holds. */
    public long time() {
        return time;
    }

    /**
     * Returns the ns from the last check by the publisher until now, by a clock that never steps; {@link Long#MAX_VALUE} if the
     * time of one of them is not known. This call reads the clock, a read of a value alone does not.
     */
    public long ageNanos() {
        if (checked == 0 || !clock.isKnown()) {
            return Long.MAX_VALUE;
        }
        return Math.max(0, clock.now() - checked);
    }
}
