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
    // In memory, so that the verifier does not tell apart all the lengths that a name may have.
    volatile u32 bytes;
    u32 unused;
    u32 kind, row;
    char names[PATH_BYTES];
};

MAP(FILES, ARRAY, u32, struct file_use, MAX_FILES, 0);
MAP(FILE_INDEX, HASH, struct file_key, u32, MAX_FILES, 0);
MAP(CACHE, PERCPU_ARRAY, u32, struct cached, CACHED, 0);
MAP(PEERS, HASH, struct peer_key, struct peer_use, MAX_PEERS, 0);
// Sockets on which somebody connected to the task; the oldest go.
MAP(ACCEPTED, 9, u64, u32, 4096, 0);
MAP(CALLS, ARRAY, u32, struct calls, 1, 0);
MAP(PATH_SCRATCH, PERCPU_ARRAY, u32, struct path, 1, 0);

static struct task_struct *(*const current_typed)(void) = (void *)158;
static struct pt_regs *(*const registers_of)(struct task_struct *) = (void *)175;

struct pt_regs {
    u64 di, si, dx, r10, r8, orig_ax;
} RELOCATED;

struct fdtable {
    u32 max_fds;
    struct file **fd;
} RELOCATED;

struct files_struct {
    struct fdtable *fdt;
} RELOCATED;

struct thread_info {
    u32 status;
} RELOCATED;

// The same structure, with what is read through a typed pointer.
struct task_struct___files {
    struct thread_info thread_info;
    struct files_struct *files;
} RELOCATED;

struct vfsmount {
    struct dentry *mnt_root;
} RELOCATED;

struct mount {
    struct mount *mnt_parent;
    struct dentry *mnt_mountpoint;
    struct vfsmount mnt;
} RELOCATED;

struct qstr {
    const u8 *name;
} RELOCATED;

struct dentry {
    struct dentry *d_parent;
    struct qstr d_name;
} RELOCATED;

struct super_block {
    u32 s_dev;
    u64 s_magic;
} RELOCATED;

struct inode {
    u16 i_mode;
    u64 i_ino;
    struct super_block *i_sb;
} RELOCATED;

struct file {
    struct inode *f_inode;
    void *private_data;
    struct path___kernel {
        struct vfsmount *mnt;
        struct dentry *dentry;
    } f_path;
} RELOCATED;

struct in6_addr {
    u8 bytes[16];
};

struct sock_common {
    u32 skc_daddr;
    u16 skc_family;
    u16 skc_dport;
    struct in6_addr skc_v6_daddr;
} RELOCATED;

struct sock {
    struct sock_common __sk_common;
} RELOCATED;

struct socket {
    struct sock *sk;
} RELOCATED;

struct io_cqe {
    s32 res;
} RELOCATED;

struct io_kiocb {
    struct file *file;
    u8 opcode;
    struct io_cqe cqe;
} RELOCATED;

// The name, from its end: each part ends with a zero, and mounts are crossed as `d_path` does.
__attribute__((noinline)) int tell_path(u64 of, u32 row) {
    struct path *told = map_lookup(&PATH_SCRATCH, &ZERO);
    struct totals *totals = map_lookup(&TOTALS, &ZERO);
    if (!told || !totals)
        return 0;
    struct file *file = (void *)of;
    u64 at_mount = (u64) & ((struct mount *)0)->mnt;
    struct dentry *dentry = GET(struct dentry *, file->f_path.dentry);
    struct mount *mount = (void *)(GET(u64, file->f_path.mnt) - at_mount);
    told->bytes = 0;
    for (int depth = 0; depth < MAX_DEPTH; depth++) {
        if (dentry == GET(struct dentry *, mount->mnt.mnt_root)) {
            struct mount *parent = GET(struct mount *, mount->mnt_parent);
            if (parent == mount)
                break;
            dentry = GET(struct dentry *, mount->mnt_mountpoint);
            mount = parent;
            continue;
        }
        struct dentry *parent = GET(struct dentry *, dentry->d_parent);
        u32 bytes = told->bytes;
        if (parent == dentry || bytes > PATH_BYTES - MAX_NAME)
            break;
        const u8 *name = GET(const u8 *, dentry->d_name.name);
        long length = read_kernel_text(told->names + bytes, MAX_NAME, name);
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
    return 0;
}

// The row of a file that is in none: a new one, unless another processor was first.
INLINE u32 new_row(struct file *file, struct inode *inode, struct file_key *key) {
    struct calls *calls = map_lookup(&CALLS, &ZERO);
    if (!calls)
        return OTHERS;
    u64 count = calls->files;
    u32 row = count < MAX_FILES - FIRST_FILE ? FIRST_FILE + __sync_fetch_and_add(&calls->files, 1) : OTHERS;
    struct file_use *use = row < MAX_FILES ? map_lookup(&FILES, &row) : 0;
    if (!use || row == OTHERS)
        return OTHERS;
    if (map_update(&FILE_INDEX, key, &row, 1)) {
        u32 *found = map_lookup(&FILE_INDEX, key);
        return found ? *found : OTHERS;
    }
    use->device = GET(u32, ((struct super_block *)key->super)->s_dev);
    use->inode = key->inode;
    use->taken = 1;
    tell_path((u64)file, row);
    return row;
}

// Those that are none have a row by their kind.
__attribute__((noinline)) u32 row_of_file(u64 of) {
    struct file *file = (void *)of;
    struct inode *inode = GET(struct inode *, file->f_inode);
    u64 number = GET(u64, inode->i_ino);
    u32 slot = ((u64)file >> 6 ^ (u64)file >> 12) % CACHED;
    struct cached *cached = map_lookup(&CACHE, &slot);
    if (!cached)
        return OTHERS;
    if (cached->file == (u64)file && cached->inode == (u64)inode && cached->number == number)
        return cached->row;
    struct file_key key = {GET(u64, inode->i_sb), number};
    u32 row, format = GET(u16, inode->i_mode) & 0xf000;
    if (format == 0x1000)
        row = PIPES;
    else if (format == 0xc000)
        row = SOCKETS;
    else if (GET(u64, ((struct super_block *)key.super)->s_magic) == 0x09041934)
        row = NAMELESS;
    else {
        u32 *found = map_lookup(&FILE_INDEX, &key);
        row = found ? *found : new_row(file, inode, &key);
    }
    cached->file = (u64)file;
    cached->inode = (u64)inode;
    cached->number = number;
    cached->row = row;
    return row;
}

INLINE struct file *file_at(struct task_struct___files *task, u64 descriptor) {
    u32 fd = descriptor;
    struct fdtable *table = task->files->fdt;
    if (fd >= table->max_fds)
        return 0;
    struct file *file = 0;
    read_kernel(&file, sizeof(file), (const void *)((u64)table->fd + 8ull * fd));
    return file;
}

// 0, 1, 2 to 3, 4 to 7 ...
INLINE u32 size_of(u64 bytes) {
    u32 size = bytes ? 1 : 0, low = bytes;
    if (bytes >> 22)
        return SIZES - 1;
#pragma unroll
    for (int shift = 16; shift; shift >>= 1)
        if (low >> shift) {
            size += shift;
            low >>= shift;
        }
    return size;
}

#define READING 1
#define WRITING 2

__attribute__((noinline)) int count_peer(u64 of, u32 what, u64 bytes, u64 connections) {
    struct file *file = (void *)of;
    struct calls *calls = map_lookup(&CALLS, &ZERO);
    if (!calls)
        return 0;
    struct socket *socket = GET(struct socket *, file->private_data);
    struct sock *sock = GET(struct sock *, socket->sk);
    struct peer_key key = {};
    READ(key.family, sock->__sk_common.skc_family);
    READ(key.port, sock->__sk_common.skc_dport);
    if (key.family == 2)
        read_kernel(key.address, 4, &sock->__sk_common.skc_daddr);
    else if (key.family == 10)
        read_kernel(key.address, 16, &sock->__sk_common.skc_v6_daddr);
    else
        key.port = 0;
    u64 at = (u64)sock;
    if (map_lookup(&ACCEPTED, &at))
        key.port = 0;
    struct peer_use *use = map_lookup(&PEERS, &key);
    if (!use) {
        struct peer_use none = {};
        map_update(&PEERS, &key, &none, 1);
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

// A function of its own, so that it is checked and stored once.
__attribute__((noinline)) int count(u64 of, u32 what, u64 bytes) {
    struct file *file = (void *)of;
    u32 row = row_of_file((u64)file);
    struct file_use *use = map_lookup(&FILES, &row);
    if (!use)
        return 0;
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
        count_peer((u64)file, what, bytes, 0);
    return 0;
}

INLINE void opened(struct file *file, struct known *known) {
    u32 row = row_of_file((u64)file);
    struct file_use *use = map_lookup(&FILES, &row);
    struct calls *calls = map_lookup(&CALLS, &ZERO);
    if (!use || !calls)
        return;
    __sync_fetch_and_add(&use->opens, 1);
    if (row == OTHERS)
        __sync_fetch_and_add(&calls->overflowed, 1);
    if (known)
        __sync_fetch_and_add(&known->opens, 1);
}

INLINE void mapped(struct file *file, u64 bytes) {
    u32 row = row_of_file((u64)file);
    struct file_use *use = map_lookup(&FILES, &row);
    if (!use)
        return;
    __sync_fetch_and_add(&use->maps, 1);
    __sync_fetch_and_add(&use->mapped_bytes, bytes);
}

// Both ends of what moves from one descriptor to another.
INLINE void moved(struct file *from, struct file *to, u64 bytes, u32 is_uncounted) {
    struct calls *calls = map_lookup(&CALLS, &ZERO);
    if (from)
        count((u64)from, READING, bytes);
    if (to)
        count((u64)to, WRITING, bytes);
    if (is_uncounted && calls) {
        __sync_fetch_and_add(&calls->uncounted_read, from ? bytes : 0);
        __sync_fetch_and_add(&calls->uncounted_written, to ? bytes : 0);
    }
}

INLINE void accepted(struct file *file) {
    u64 sock = GET(u64, GET(struct socket *, file->private_data)->sk);
    u32 one = 1;
    map_update(&ACCEPTED, &sock, &one, ANY);
    count_peer((u64)file, 0, 0, 1);
}

// Calls that are seldom.
INLINE void rare(struct task_struct___files *task, struct pt_regs *regs, struct known *known, s64 result) {
    struct calls *calls = map_lookup(&CALLS, &ZERO);
    struct file *file;
    u32 row = SOCKETS;
    if (!calls)
        return;
    switch (regs->orig_ax) {
    case 2: // open
    case 85: // creat
    case 257: // openat
    case 304: // open_by_handle_at
    case 437: // openat2
        file = file_at(task, result);
        if (file)
            opened(file, known);
        break;
    case 9: // mmap; MAP_ANONYMOUS
        file = regs->r10 & 0x20 ? 0 : file_at(task, regs->r8);
        if (file)
            mapped(file, regs->si);
        break;
    case 40: // sendfile
        moved(file_at(task, regs->si), file_at(task, regs->di), result, 0);
        break;
    case 326: // copy_file_range
        moved(file_at(task, regs->di), file_at(task, regs->dx), result, 0);
        break;
    case 275: // splice
        moved(file_at(task, regs->di), file_at(task, regs->dx), result, 1);
        break;
    case 44: // sendto
    case 46: // sendmsg
        file = file_at(task, regs->di);
        if (file && row_of_file((u64)file) == row)
            count_peer((u64)file, WRITING, result, 0);
        break;
    case 45: // recvfrom
    case 47: // recvmsg
        file = file_at(task, regs->di);
        if (file && row_of_file((u64)file) == row)
            count_peer((u64)file, READING, result, 0);
        break;
    case 299: // recvmmsg
    case 307: // sendmmsg
        __sync_fetch_and_add(&calls->batches, 1);
        break;
    case 43: // accept
    case 288: // accept4
        file = file_at(task, result);
        if (file && row_of_file((u64)file) == row)
            accepted(file);
        break;
    }
}

SECTION("raw_tracepoint/sys_exit")
int called(u64 *arguments) {
    s64 result = arguments[1];
    u32 process = current_ids() >> 32;
    struct known *known = map_lookup(&PROCESSES, &process);
    if (!known || known->waits)
        return 0;
    struct task_struct *current = current_typed();
    struct task_struct___files *task = (void *)current;
    struct pt_regs *regs = registers_of(current);
    struct file *file;
    // TS_COMPAT
    if (task->thread_info.status & 2) {
        struct calls *calls = map_lookup(&CALLS, &ZERO);
        if (calls)
            __sync_fetch_and_add(&calls->compat, 1);
        return 0;
    }
    // What is connected in the background, EINPROGRESS, is connected all the same.
    if (regs->orig_ax == 42 && (result == 0 || result == -115)) {
        file = file_at(task, regs->di);
        if (file)
            count_peer((u64)file, 0, 0, 1);
        return 0;
    }
    if (result < 0 && result >= -4095)
        return 0;
    switch (regs->orig_ax) {
    case 0: // read
    case 17: // pread64
    case 19: // readv
    case 295: // preadv
    case 327: // preadv2
        file = file_at(task, regs->di);
        if (file)
            count((u64)file, READING, result);
        break;
    case 1: // write
    case 18: // pwrite64
    case 20: // writev
    case 296: // pwritev
    case 328: // pwritev2
        file = file_at(task, regs->di);
        if (file)
            count((u64)file, WRITING, result);
        break;
    default:
        rare(task, regs, known, result);
    }
    return 0;
}

// In a thread of the task, one that the kernel has for it included.
SECTION("raw_tracepoint/io_uring_complete")
int completed(u64 *arguments) {
    struct io_kiocb *request = (void *)arguments[1];
    u32 process = current_ids() >> 32;
    struct known *known = map_lookup(&PROCESSES, &process);
    struct calls *calls = map_lookup(&CALLS, &ZERO);
    if (!known || !calls || !request)
        return 0;
    s32 result = GET(s32, request->cqe.res);
    struct file *file = GET(struct file *, request->file);
    if (result < 0)
        return 0;
    switch (GET(u8, request->opcode)) {
    case 1: // READV
    case 4: // READ_FIXED
    case 22: // READ
        if (file) {
            __sync_fetch_and_add(&calls->ring_calls, 1);
            moved(file, 0, result, 1);
        }
        break;
    case 2: // WRITEV
    case 5: // WRITE_FIXED
    case 23: // WRITE
        if (file) {
            __sync_fetch_and_add(&calls->ring_calls, 1);
            moved(0, file, result, 1);
        }
        break;
    case 9: // SENDMSG
    case 26: // SEND
        if (file)
            count_peer((u64)file, WRITING, result, 0);
        break;
    case 10: // RECVMSG
    case 27: // RECV
        if (file)
            count_peer((u64)file, READING, result, 0);
        break;
    case 18: // OPENAT
    case 28: // OPENAT2
        file = file_at((void *)current_typed(), result);
        if (file)
            opened(file, known);
        break;
    }
    return 0;
}
