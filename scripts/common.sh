# Sourced by the scripts beside it: what they all say and find. POSIX sh.
# shellcheck shell=sh

# rustup asks a new user to open a new terminal; cargo is found before that, too.
PATH="$PATH:${CARGO_HOME:-${HOME:-}/.cargo}/bin"
# Debian keeps daemons (redis-server aside) where an ordinary user does not look.
PATH="$PATH:/usr/sbin:/sbin:/usr/lib/pcp/bin"
export PATH

say() {
    printf '==> %s\n' "$*"
}

warn() {
    printf 'warning: %s\n' "$*" >&2
}

# fail MESSAGE HINT
fail() {
    printf 'error: %s\nhint: %s\n' "$1" "$2" >&2
    exit 1
}

has() {
    command -v "$1" >/dev/null 2>&1
}

# Where cargo builds: CARGO_TARGET_DIR or a setting of the user's, else target/.
target_dir() {
    cargo metadata --format-version 1 --no-deps |
        sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'
}
