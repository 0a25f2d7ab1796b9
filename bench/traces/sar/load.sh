#!/bin/sh
# The load under which the traces here were recorded: fio on three kinds of block device at once,
# slow enough for a small machine. Needs root, fio, losetup and the zram module.
#
# usage: bench/traces/load.sh SECONDS OUT_DIR
set -eu
seconds=$1
out=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
zram=
loop=
cleanup() {
    status=$?
    # The jobs end by themselves; wait so that nothing below them is busy.
    wait || true
    umount "$work/mnt" 2>/dev/null || true
    [ -z "$loop" ] || losetup -d "$loop"
    [ -z "$zram" ] || echo "$zram" > /sys/class/zram-control/hot_remove
    rm -rf "$work"
    exit "$status"
}
trap cleanup EXIT

# A partition of a loop device, with a file system.
truncate -s 1G "$work/disk"
loop=$(losetup -f --show "$work/disk")
# Added by hand, because some kernels do not read partition tables: 900 MiB from sector 2048 on.
addpart "$loop" 1 2048 1843200
mkfs.ext4 -q -F "${loop}p1"
mkdir "$work/mnt"
mount "${loop}p1" "$work/mnt"
zram=$(cat /sys/class/zram-control/hot_add)
echo 512M > "/sys/block/zram$zram/disksize"

job() {
    name=$1
    shift
    fio --name="$name" --output="$work/$name.log" --time_based --runtime="$seconds" "$@" &
}
# The disk: a checkpoint of 48 MB every dozen seconds, and small random reads all the time.
job checkpoint --filename="$work/checkpoint" --size=48m --rw=write --bs=1m --direct=1 \
    --thinktime=10s --thinktime_blocks=48
job lookups --filename="$work/lookups" --size=256m --rw=randread --bs=4k --direct=1 --rate_iops=150 \
    --rate_process=poisson
# The partition: three programs that work and rest in turns, through the page cache.
job mixed --directory="$work/mnt" --size=128m --rw=randrw --rwmixread=60 --bs=16k --rate=3m,2m \
    --thinktime=2s --thinktime_blocks=400 --fsync=200
job append --directory="$work/mnt" --size=200m --rw=write --bs=64k --rate=1m --fsync=16
# Memory: requests of random sizes at random times, and a scan that comes and goes.
job requests --filename="/dev/zram$zram" --size=512m --rw=randrw --bsrange=4k-64k --direct=1 \
    --rate_iops=300,100 --rate_process=poisson
job scan --filename="/dev/zram$zram" --size=512m --rw=read --bs=64k --direct=1 --rate=40m \
    --thinktime=4s --thinktime_blocks=3000
sleep 3
disk=$(df --output=source "$work" | tail -1)
"$here/record.py" --seconds $((seconds - 5)) --out "$out" \
    --load "fio, three devices at once (load.sh)" \
    "${disk##*/}/disk" "${loop##*/}p1/partition" "zram$zram/zram"
