/* The table that a monitor shares with the processes of its task.
 *
 * `mechanism/preload/table.rs` reads it, and has the same layout. All counts are relaxed atomic sums. A
 * row of a file is filled before its slot refers to it, a row of a peer before its state is 2. */
#define MAGIC 0x31306b7365746b73ull
/* Number of files with rows of their own: more than most builds open. The whole table is allocated at
 * the start, because a page without space would kill the task, and each rank of a parallel job has a
 * table, so it may take 10 MiB. Further files are counted in OTHERS. */
#define FILES 16384u
/* Four slots for each file, so that a search is short. */
#define SLOTS (4 * FILES)
/* Names of 96 bytes on average. */
#define NAME_BYTES (96u * FILES)
/* The longest path. */
#define NAME_MAX_BYTES 4096
/* Number of process slots: two processes whose ids differ by a multiple of it share a slot. */
#define PROCESSES 8192u
/* Number of peer addresses. Further ones are counted in the last row. */
#define PEERS 1024u
/* Size classes of operations: 0, 1, 2-3, 4-7, …; the last one is from 4 MiB on. */
#define SIZES 24
/* The least address space of a process that counts: the library takes 15 MB of it, 1.4 % of this. */
#define LEAST_SPACE (1ull << 30)
/* Rows that stand for several files, before all others. */
enum { OTHERS, PIPES, NAMELESS, SOCKETS, RESERVED };

struct file {
    uint64_t device, inode, birth;
    uint32_t name_at, name_bytes;
    uint64_t opens, closes;
    uint64_t read_bytes, written_bytes;
    /* By stdio, from the position of the descriptor. The number of operations is unknown. */
    uint64_t stream_read_bytes, stream_written_bytes;
    uint64_t maps, mapped_bytes;
    uint64_t reads[SIZES], writes[SIZES];
    uint64_t spare[4];
};

/* Set while the process calls exec, until the new program has loaded this library. */
#define BECOMING 0x80000000u

struct process {
    uint32_t pid, images;
    uint64_t opens, reads, writes, read_bytes, written_bytes;
    uint64_t stream_read_bytes, stream_written_bytes;
};

struct peer {
    /* 0 free, 1 being written, 2 complete. */
    uint32_t state;
    uint16_t family, port;
    uint8_t address[16];
    uint64_t connections, sent_bytes, received_bytes, sends, receives;
};

struct table {
    uint64_t magic;
    uint64_t files_next, names_next;
    uint64_t sent_bytes, received_bytes;
    /* Number of processes that took the slot of another one. */
    uint64_t collisions;
    /* Bytes that the kernel's own counts lack: those of splice, tee and vmsplice. */
    uint64_t uncounted_read, uncounted_written;
    uint64_t spare[56];
    struct process processes[PROCESSES];
    struct peer peers[PEERS];
    uint32_t slots[SLOTS];
    struct file files[FILES];
    char names[NAME_BYTES];
};

_Static_assert(sizeof(struct file) == 512 && sizeof(struct process) == 64, "the layout of the reader");
_Static_assert(sizeof(struct table) == 10813952, "the layout of the reader");
_Static_assert(sizeof(struct peer) == 64 && offsetof(struct table, processes) == 512, "the layout of the reader");
