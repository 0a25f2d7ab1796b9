/* The table that a monitor shares with the processes of its task.
 *
 * It is read by `mechanism/preload/table.rs`; a change here is one there. All counts are relaxed atomic
 * sums. A place for a file is filled before its slot names it, one for a peer before its state is 2. */
#define MAGIC 0x31306b7365746b73ull
/* Distinct files with counters of their own: more than most builds open. The whole table is allocated
 * at the start, since a page that finds no room would end the task, and each rank of a parallel job
 * has a table: 10 MiB is what it may take. More files are counted in OTHERS. */
#define FILES 16384u
/* Four slots a file, so that a search ends soon. */
#define SLOTS (4 * FILES)
/* Names of 96 bytes for each file, on average. */
#define NAME_BYTES (96u * FILES)
/* A path is no longer. */
#define NAME_MAX_BYTES 4096
/* Processes at one time, at most: two whose ids are so far apart share a slot. */
#define PROCESSES 8192u
/* Addresses that a task talks to. More are counted in the last one. */
#define PEERS 1024u
/* Sizes of operations: 0, 1, 2-3, 4-7, … and the last from 4 MiB on. */
#define SIZES 24
/* Files that are none, before all others. */
enum { OTHERS, PIPES, NAMELESS, SOCKETS, RESERVED };

struct file {
    uint64_t device, inode, birth;
    uint32_t name_at, name_bytes;
    uint64_t opens, closes;
    uint64_t read_bytes, written_bytes;
    /* By stdio, from the position of the descriptor: nobody knows in how many operations. */
    uint64_t stream_read_bytes, stream_written_bytes;
    uint64_t maps, mapped_bytes;
    uint64_t reads[SIZES], writes[SIZES];
    uint64_t spare[4];
};

/* It is becoming another program, which has not said that it counts. */
#define BECOMING 0x80000000u

struct process {
    uint32_t pid, images;
    uint64_t opens, reads, writes, read_bytes, written_bytes;
    uint64_t stream_read_bytes, stream_written_bytes;
};

struct peer {
    /* 0 free, 1 being written, 2 there. */
    uint32_t state;
    uint16_t family, port;
    uint8_t address[16];
    uint64_t connections, sent_bytes, received_bytes, sends, receives;
};

struct table {
    uint64_t magic;
    uint64_t files_next, names_next;
    uint64_t sent_bytes, received_bytes;
    /* Slots of processes that were another's still. */
    uint64_t collisions;
    uint64_t spare[58];
    struct process processes[PROCESSES];
    struct peer peers[PEERS];
    uint32_t slots[SLOTS];
    struct file files[FILES];
    char names[NAME_BYTES];
};

_Static_assert(sizeof(struct file) == 512 && sizeof(struct process) == 64, "as the reader has them");
_Static_assert(sizeof(struct table) == 10813952, "likewise");
_Static_assert(sizeof(struct peer) == 64 && offsetof(struct table, processes) == 512, "likewise");
