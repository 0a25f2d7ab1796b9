/* The dynamic loader prints an error to the program's standard error if it does not find a library of
 * LD_PRELOAD: after `chroot`, or where another file system hides the library's folder. So before a program
 * starts another one, the library looks for itself and otherwise takes itself out of that variable. It does
 * so too for a program that may use little memory. Such programs are reported as not seen. */

/* The path under which the loader has found this library. */
static const char *own_path;

#define PRELOAD "LD_PRELOAD="
/* The longest value of the variable that is changed in the program's own environment. */
#define MAX_PRELOAD 4096

/* True if the memory of this library may be missing to a program (`ulimit -v`). */
static int is_narrow(void) {
    struct rlimit most;
    return syscall(SYS_prlimit64, 0, RLIMIT_AS, NULL, &most) == 0 && most.rlim_cur < LEAST_SPACE;
}

/* True if a program that starts now would not find this library, or has no room for it. */
static int is_hidden(void) {
    if (is_quiet || !own_path) return 0;
    int error = errno;
    if (is_narrow()) return 1;
    long failed = syscall(SYS_faccessat2, AT_FDCWD, own_path, R_OK, AT_EACCESS);
    if (failed && errno == ENOSYS) failed = syscall(SYS_faccessat, AT_FDCWD, own_path, R_OK);
    int is_absent = failed && errno != EPERM;
    errno = error;
    return is_absent;
}

/* Copies a list of LD_PRELOAD to `to`, if that is given, without this library. Returns the number of libraries
 * that are left, or -1 if this one is not in the list. */
static int without_own(char *to, const char *list) {
    int left = 0, is_there = 0;
    size_t own = strlen(own_path);
    while (*list) {
        size_t length = strcspn(list, ": ");
        if (length == own && memcmp(list, own_path, own) == 0) is_there = 1;
        else if (length > 0) {
            if (to && left > 0) *to++ = ':';
            if (to) memcpy(to, list, length), to += length;
            left++;
        }
        list += length + (list[length] != 0);
    }
    if (to) *to = 0;
    return is_there ? left : -1;
}

static int is_preload(const char *variable) { return strncmp(variable, PRELOAD, sizeof PRELOAD - 1) == 0; }

/* Returns the variable that names this library, or NULL. */
static const char *naming(char *const variables[]) {
    for (; variables && *variables; variables++)
        if (is_preload(*variables) && without_own(NULL, *variables + sizeof PRELOAD - 1) >= 0) return *variables;
    return NULL;
}

/* Copies the variables to `to`, and the one that names this library to `text`, without its name. */
static void leave(char **to, char *text, char *const variables[], const char *named) {
    for (; *variables; variables++) {
        if (*variables != named) { *to++ = *variables; continue; }
        memcpy(text, PRELOAD, sizeof PRELOAD);
        if (without_own(text + sizeof PRELOAD - 1, named + sizeof PRELOAD - 1) > 0) *to++ = text;
    }
    *to = NULL;
}

static size_t number_of(char *const variables[]) {
    size_t n = 0;
    while (variables[n]) n++;
    return n;
}

/* Calls `call` with the variables `with`, which name this library only where it can be found. */
#define WITH_VARIABLES(with, variables, call)                                                      \
    do {                                                                                           \
        const char *named = is_hidden() ? naming(variables) : NULL;                                \
        char *const *with = variables;                                                             \
        char *list[named ? number_of(variables) + 1 : 1], text[named ? strlen(named) + 1 : 1];     \
        if (named) leave(list, text, variables, named), with = list;                               \
        call;                                                                                      \
    } while (0)

/* The same for functions that take the program's own variables. */
static void leave_own(void) {
    static char text[MAX_PRELOAD];
    const char *named = is_hidden() ? naming(environ) : NULL;
    if (!named || strlen(named) >= sizeof text) return;
    char *list[number_of(environ) + 1];
    leave(list, text, environ, named);
    size_t n = 0;
    for (; list[n]; n++) environ[n] = list[n];
    environ[n] = NULL;
}

static void find_own(void) {
    Dl_info about;
    if (dladdr((void *)find_own, &about) && about.dli_fname && about.dli_fname[0] == '/') own_path = about.dli_fname;
}
