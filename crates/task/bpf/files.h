// What the task's processes do with each file and each peer, counted where their system calls return, and
// where io_uring completes what it was asked for. It does not matter how a program was linked.
//
// A file is known by its file system and inode; its name is told once, by the ring. What is mapped into
// memory moves no bytes by system calls: that it was mapped is counted, and how much.

// Files, those included that are none. The monitor has the same numbers and the same layout.
#define MAX_FILES 16384
#define MAX_PEERS 1024
#define SIZES 24
#define MAX_DEPTH 32
#define MAX_NAME 256
#define PATH_BYTES 4096
#define CACHED 64

#define OTHERS 0
#define PIPES 1
#define NAMELESS 2
#define SOCKETS 3
#define FIRST_FILE 4

#define PATH 5

struct file_use {
    u64 taken; // 1 once it stands for a file
    u64 device; // the kernel's own dev_t
    u64 inode;
    u64 opens, maps, mapped_bytes;
    u64 read_bytes, written_bytes;
    u64 read_sizes[SIZES], write_sizes[SIZES];
};

struct file_key {
    u64 super, inode;
};

// A file that this processor saw lately.
struct cached {
    u64 file, inode, number;
    u32 row, unused;
};

struct peer_key {
    u16 family, port;
    u8 address[16];
};

struct peer_use {
    u64 connections, sent_bytes, received_bytes, sends, receives;
};

struct calls {
    u64 files; // that found a row
    u64 overflowed; // opens that found none
    u64 uncounted_read, uncounted_written; // bytes that the kernel's own counts lack: io_uring, splice
    u64 ring_calls; // of io_uring that moved bytes
    u64 compat; // calls of 32-bit programs, which are not looked at
    u64 batches; // calls that sent or received several messages, whose bytes are not known
    u64 sent_bytes, received_bytes;
    u64 peers_beyond; // operations on peers for which there was no room
};

struct path {
    // In memory, so that the verifier does not tell apart all the lengths and depths that a name may have.
    volatile u32 bytes;
    volatile u32 depth;
    u32 kind, row;
    char names[PATH_BYTES];
};

MAP(FILES, ARRAY, u32, struct file_use, MAX_FILES, 0);
MAP(FILE_INDEX, HASH, struct file_key, u32, MAX_FILES, 0);
MAP(CACHE, PERCPU_ARRAY, u32, struct cached, CACHED, 0);
MAP(PEERS, HASH, struct peer_key, struct peer_use, MAX_PEERS, 0);
// Sockets on which somebody connected to the task; the oldest go.
MAP(ACCEPTED, LRU_HASH, u64, u32, 4096, 0);
MAP(CALLS, ARRAY, u32, struct calls, 1, 0);
MAP(PATH_SCRATCH, PERCPU_ARRAY, u32, struct path, 1, 0);

// Of these the types are known to whoever checks the programs, so what they point to is read as it is.
static void *(*const current_typed)(void) = (void *)158;
static volatile struct registers *(*const registers_of)(void *task) = (void *)175;

// What a program's registers were at a system call on x86-64; every program that traces another reads them so.
struct registers {
    u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};

// The name, from its end: each part ends with a zero, and mounts are crossed as `d_path` does.
INLINE void tell_path(u64 file, u32 row) {
    struct path *told = map_lookup(&PATH_SCRATCH, &ZERO);
    struct totals *totals = map_lookup(&TOTALS, &ZERO);
    if (!told || !totals)
        return;
    u64 dentry = GET(u64, file, file_dentry);
    u64 mount = GET(u64, file, file_mount) - TOLD(mount_inner);
    told->bytes = told->depth = 0;
    while (MAY_GO_ON && told->depth++ < MAX_DEPTH) {
        if (dentry == GET(u64, AT(mount, mount_inner), mount_root)) {
            u64 parent = GET(u64, mount, mount_parent);
            if (parent == mount)
                break;
            dentry = GET(u64, mount, mount_point);
            mount = parent;
            continue;
        }
        u64 parent = GET(u64, dentry, dentry_parent);
        u32 bytes = told->bytes;
        if (parent == dentry || bytes > PATH_BYTES - MAX_NAME)
            break;
        long length = read_kernel_text(told->names + bytes, MAX_NAME, GET(u64, dentry, dentry_name));
        if (length <= 0)
            break;
        told->bytes = bytes + length;
        dentry = parent;
    }
    told->kind = PATH;
    told->row = row;
    u32 bytes = told->bytes;
    if (bytes > PATH_BYTES || ring_output(&RING, &told->kind, 8 + bytes, wakeup()))
        lost(totals);
}

// The row of a file that is in none: a new one, unless another processor was first.
INLINE u32 new_row(u64 file, struct file_key *key) {
    struct calls *calls = map_lookup(&CALLS, &ZERO);
    if (!calls)
        return OTHERS;
    u64 count = calls->files;
    u32 row = count < MAX_FILES - FIRST_FILE ? FIRST_FILE + __sync_fetch_and_add(&calls->files, 1) : OTHERS;
    struct file_use *use = row < MAX_FILES ? map_lookup(&FILES, &row) : 0;
    if (!use || row == OTHERS)
        return OTHERS;
    if (map_update(&FILE_INDEX, key, &row, IF_NONE)) {
        u32 *found = map_lookup(&FILE_INDEX, key);
        return found ? *found : OTHERS;
    }
    use->device = GET(u32, key->super, super_device);
    use->inode = key->inode;
    use->taken = 1;
    tell_path(file, row);
    return row;
}

// Those that are none have a row by their kind. A function of its own, since it is the longest.
APART u32 row_of(u64 file) {
    u64 inode = GET(u64, file, file_inode);
    u64 number = GET(u64, inode, inode_number);
    u32 slot = (file >> 6 ^ file >> 12) % CACHED;
    struct cached *cached = map_lookup(&CACHE, &slot);
    if (!cached)
        return OTHERS;
    if (cached->file == file && cached->inode == inode && cached->number == number)
        return cached->row;
    struct file_key key = {GET(u64, inode, inode_super), number};
    u32 row, format = GET(u16, inode, inode_mode) & 0xf000;
    if (format == 0x1000)
        row = PIPES;
    else if (format == 0xc000)
        row = SOCKETS;
    else if (GET(u64, key.super, super_magic) == 0x09041934)
        row = NAMELESS;
    else {
        u32 *found = map_lookup(&FILE_INDEX, &key);
        row = found ? *found : new_row(file, &key);
    }
    cached->file = file;
    cached->inode = inode;
    cached->number = number;
    cached->row = row;
    return row;
}

// The table of a thread's descriptors. To be read before anything is decided: each time that the kernel's
// checks come by here, it is looked up among all the kernel's types whether such a pointer is to be trusted.
INLINE void *descriptors_of(void *task) {
    void *files = *(void *volatile *)(task + TOLD(task_files));
    return *(void *volatile *)(files + TOLD(files_table));
}

// The file of a descriptor, in the table of the thread's descriptors.
INLINE u64 file_at(void *table, u64 descriptor) {
    u32 fd = descriptor;
    if (fd >= *(u32 *)(table + TOLD(table_most)))
        return 0;
    u64 file = 0;
    read_kernel(&file, sizeof(file), *(u64 *)(table + TOLD(table_files)) + 8ull * fd);
    return file;
}

// 0, 1, 2 to 3, 4 to 7 ... : how many bits a number has. Without branches: whoever checks the program would
// follow each of them through all that comes after.
INLINE u32 size_of(u64 bytes) {
    u32 bits = bytes >> 22 ? (1 << 22) : bytes;
    bits |= bits >> 1;
    bits |= bits >> 2;
    bits |= bits >> 4;
    bits |= bits >> 8;
    bits |= bits >> 16;
    // They are counted in twos, in fours and in eights.
    bits -= bits >> 1 & 0x55555555;
    bits = (bits & 0x33333333) + (bits >> 2 & 0x33333333);
    return ((bits + (bits >> 4)) & 0x0f0f0f0f) * 0x01010101 >> 24;
}

// What is no descriptor.
#define NONE (~0ull)

#define READING 1
#define WRITING 2

APART int count_peer(u64 file, u32 what, u64 bytes, u64 connections) {
    struct calls *calls = map_lookup(&CALLS, &ZERO);
    if (!calls)
        return 0;
    u64 sock = GET(u64, GET(u64, file, file_private), socket_sock);
    struct peer_key key = {};
    READ(key.family, sock, sock_family);
    READ(key.port, sock, sock_port);
    if (key.family == 2)
        read_kernel(key.address, 4, AT(sock, sock_address));
    else if (key.family == 10)
        read_kernel(key.address, 16, AT(sock, sock_address6));
    else
        key.port = 0;
    if (map_lookup(&ACCEPTED, &sock))
        key.port = 0;
    struct peer_use *use = map_lookup(&PEERS, &key);
    if (!use) {
        struct peer_use none = {};
        map_update(&PEERS, &key, &none, IF_NONE);
        use = map_lookup(&PEERS, &key);
    }
    if (what == READING)
        __sync_fetch_and_add(&calls->received_bytes, bytes);
    if (what == WRITING)
        __sync_fetch_and_add(&calls->sent_bytes, bytes);
    if (!use) {
        __sync_fetch_and_add(&calls->peers_beyond, 1);
        return 0;
    }
    if (what == READING) {
        __sync_fetch_and_add(&use->received_bytes, bytes);
        __sync_fetch_and_add(&use->receives, 1);
    } else if (what == WRITING) {
        __sync_fetch_and_add(&use->sent_bytes, bytes);
        __sync_fetch_and_add(&use->sends, 1);
    }
    __sync_fetch_and_add(&use->connections, connections);
    return 0;
}

INLINE void count(u64 file, u32 row, u32 what, u64 bytes) {
    struct file_use *use = map_lookup(&FILES, &row);
    if (!use)
        return;
    u32 size = size_of(bytes);
    if (size >= SIZES)
        size = SIZES - 1;
    if (what == READING) {
        __sync_fetch_and_add(&use->read_bytes, bytes);
        __sync_fetch_and_add(&use->read_sizes[size], 1);
    } else {
        __sync_fetch_and_add(&use->written_bytes, bytes);
        __sync_fetch_and_add(&use->write_sizes[size], 1);
    }
    if (row == SOCKETS)
        count_peer(file, what, bytes, 0);
}

INLINE void opened(u32 row, struct known *known) {
    struct file_use *use = map_lookup(&FILES, &row);
    struct calls *calls = map_lookup(&CALLS, &ZERO);
    if (!use || !calls)
        return;
    __sync_fetch_and_add(&use->opens, 1);
    if (row == OTHERS)
        __sync_fetch_and_add(&calls->overflowed, 1);
    __sync_fetch_and_add(&known->opens, 1);
}

INLINE void mapped(u32 row, u64 bytes) {
    struct file_use *use = map_lookup(&FILES, &row);
    if (!use)
        return;
    __sync_fetch_and_add(&use->maps, 1);
    __sync_fetch_and_add(&use->mapped_bytes, bytes);
}

INLINE void accepted(u64 file) {
    u64 sock = GET(u64, GET(u64, file, file_private), socket_sock);
    u32 one = 1;
    map_update(&ACCEPTED, &sock, &one, ANY);
    count_peer(file, 0, 0, 1);
}

INLINE void uncounted(u64 read, u64 written) {
    struct calls *calls = map_lookup(&CALLS, &ZERO);
    if (!calls)
        return;
    __sync_fetch_and_add(&calls->uncounted_read, read);
    __sync_fetch_and_add(&calls->uncounted_written, written);
}

// The descriptor that a call is about; of two the one that is read.
INLINE u64 descriptor_of(volatile struct registers *registers, s64 result) {
    switch (registers->orig_ax) {
    case 0: // read
    case 17: // pread64
    case 19: // readv
    case 295: // preadv
    case 327: // preadv2
    case 1: // write
    case 18: // pwrite64
    case 20: // writev
    case 296: // pwritev
    case 328: // pwritev2
    case 326: // copy_file_range
    case 275: // splice
    case 44: // sendto
    case 46: // sendmsg
    case 45: // recvfrom
    case 47: // recvmsg
        return registers->di;
    case 2: // open
    case 85: // creat
    case 257: // openat
    case 304: // open_by_handle_at
    case 437: // openat2
    case 43: // accept
    case 288: // accept4
        return result;
    case 9: // mmap; MAP_ANONYMOUS
        return registers->r10 & 0x20 ? NONE : registers->r8;
    case 40: // sendfile
        return registers->si;
    }
    return NONE;
}

// Of two descriptors the one that is written.
INLINE u64 other_of(volatile struct registers *registers) {
    switch (registers->orig_ax) {
    case 326:
    case 275:
        return registers->dx;
    case 40:
        return registers->di;
    }
    return NONE;
}

// What a call did that is about a file. It is asked again which call it was, so that whoever checks the
// program follows what finds a file once, and not once for each call.
INLINE void did(volatile struct registers *registers, struct known *known, u64 file, u32 row, u64 result) {
    switch (registers->orig_ax) {
    case 275: // The kernel's own counts lack it.
        uncounted(result, result);
    case 0:
    case 17:
    case 19:
    case 295:
    case 327:
    case 40:
    case 326:
        return count(file, row, READING, result);
    case 1:
    case 18:
    case 20:
    case 296:
    case 328:
        return count(file, row, WRITING, result);
    case 44:
    case 46:
        if (row == SOCKETS)
            count_peer(file, WRITING, result, 0);
        return;
    case 45:
    case 47:
        if (row == SOCKETS)
            count_peer(file, READING, result, 0);
        return;
    case 43:
    case 288:
        if (row == SOCKETS)
            accepted(file);
        return;
    case 9:
        return mapped(row, registers->si);
    default:
        opened(row, known);
    }
}

SECTION("raw_tracepoint/sys_exit")
int called(u64 *arguments) {
    s64 result = arguments[1];
    u32 process = current_ids() >> 32;
    struct known *known = map_lookup(&PROCESSES, &process);
    if (!known || known->waits)
        return 0;
    void *task = current_typed();
    volatile struct registers *registers = registers_of(task);
    void *table = descriptors_of(task);
    struct calls *calls = map_lookup(&CALLS, &ZERO);
    if (!calls)
        return 0;
    // TS_COMPAT
    if (*(u32 *)(task + TOLD(task_status)) & 2) {
        __sync_fetch_and_add(&calls->compat, 1);
        return 0;
    }
    u64 call = registers->orig_ax;
    if (call == 299 || call == 307) { // recvmmsg, sendmmsg
        if (result >= 0)
            __sync_fetch_and_add(&calls->batches, 1);
        return 0;
    }
    // What is connected in the background, EINPROGRESS, is connected all the same.
    u32 connected = call == 42 && (result == 0 || result == -115);
    if (result < 0 && result >= -4095 && !connected)
        return 0;
    u64 descriptor = connected ? registers->di : descriptor_of(registers, result);
    if (descriptor == NONE)
        return 0;
    u64 file = file_at(table, descriptor);
    if (!file)
        return 0;
    if (connected) {
        count_peer(file, 0, 0, 1);
        return 0;
    }
    u32 row = row_of(file);
    u64 other = other_of(registers);
    u64 to = other == NONE ? 0 : file_at(table, other);
    if (to)
        count(to, row_of(to), WRITING, result);
    did(registers, known, file, row, result);
    return 0;
}

// Of what io_uring does, what is counted.
INLINE u32 is_counted(u8 operation) {
    switch (operation) {
    case 1:
    case 4:
    case 22:
    case 2:
    case 5:
    case 23:
    case 9:
    case 26:
    case 10:
    case 27:
    case 18:
    case 28:
        return 1;
    }
    return 0;
}

// In a thread of the task, one that the kernel has for it included.
SECTION("raw_tracepoint/io_uring_complete")
int completed(u64 *arguments) {
    u64 request = arguments[1];
    u32 process = current_ids() >> 32;
    struct known *known = map_lookup(&PROCESSES, &process);
    struct calls *calls = map_lookup(&CALLS, &ZERO);
    if (!known || !calls || !request)
        return 0;
    s32 result = GET(s32, request, request_result);
    u8 operation = GET(u8, request, request_opcode);
    if (result < 0 || !is_counted(operation))
        return 0;
    u64 file = GET(u64, request, request_file);
    if (operation == 18 || operation == 28) { // OPENAT, OPENAT2
        file = file_at(descriptors_of(current_typed()), result);
    }
    if (!file)
        return 0;
    u32 row = row_of(file);
    switch (GET(u8, request, request_opcode)) {
    case 1: // READV
    case 4: // READ_FIXED
    case 22: // READ
        __sync_fetch_and_add(&calls->ring_calls, 1);
        uncounted(result, 0);
        count(file, row, READING, result);
        break;
    case 2: // WRITEV
    case 5: // WRITE_FIXED
    case 23: // WRITE
        __sync_fetch_and_add(&calls->ring_calls, 1);
        uncounted(0, result);
        count(file, row, WRITING, result);
        break;
    case 9: // SENDMSG
    case 26: // SEND
        count_peer(file, WRITING, result, 0);
        break;
    case 10: // RECVMSG
    case 27: // RECV
        count_peer(file, READING, result, 0);
        break;
    case 18:
    case 28:
        opened(row, known);
        break;
    }
    return 0;
}
