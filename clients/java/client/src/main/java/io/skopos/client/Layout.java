package io.skopos.client;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/** Offsets and bounds of a segment, layout version 1. All numbers are little-endian. */
final class Layout {
    /** The first eight bytes of a segment, {@code SKOPOSEG}, as a little-endian number. */
    static final long MAGIC = 0x474553_4F504F4B53L;

    static final int VERSION = 1;
    static final int HEADER_BYTES = 4096;
    static final int ENTRY_BYTES = 320;
    static final int HEAD_BYTES = 64;
    static final int SLOT_BYTES = 32;

    /** The longest name of a node, as the layout has room for it. */
    static final int MAX_NAME_BYTES = 64;

    /** The longest topic, which fills its field of an entry. */
    static final int MAX_TOPIC_BYTES = 256;

    /** The most slots of a ring. A greater number means a damaged entry. */
    static final int MAX_SLOTS = 1 << 20;

    /** A buffer of Java has at most this many bytes, so longer segments are refused. Those of agents have some megabytes. */
    static final long MAX_FILE_BYTES = Integer.MAX_VALUE;

    static final int LAYOUT_VERSION = 8;
    static final int FILE_BYTES = 16;
    static final int DIRECTORY_OFFSET = 40;
    static final int DIRECTORY_CAPACITY = 48;
    static final int ENTRY_LENGTH = 52;
    static final int HEAP_OFFSET = 56;
    static final int BOOT_ID = 64;
    static final int NODE_LENGTH = 108;
    static final int NODE = 176;
    static final int STATE = 256;
    static final int DIRECTORY_VERSION = 264;
    static final int DIRECTORY_LENGTH = 272;

    static final int STATE_NEW = 0;
    static final int STATE_CLOSED = 2;
    static final int ENTRY_REGISTERED = 1;

    static final VarHandle INT = MethodHandles.byteBufferViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);
    static final VarHandle LONG = MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

    private Layout() {}
}
