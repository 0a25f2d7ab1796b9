// What `skopos run` has the kernel count. Compiled by `scripts/bpf`; the monitor loads
// the programs that it needs.

#include "kernel.h"
#include "processes.h"
#ifdef WITH_FILES
#include "files.h"
#endif

SECTION("license") char LICENSE[] = "Dual MIT/GPL";
