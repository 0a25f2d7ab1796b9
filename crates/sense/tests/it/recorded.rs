//! Kernel files of known content.

use std::fs;

use crate::mounts::mounted;
use crate::support::{Host, Table, Tree};

/// Checks lines `topic value`, with `-` for a fact that must be absent.
pub(crate) fn check(table: &Table, expected: &str) {
    for line in expected.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (topic, value) = line.split_once(' ').expect("a topic and a value");
        match value.trim() {
            "-" => assert_eq!(table.get(topic), None, "{topic}"),
            value => {
                let value: f64 = value.parse().expect("a number");
                let found = table.value(topic);
                let near = (found - value).abs() <= 1e-9 * value.abs().max(1.0);
                assert!(near, "{topic}: {found}, expected {value}");
            }
        }
    }
}

/// Checks the facts of one poll of `tests/data/NAME`.
pub(crate) fn check_data(name: &str, expected: &str) {
    check(Tree::of(name).host().poll(1.0), expected);
}

#[test]
fn load_and_processes() {
    check_data(
        "modern",
        "load/load_1m 0.20
         load/load_5m 0.18
         load/load_15m 0.12
         load/runnable_tasks 1
         load/tasks 80
         process/processes 7
         process/running_processes 1
         process/sleeping_processes 2
         process/blocked_processes 1
         process/zombie_processes 1
         process/stopped_processes 1
         process/idle_processes 1
         process/walk_polls 1",
    );
}

#[test]
fn pressure() {
    check_data(
        "modern",
        "psi/cpu/some_avg10_ratio 0.125
         psi/cpu/some_stall_seconds_total 2.247431
         psi/cpu/full_avg10_ratio -
         psi/cpu/some_avg60_ratio 0.0021
         psi/cpu/some_avg300_ratio 0.002
         psi/cpu/full_avg300_ratio -
         psi/io/full_avg10_ratio 0.0004
         psi/io/full_stall_seconds_total 2.851324
         psi/irq/full_stall_seconds_total 5
         psi/irq/some_avg10_ratio -",
    );
}

#[test]
fn queues_of_received_packets() {
    check_data(
        "modern",
        "softnet/handled_total 16885
         softnet/dropped_total 1
         softnet/squeezed_total 271
         softnet/steered_total 5
         softnet/flow_limited_total 2
         softnet/backlog_packets 12
         softnet/backlog_packets_max 9",
    );
    // An old kernel has fewer columns, a number is odd, and the last line was cut off.
    let tree = Tree::empty();
    tree.write(
        "proc/net/softnet_stat",
        "00000010 00000001 0 0 0\n00000001 xyz 00000001\n00000001 00",
    );
    check(
        tree.host().poll(1.0),
        "softnet/handled_total 17
         softnet/dropped_total 1
         softnet/squeezed_total 0
         softnet/backlog_packets -",
    );
}

#[test]
fn memory() {
    check_data(
        "modern",
        "mem/total_bytes 25276514304
         mem/available_bytes 18957385728
         mem/used_ratio 0.25
         mem/active_bytes 26927104
         mem/shared_bytes 8998912
         mem/corrupted_bytes 4096
         mem/huge_pages 8
         mem/huge_pages_free 6
         mem/huge_page_size_bytes 2097152
         swap/total/size_bytes 134213632
         swap/total/used_bytes 262144
         swap/total/in_bytes_total 12288
         swap/total/out_bytes_total 20480
         swap/total/priority -
         swap/zram0/used_ratio 0.00390625
         swap/zram0/priority 100
         swap/var:swap%20file/priority -2
         vmstat/oom_kills_total 2
         vmstat/page_faults_total 33066849
         vmstat/paged_in_bytes_total 6429938688
         vmstat/allocated_pages_total 31326445
         numa/0/total_bytes 4513538048
         numa/1/total_bytes 4523778048
         numa/1/misses_total 1
         numa/0/remote_total 3
         numa/1/huge_pages_free 3",
    );
}

#[test]
fn block_devices() {
    check_data(
        "modern",
        "block/nvme0n1/read_requests_total 50534
         block/nvme0n1/read_bytes_total 1770361856
         block/nvme0n1/read_seconds_total 6.465
         block/nvme0n1/written_bytes_total 838418432
         block/nvme0n1/in_flight 3
         block/nvme0n1/busy_seconds_total 4.628
         block/nvme0n1/queue_seconds_total 8.979
         block/nvme0n1/discarded_bytes_total 141844480
         block/nvme0n1/flush_requests_total 1966
         block/nvme0n1/flush_seconds_total 0.022
         block/nvme0n1/busy_ratio -
         block/nvme0n1p1/written_requests_total 15000
         block/vda/queue_seconds_total 0.001
         block/vda/discarded_bytes_total -
         block/loop0/read_requests_total -",
    );
}

#[test]
fn block_latency_queue_and_busy_time_are_those_of_the_interval() {
    let tree = Tree::empty();
    let mut host =
        tree.write("proc/diskstats", "8 0 sda 10 0 80 100 4 0 64 40 0 1000 2000\n").host();
    check(host.poll(1.0), "block/sda/read_latency_seconds -\nblock/sda/queue_depth_mean -");
    // In 2 s: 4 reads in 20 ms, no write, 500 ms busy, 3 s in the queue.
    tree.write("proc/diskstats", "8 0 sda 14 0 96 120 4 0 64 40 1 1500 5000\n");
    check(
        host.poll(2.0),
        "block/sda/read_latency_seconds 0.005
         block/sda/write_latency_seconds -
         block/sda/queue_depth_mean 1.5
         block/sda/busy_ratio 0.25",
    );
    // No requests at all: the queue is empty, and the last latency stands.
    check(
        host.poll(2.0),
        "block/sda/read_latency_seconds 0.005
         block/sda/queue_depth_mean 0
         block/sda/busy_ratio 0",
    );
    // The device was added anew and its counters start over. No fact is negative or huge.
    tree.write("proc/diskstats", "8 0 sda 1 0 8 1 0 0 0 0 0 1 1\n");
    check(
        host.poll(2.0),
        "block/sda/read_requests_total 1
         block/sda/read_latency_seconds 0.005
         block/sda/queue_depth_mean 0
         block/sda/busy_ratio 0",
    );
    // The kernel's jiffies may count a little more time than has passed.
    tree.write("proc/diskstats", "8 0 sda 1 0 8 1 5 0 40 10 0 2011 2011\n");
    check(host.poll(2.0), "block/sda/busy_ratio 1\nblock/sda/write_latency_seconds 0.002");
}

#[test]
fn a_device_appears_with_its_first_request() {
    let tree = Tree::empty();
    let mut host = tree.write("proc/diskstats", "7 0 loop0 0 0 0 0 0 0 0 0 0 0 0\n").host();
    assert_eq!(host.poll(1.0).topics("block/").len(), 0);
    tree.write("proc/diskstats", "7 0 loop0 1 0 8 1 0 0 0 0 0 1 1\n");
    check(host.poll(1.0), "block/loop0/read_bytes_total 4096");
    tree.write("proc/diskstats", "8 0 sda 1 0 8 1 0 0 0 0 0 1 1\n");
    assert_eq!(host.poll(1.0).instances("block/"), ["sda"]);
}

/// The kernel keeps a partition of a loop device, with its size, when the file is removed.
#[test]
fn a_partition_of_a_device_without_a_medium_has_no_facts() {
    let tree = Tree::empty();
    tree.write("sys/devices/loop0/size", "0\n").write("sys/devices/loop0/loop0p1/size", "2048\n");
    tree.write("sys/devices/vda/size", "4096\n").write("sys/devices/vda/vda1/size", "2048\n");
    tree.write("sys/class/block/.keep", "");
    for (name, device) in [("loop0p1", "loop0/loop0p1"), ("vda", "vda"), ("vda1", "vda/vda1")] {
        tree.link(&format!("sys/class/block/{name}"), &format!("../../devices/{device}"));
    }
    let counted = |name: &str| format!("7 0 {name} 9 0 72 9 0 0 0 0 0 9 9\n");
    let mut host =
        tree.write("proc/diskstats", ["loop0p1", "vda", "vda1"].map(counted).concat()).host();
    assert_eq!(host.poll(1.0).instances("block/"), ["vda", "vda1"]);
}

/// The kernel still lists a loop device whose file was removed long ago.
#[test]
fn a_device_without_a_medium_has_no_facts_until_it_works_again() {
    let tree = Tree::empty();
    tree.write("sys/class/block/loop0/size", "0\n");
    let mut host = tree.write("proc/diskstats", "7 0 loop0 9 0 72 9 0 0 0 0 0 9 9\n").host();
    assert_eq!(host.poll(1.0).topics("block/").len(), 0);
    tree.write("sys/class/block/loop0/size", "2048\n");
    assert_eq!(host.poll(1.0).topics("block/").len(), 0, "nothing happened yet");
    tree.write("proc/diskstats", "7 0 loop0 10 0 80 9 0 0 0 0 0 9 9\n");
    check(host.poll(1.0), "block/loop0/read_bytes_total 40960");
}

#[test]
fn network() {
    check_data(
        "modern",
        "netdev/eth0/receive_bytes_total 90230987
         netdev/eth0/receive_drops_total 2
         netdev/eth0/receive_fifo_errors_total 3
         netdev/eth0/receive_multicast_total 6
         netdev/eth0/transmit_bytes_total 328368
         netdev/eth0/transmit_drops_total 8
         netdev/eth0/transmit_collisions_total 10
         netdev/eth0/transmit_carrier_errors_total 11
         netdev/eth0/up 1
         netdev/eth0/speed_bytes_per_second 1250000000
         netdev/lo/up 1
         netdev/lo/speed_bytes_per_second -
         netdev/ifb0/receive_bytes_total -
         tcp/established 5
         tcp/active_opens_total 67
         tcp/retransmitted_segments_total 6
         tcp/sent_resets_total 59
         tcp/listen_overflows_total 0
         udp/v4/received_datagrams_total 135
         udp/v4/memory_errors_total 6
         udp/v6/received_datagrams_total 11
         udp/v6/no_port_total 12
         udp/v6/checksum_errors_total 17
         sockets/used 11
         sockets/tcp_orphaned 1
         sockets/tcp_time_wait 4
         sockets/tcp_memory_bytes 634880
         sockets/fragment_memory_bytes 4096
         sockets/udp6_in_use 7",
    );
}

#[test]
fn rare_troubles_of_the_network_are_read_each_five_seconds() {
    let tree = Tree::of("modern");
    let mut host = tree.host();
    check(host.poll(1.0), "tcp/listen_overflows_total 0\nudp/v6/no_port_total 12");
    tree.write("proc/net/netstat", "TcpExt: ListenOverflows\nTcpExt: 7\n")
        .write("proc/net/snmp6", "Udp6NoPorts 13\n")
        .write("proc/net/snmp", "Tcp: CurrEstab\nTcp: 6\nUdp: NoPorts\nUdp: 8\n");
    for _ in 0..4 {
        check(
            host.poll(1.0),
            "tcp/listen_overflows_total 0
             udp/v6/no_port_total 12
             tcp/established 6
             udp/v4/no_port_total 8",
        );
    }
    check(host.poll(1.0), "tcp/listen_overflows_total 7\nudp/v6/no_port_total 13");
}

#[test]
fn the_memory_of_the_only_numa_node_is_not_read() {
    let tree = Tree::of("modern");
    fs::remove_dir_all(tree.path("sys/devices/system/node/node1")).expect("writable");
    let mut host = tree.host();
    check(host.poll(1.0), "numa/0/remote_total 3\nnuma/0/total_bytes -\nnuma/0/huge_pages -");
    assert!(host.skip("numa/*/*_bytes").expect("a reason").contains("family `mem`"));
}

#[test]
fn an_interface_whose_name_is_too_long_for_a_topic_is_refused() {
    let tree = Tree::of("modern");
    let name = "x".repeat(300);
    tree.write("proc/net/dev", format!("{name}: 9 9 0 0 0 0 0 0 9 9 0 0 0 0 0 0\n"));
    let mut host = tree.host();
    assert_eq!(host.poll(1.0).instances("netdev/"), Vec::<&str>::new());
}

#[test]
fn a_link_that_goes_down_is_seen_at_once() {
    let tree = Tree::of("modern");
    let mut host = tree.host();
    host.poll(1.0);
    tree.write("sys/class/net/eth0/operstate", "down\n");
    check(host.poll(1.0), "netdev/eth0/up 0\nnetdev/eth0/speed_bytes_per_second 1250000000");
    tree.write("sys/class/net/eth0/operstate", "up\n");
    tree.write("sys/class/net/eth0/speed", "25000\n");
    check(host.poll(1.0), "netdev/eth0/up 1\nnetdev/eth0/speed_bytes_per_second 3125000000");
}

#[test]
fn an_old_kernel_yields_fewer_facts() {
    let tree = Tree::of("old");
    let mut host = tree.host();
    check(
        host.poll(1.0),
        "cpu/total/softirq_seconds_total 0.01
         cpu/total/steal_seconds_total -
         cpu/total/guest_seconds_total -
         cpu/total/running_tasks -
         mem/total_bytes 1041408000
         mem/available_bytes -
         mem/used_ratio -
         mem/slab_bytes -
         vmstat/page_faults_major_total 50
         vmstat/thp_splits_total 3
         vmstat/oom_kills_total -
         swap/total/size_bytes 0
         swap/total/used_ratio -
         swap/total/in_bytes_total -
         block/sda/queue_seconds_total 4.5
         block/sda/discarded_requests_total -
         block/sda/flush_requests_total -
         block/ram0/in_flight -
         interrupts/timer@0/handled_total 127
         netdev/eth0/up -
         tcp/sent_resets_total 10
         tcp/timeouts_total 4
         tcp/fast_retransmits_total -
         udp/v4/send_buffer_errors_total 6
         udp/v4/checksum_errors_total -
         sockets/udp_memory_bytes 8192",
    );
    assert_eq!(host.poll(1.0).instances("cpu/"), ["0", "total"]);
    check(&host.table, "cpu/0/busy_ratio -");
    for what in ["psi", "hwmon", "numa", "udp/v6", "sockets/*6_in_use", "fs", "cgroup"] {
        assert!(host.skip(what).is_some(), "{what} is absent without a reason: {:?}", host.skips);
    }
}

#[test]
fn without_any_file_every_sensor_is_skipped_with_its_reason() {
    let mut host = Tree::empty().host();
    // Clocks are read without files.
    host.sensors.retain(|s| s.family().name != "clock");
    assert_eq!(host.sensors.len(), 0);
    assert!(host.skips.len() >= 21, "{:?}", host.skips);
    let causes = [
        "No such file",
        "needs root",
        "no RAPL domain",
        "no sensor chips",
        "neither an NVMe",
        "answers for this machine",
        "no files are watched",
        "it is off",
    ];
    let is_reason = |reason: &str| causes.iter().any(|cause| reason.contains(cause));
    assert!(host.skips.iter().all(|s| is_reason(&s.reason)), "{:?}", host.skips);
}

#[test]
fn empty_files_yield_nothing() {
    let tree = Tree::of("modern");
    tree.files().into_iter().for_each(|file| fs::write(file, "").expect("writable"));
    let mut host = tree.host();
    host.poll(1.0);
    let listed = ["process/processes", "process/running_processes"];
    let topics = host.table.topics("");
    for topic in topics {
        let is_count_of_nothing = host.table.value(topic) <= 7.0;
        assert!(is_count_of_nothing, "{topic}");
    }
    assert!(listed.iter().all(|prefix| !host.table.topics(prefix).is_empty()));
}

#[test]
fn a_number_that_was_cut_off_is_left_out() {
    let tree = Tree::empty();
    tree.write("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 12");
    check(tree.host().poll(1.0), "mem/total_bytes 1024000\nmem/free_bytes -");
}

#[test]
fn numbers_beyond_64_bits_are_left_out() {
    let tree = Tree::empty();
    tree.write(
        "proc/meminfo",
        "MemTotal: 18446744073709551615 kB\nMemFree: 99999999999999999999 kB\n",
    );
    tree.write(
        "proc/diskstats",
        "8 0 sda 18446744073709551615 0 18446744073709551615 1 0 0 0 0 0 1 1\n",
    );
    tree.write(
        "proc/stat",
        "cpu0 18446744073709551615 18446744073709551615 1 1 1 1 1 1 18446744073709551615 1\n",
    );
    let mut host = tree.host();
    host.poll(1.0);
    check(
        host.poll(1.0),
        "mem/total_bytes -
         mem/free_bytes -
         block/sda/read_requests_total 18446744073709551615
         block/sda/read_bytes_total -",
    );
}

#[test]
fn a_sink_that_refuses_facts_does_not_stop_a_sensor() {
    let tree = Tree::of("modern");
    let mut host = tree.host();
    host.table.room = Some(20);
    host.poll(1.0);
    host.poll(1.0);
    tree.write("proc/diskstats", "");
    tree.write("proc/net/dev", "");
    host.poll(1.0);
    assert_eq!(host.table.topics("").len(), 20);
}

#[test]
fn facts_refused_for_lack_of_room_are_offered_again_later() {
    let tree = Tree::empty();
    let mut host = tree.write("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 10 kB\n").host();
    host.sensors.retain(|s| s.family().name == "mem");
    host.table.room = Some(1);
    let mut asked = Vec::new();
    for seconds in [1.0, 1.0, 60.0, 1.0] {
        host.poll(seconds);
        asked.push(host.table.changes);
    }
    // A sink that refuses is asked once a minute, and not at each tick.
    assert_eq!(asked, [2, 2, 3, 3]);
    host.table.room = None;
    check(host.poll(1.0), "mem/total_bytes 1024000\nmem/free_bytes -");
    check(host.poll(60.0), "mem/total_bytes 1024000\nmem/free_bytes 10240");
}

#[test]
fn hwmon_chips() {
    let tree = Tree::empty();
    tree.write("sys/class/hwmon/hwmon0/name", "coretemp\n")
        .link("sys/class/hwmon/hwmon0/device", "../../../coretemp.0")
        .write("sys/class/hwmon/hwmon0/temp1_input", "45500\n")
        .write("sys/class/hwmon/hwmon0/temp1_max", "90000\n")
        .write("sys/class/hwmon/hwmon0/temp12_input", "-1000\n")
        .write("sys/class/hwmon/hwmon1/name", "nct6775\n")
        .link("sys/class/hwmon/hwmon1/device", "../../../nct6775.656")
        .write("sys/class/hwmon/hwmon1/fan1_input", "1200\n")
        .write("sys/class/hwmon/hwmon1/in0_input", "1032\n")
        .write("sys/class/hwmon/hwmon1/intrusion0_alarm", "1\n")
        .write("sys/class/hwmon/hwmon2/name", "power_meter\n")
        .link("sys/class/hwmon/hwmon2/device", "../../../ACPI000D:00")
        .write("sys/class/hwmon/hwmon2/power1_average", "184000000\n")
        .write("sys/class/hwmon/hwmon2/curr1_input", "1500\n")
        .write("sys/class/hwmon/hwmon2/temp1_input", "no number\n");
    let mut host = tree.host();
    check(
        host.poll(1.0),
        "hwmon/coretemp.0:temp1/temperature_celsius 45.5
         hwmon/coretemp.0:temp12/temperature_celsius -1
         hwmon/nct6775.656:fan1/fan_rpm 1200
         hwmon/nct6775.656:in0/voltage_volts 1.032
         hwmon/power_meter-%41%43%50%49000%44%3a00:power1/power_watts 184
         hwmon/power_meter-%41%43%50%49000%44%3a00:curr1/current_amperes 1.5",
    );
    assert_eq!(host.table.topics("hwmon/").len(), 6);
}

/// Makes a v2 hierarchy at `cg` with these groups.
fn cgroup2(groups: &[&str]) -> (Tree, Host) {
    let tree = Tree::empty();
    tree.write("cg/cpu.stat", "usage_usec 5000000\nuser_usec 3000000\nsystem_usec 2000000\n");
    for group in groups {
        write_group(&tree, group);
    }
    let host = mounted(&tree, "9 1 0:26 / TREE/cg rw - cgroup2 cgroup2 rw,nsdelegate\n");
    (tree, host)
}

fn write_group(tree: &Tree, group: &str) {
    let file = |name: &str| format!("cg/{group}/{name}");
    tree.write(&file("cpu.stat"), "usage_usec 1500000\nnr_throttled 3\nthrottled_usec 250000\n")
        .write(&file("memory.current"), "4096\n")
        .write(&file("memory.peak"), "8192\n")
        .write(&file("memory.max"), "max\n")
        .write(&file("memory.events"), "low 0\noom 2\noom_kill 1\noom_group_kill 0\n")
        .write(&file("pids.current"), "7\n")
        .write(&file("pids.max"), "100\n")
        .write(&file("io.stat"), "8:0 rbytes=10 wbytes=20 rios=1\n254:0 rbytes=1 wbytes=2\n");
}

/// Polls until every folder was checked and every slow file was read.
fn settle(host: &mut Host) -> &Table {
    for _ in 0..600 {
        host.poll(1.0);
    }
    &host.table
}

#[test]
fn groups_of_cgroup_v2() {
    let (tree, mut host) = cgroup2(&["system.slice/Job 1.scope"]);
    let job = "cgroup/system.slice:%4aob%201.scope";
    check(
        settle(&mut host),
        &format!(
            "cgroup/-/cpu_seconds_total 5
             cgroup/-/cpu_user_seconds_total 3
             cgroup/-/memory_bytes -
             {job}/cpu_seconds_total 1.5
             {job}/cpu_throttled_periods_total 3
             {job}/cpu_throttled_seconds_total 0.25
             {job}/memory_bytes 4096
             {job}/memory_bytes_max 8192
             {job}/memory_limit_bytes -
             {job}/memory_oom_kills_total 1
             {job}/tasks 7
             {job}/tasks_limit 100
             {job}/io_read_bytes_total 11
             {job}/io_written_bytes_total 22"
        ),
    );
    // A limit comes and goes.
    let file = |name: &str| format!("cg/system.slice/Job 1.scope/{name}");
    tree.write(&file("memory.max"), "65536\n").write(&file("pids.max"), "max\n");
    let limits = format!("{job}/memory_limit_bytes 65536\n{job}/tasks_limit -");
    check(settle(&mut host), &limits);
    // Groups come and go.
    write_group(&tree, "user.slice");
    fs::remove_dir_all(tree.path("cg/system.slice")).expect("writable");
    assert_eq!(settle(&mut host).instances("cgroup/"), ["-", "user.slice"]);
}

#[test]
fn a_controller_that_is_enabled_later_is_measured() {
    let (tree, mut host) = cgroup2(&[]);
    tree.write("cg/late/cpu.stat", "usage_usec 1500000\n");
    let before = "cgroup/late/cpu_seconds_total 1.5\ncgroup/late/memory_bytes -";
    check(settle(&mut host), before);
    write_group(&tree, "late");
    check(
        settle(&mut host),
        "cgroup/late/cpu_seconds_total 1.5
         cgroup/late/memory_bytes 4096
         cgroup/late/memory_bytes_max 8192
         cgroup/late/tasks 7
         cgroup/late/tasks_limit 100
         cgroup/late/io_read_bytes_total 11",
    );
    // A controller that is disabled again removes its facts.
    fs::remove_file(tree.path("cg/late/pids.current")).expect("writable");
    fs::remove_file(tree.path("cg/late/pids.max")).expect("writable");
    check(settle(&mut host), "cgroup/late/memory_bytes 4096\ncgroup/late/tasks_limit -");
}

#[test]
fn groups_beyond_the_limits_are_counted_and_a_skip() {
    let names: Vec<String> = (0..300).map(|n| format!("job{n:03}")).collect();
    let groups: Vec<&str> = names.iter().map(String::as_str).collect();
    let (tree, mut host) = cgroup2(&groups);
    assert_eq!(
        settle(&mut host).topics("cgroup/").iter().filter(|t| t.ends_with("/tasks")).count(),
        255
    );
    assert!(host.skip("cgroup/*").expect("a reason").starts_with("45 groups"));
    // When a group ends there is room for another.
    let victim = host.table.instances("cgroup/")[100].to_owned();
    fs::remove_dir_all(tree.path(&format!("cg/{victim}"))).expect("writable");
    let instances = settle(&mut host).instances("cgroup/");
    assert_eq!(instances.len(), 256);
    assert!(!instances.contains(&victim.as_str()));
    assert!(host.skip("cgroup/*").expect("a reason").starts_with("44 groups"));
}

#[test]
fn groups_below_the_deepest_level_are_a_skip() {
    let (_tree, mut host) = cgroup2(&["1/2/3/4/5"]);
    settle(&mut host);
    let instances = host.table.instances("cgroup/");
    assert!(!instances.contains(&"1:2:3:4:5"), "{instances:?}");
    assert!(host.skip("cgroup/*").expect("a reason").starts_with("1 groups"));
}

#[test]
fn groups_of_cgroup_v1_and_of_a_hybrid() {
    let tree = Tree::empty();
    tree.write("memory/job/memory.usage_in_bytes", "4096\n")
        .write("memory/job/memory.max_usage_in_bytes", "8192\n")
        .write("memory/job/memory.limit_in_bytes", "9223372036854771712\n")
        .write("memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n")
        .write("cpu,cpuacct/cpuacct.usage", "7000000000\n")
        .write("cpu,cpuacct/job/cpuacct.usage", "2500000000\n")
        .write("cpu,cpuacct/job/cpuacct.stat", "user 150\nsystem 100\n")
        .write(
            "cpu,cpuacct/job/cpu.stat",
            "nr_periods 9\nnr_throttled 2\nthrottled_time 500000000\n",
        )
        .write("pids/job/pids.current", "3\n")
        .write("pids/job/pids.max", "max\n")
        .write("blkio/blkio.throttle.io_service_bytes_recursive", "Total 0\n")
        .write(
            "blkio/job/blkio.throttle.io_service_bytes_recursive",
            "8:0 Read 100\n8:0 Write 200\n8:0 Total 300\n8:16 Read 1\nTotal 301\n",
        )
        .write("unified/cpu.stat", "usage_usec 6000000\n")
        .write("unified/only2/cpu.stat", "usage_usec 1000000\n");
    let mut host = mounted(
        &tree,
        "1 0 0:30 / TREE/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
2 0 0:31 / TREE/memory rw - cgroup cgroup rw,memory
3 0 0:31 / TREE/memory_again rw - cgroup cgroup rw,memory
4 0 0:32 / TREE/pids rw - cgroup cgroup rw,pids
5 0 0:33 / TREE/blkio rw - cgroup cgroup rw,blkio
6 0 0:34 / TREE/freezer rw - cgroup cgroup rw,freezer
7 0 0:35 / TREE/unified rw - cgroup2 cgroup2 rw\n",
    );
    check(
        settle(&mut host),
        "cgroup/job/memory_bytes 4096
         cgroup/job/memory_bytes_max 8192
         cgroup/job/memory_limit_bytes -
         cgroup/job/memory_oom_kills_total 4
         cgroup/job/cpu_seconds_total 2.5
         cgroup/job/cpu_user_seconds_total 1.5
         cgroup/job/cpu_throttled_seconds_total 0.5
         cgroup/job/tasks 3
         cgroup/job/tasks_limit -
         cgroup/job/io_read_bytes_total 101
         cgroup/job/io_written_bytes_total 200
         cgroup/-/io_read_bytes_total -
         cgroup/-/cpu_seconds_total 6
         cgroup/only2/cpu_seconds_total 1",
    );
}
