package io.skopos.client;

import java.lang.invoke.VarHandle;

/** The numbers of one topic. A handle stays usable after its vertex is gone: reads then return null. */
public final class Vertex {
    /** Attempts at a sample that its publisher replaces meanwhile. Each replacement takes some stores. */
    private static final int ATTEMPTS = 100;

    private static final int TYPE_F64 = 1;
    private static final int TYPE_I64 = 2;
    private static final int TYPE_U64 = 3;
    private static final int ORIGIN_UNKNOWN = 2;

    private final Segment segment;
    private final String topic;
    private final int offset;
    private final int slots;
    private final int type;
    private final long owner;

    Vertex(Segment segment, String topic, int offset, int slots, int type, long owner) {
        this.segment = segment;
        this.topic = topic;
        this.offset = offset;
        this.slots = slots;
        this.type = type;
        this.owner = owner;
    }

    /** Returns the topic. */
    public String topic() {
        return topic;
    }

    /** Returns the latest sample; null without one, after the end of the vertex, and for a structured value. */
    public Reading latest() {
        if (type < TYPE_F64 || type > TYPE_U64) {
            return null;
        }
        for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
            // The last check is read before the head: the sample is then at least as new as it says.
            long checkedWall = segment.longAcquire(offset + 16);
            long checked = segment.longAcquire(offset + 48);
            long head = segment.longAcquire(offset + 8);
            if (segment.longAcquire(offset) != owner || head <= 0) {
                return null;
            }
            long sample = head - 1;
            int slot = offset + Layout.HEAD_BYTES + (int) (sample & slots - 1) * Layout.SLOT_BYTES;
            long mark = segment.longAcquire(slot);
            long time = segment.longAt(slot + 8);
            long bits = segment.longAt(slot + 16);
            long meta = segment.longAt(slot + 24);
            VarHandle.acquireFence();
            if (mark == 2 * sample + 2 && segment.longAcquire(slot) == mark) {
                if (segment.longAcquire(offset) != owner) {
                    return null;
                }
                return new Reading(number(bits, meta), time, checkedOf(checkedWall, checked, time), segment.clock());
            }
            Thread.onSpinWait();
        }
        return null;
    }

    private double number(long bits, long meta) {
        if ((meta & 0xFF) == ORIGIN_UNKNOWN) {
            return Double.NaN;
        }
        switch (type) {
            case TYPE_F64:
                return Double.longBitsToDouble(bits);
            case TYPE_I64:
                return bits;
            default:
                double high = (bits >>> 1) * 2.0;
                return bits >= 0 ? bits : high + (bits & 1);
        }
    }

    /** Returns the boot time of the later of the last check and the sample, which a publisher stores first; 0 if it is unknown. */
    private static long checkedOf(long checkedWall, long checked, long time) {
        return checked == 0 ? 0 : checked + Math.max(0, time - checkedWall);
    }
}
