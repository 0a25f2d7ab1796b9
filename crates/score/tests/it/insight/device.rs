//! Insights about one device. SMART numbers are from real devices: those of the tests of the sensor
//! `smart`, and others from the test data of prometheus-community/smartctl_exporter. Counters are
//! from a virtual disk under load.

use super::support::{check, check_with_tiers};

/// Ten seconds of a virtual disk under a compiler: 26448 sectors read, 189128 written.
const VDA: &str = "
    block/vda/read_bytes_total 32232244224 | 32245785600
    block/vda/written_bytes_total 86292860928 | 86389694464
    block/vda/read_requests_total 1654749 | 1655598
    block/vda/written_requests_total 2400912 | 2401060
    block/vda/busy_seconds_total 332.456 | 332.536
    block/vda/queue_depth_mean 0.0685
";

const CALIBRATED: &str = "
    device/vda/max_bandwidth_bytes_per_second 2000000000
    device/vda/max_read_bytes_per_second 2000000000
    device/vda/max_write_bytes_per_second 500000000
    device/vda/concurrency 128
";

fn with(facts: &[&str]) -> String {
    facts.join("\n")
}

#[test]
fn interference_factor() {
    let check = |facts: &[&str], expected: &str| {
        check("interference_factor_ratio", "vda", &with(facts), expected);
    };
    // 1354137.6 / 2e9 + 9683353.6 / 5e8
    check(&[VDA, CALIBRATED], "0.0200437760");
    check(&[VDA], "unknown: no calibration: run `skopos calibrate vda`");
    // Another calibration does not mend a calibration file that cannot be read.
    check(&[VDA, "device: the file is damaged"], "unknown: no calibration: the file is damaged");
    check(
        &[VDA, "device/vda/max_bandwidth_bytes_per_second ?it is of another device"],
        "unknown: n01/device/vda/max_bandwidth_bytes_per_second is unknown: it is of another device",
    );
    // The calibration measured only reads.
    let reads = "device/vda/max_bandwidth_bytes_per_second 1000000\n\
                 device/vda/max_read_bytes_per_second 1000000";
    check(&[VDA, reads], "11.0374912");
    check(
        &[VDA, "device/vda/max_bandwidth_bytes_per_second 0"],
        "unknown: the calibration has a bandwidth of zero",
    );
    let idle = "block/vda/read_bytes_total 7 | 7\nblock/vda/written_bytes_total 7 | 7";
    check(&[idle, CALIBRATED], "0");
    let reset = "block/vda/read_bytes_total 7000 | 7\nblock/vda/written_bytes_total 7 | 7";
    check(
        &[reset, CALIBRATED],
        "unknown: n01/block/vda/read_bytes_total has restarted, and a rate needs two polls",
    );
    let first = "block/vda/read_bytes_total 7\nblock/vda/written_bytes_total 7";
    check(
        &[first, CALIBRATED],
        "unknown: n01/block/vda/read_bytes_total was polled once, and a rate needs two polls",
    );
    check(&[CALIBRATED], "unknown: no n01/block/vda/read_bytes_total");
    let huge = "block/vda/read_bytes_total 0 | 18446744073709551615\n\
                block/vda/written_bytes_total 0 | 18446744073709551615";
    let tiny = "device/vda/max_bandwidth_bytes_per_second 1e-300";
    check(&[huge, tiny], "unknown: the result is not a finite number");
}

#[test]
fn msca() {
    let check = |facts: &str, expected: &str| check("msca", "vda", facts, expected);
    let queue = "block/vda/queue_depth_mean 32\n";
    let fast = "insight/vda/interference_factor_ratio 0.25\n";
    let tags = "device/vda/concurrency 128\n";
    check(&with(&[queue, fast, tags]), "0.1875");
    check(&with(&["block/vda/queue_depth_mean 0", fast, tags]), "0");
    // Faster than in the calibration: the bandwidth left is zero, not negative.
    check(&with(&[queue, "insight/vda/interference_factor_ratio 1.5", tags]), "0");
    check(
        &with(&[queue, fast]),
        "unknown: vda does not report how many requests it accepts at a time",
    );
    check(
        &with(&[queue, fast, "device/vda/concurrency 0"]),
        "unknown: vda reports that it accepts no requests",
    );
    check(
        &with(&[queue, "insight/vda/interference_factor_ratio ?no calibration", tags]),
        "unknown: n01/insight/vda/interference_factor_ratio is unknown: no calibration",
    );
    check(&with(&[fast, tags]), "unknown: no n01/block/vda/queue_depth_mean");
}

#[test]
fn device_health() {
    let check = |facts: &str, expected: &str| check("device_health_ratio", "sda", facts, expected);
    // Samsung SSD 970 EVO Plus 250GB.
    check("smart/sda/bad_blocks 0\nsmart/sda/total_blocks 488397168", "1");
    // Seagate Barracuda with one reallocated sector, after years.
    check("smart/sda/bad_blocks 1\nsmart/sda/total_blocks 976773168", "0.9999999989762208");
    check("smart/sda/bad_blocks 5\nsmart/sda/total_blocks 5", "0");
    check(
        "smart/sda/bad_blocks 9\nsmart/sda/total_blocks 5",
        "unknown: 9 bad blocks of 5 blocks are impossible",
    );
    check(
        "smart/sda/bad_blocks 0\nsmart/sda/total_blocks 0",
        "unknown: the device reports that it has no blocks",
    );
    check("smart/sda/total_blocks 5", "unknown: no n01/smart/sda/bad_blocks");
    check(
        "smart: skipped: there is no smartctl",
        "unknown: no n01/smart/sda/bad_blocks: skipped: there is no smartctl",
    );
    check(
        "smart/sda/bad_blocks 18446744073709551615\nsmart/sda/total_blocks 18446744073709551615",
        "0",
    );
    check(
        "smart/sda/bad_blocks ?spare blocks are in use\nsmart/sda/total_blocks 976773168",
        "unknown: n01/smart/sda/bad_blocks is unknown: spare blocks are in use",
    );
}

#[test]
fn device_degradation_rate() {
    let check = |facts: &str, expected: &str| {
        check("device_degradation_rate_ratio_per_block", "sdb", facts, expected);
    };
    // Seagate Barracuda: 115185830400 bytes read, 278191803392 written.
    let ata = "smart/sdb/data_read_bytes_total 115185830400
               smart/sdb/data_written_bytes_total 278191803392
               smart/sdb/block_bytes 512";
    check(
        &with(&[ata, "insight/sdb/device_health_ratio 0.99999999897622"]),
        "1.3015483227664812e-09",
    );
    // HITACHI H109060SESUN600G: 162438.759 and 127551.260 gigabytes in 2.5 years.
    let sas = "smart/sdb/data_read_bytes_total 162438759000000
               smart/sdb/data_written_bytes_total 127551260000000
               smart/sdb/block_bytes 512";
    check(&with(&[sas, "insight/sdb/device_health_ratio 1"]), "1.7655780077037755e-12");
    // Samsung SSD 970 EVO Plus: 2025034 and 1969459 data units of 512,000 bytes.
    let nvme = "smart/sdb/data_read_bytes_total 1036817408000
                smart/sdb/data_written_bytes_total 1008363008000
                smart/sdb/block_bytes 512";
    check(&with(&[nvme, "insight/sdb/device_health_ratio 0.5"]), "1.251723310067135e-10");
    // A disk with blocks of 4 KiB has read an eighth of the blocks.
    let large = nvme.replace("block_bytes 512", "block_bytes 4096");
    check(&with(&[&large, "insight/sdb/device_health_ratio 0.5"]), "1.001378648053708e-09");
    let new = "smart/sdb/data_read_bytes_total 0
               smart/sdb/data_written_bytes_total 0
               smart/sdb/block_bytes 512
               insight/sdb/device_health_ratio 1";
    check(new, "unknown: the device has not read or written any data in its life");
    let nothing = nvme.replace("block_bytes 512", "block_bytes 0");
    check(
        &with(&[&nothing, "insight/sdb/device_health_ratio 1"]),
        "unknown: the device reports a block size of zero",
    );
    // WDC WD20EFRX: it does not count the data that it moves.
    check("insight/sdb/device_health_ratio 1", "unknown: no n01/smart/sdb/data_read_bytes_total");
    check(
        &with(&[sas, "insight/sdb/device_health_ratio ?no smartctl"]),
        "unknown: n01/insight/sdb/device_health_ratio is unknown: no smartctl",
    );
}

#[test]
fn device_fault_tolerance() {
    let check = |tiers: &str, facts: &str, expected: &str| {
        check_with_tiers("device_fault_tolerance", "vda", tiers, facts, expected);
    };
    let health = "insight/vda/device_health_ratio 0.75";
    let plain = "fsinfo/vda/device \"vda\"\nfsinfo/vda/copies 1";
    let two = "fsinfo/vda2/device \"vda\"\nfsinfo/vda2/copies 2\n\
               fsinfo/vdb/device \"vdb\"\nfsinfo/vdb/copies 1";
    let file = "[[device]]\nname = \"vda\"\nreplication = 3";
    check("", &with(&[health, plain]), "0.75");
    check("", &with(&[health, two]), "1.5");
    check("", &with(&[health, two, plain]), "0.75");
    check("", &with(&[health, two, "raid/vda/copies 4"]), "3");
    check(file, &with(&[health, two, "raid/vda/copies 4"]), "2.25");
    check(
        "",
        health,
        "unknown: the number of copies on vda is not known: it is not an array, no file system on it \
         reports it, and the tiers file has no [[device]] vda: see docs/reference/tiers.md",
    );
    check(
        file,
        "insight/vda/device_health_ratio ?no smartctl",
        "unknown: n01/insight/vda/device_health_ratio is unknown: no smartctl",
    );
}

#[test]
fn device_load() {
    let check = |facts: &str, expected: &str| {
        check("device_load_ratio_per_second", "vda", facts, expected);
    };
    // 11037491.2 bytes a second of 118635480064.
    check(VDA, "9.303701720636719e-05");
    let nothing = "block/vda/read_bytes_total 0 | 0\nblock/vda/written_bytes_total 0 | 0";
    check(nothing, "unknown: the device has moved no data since the machine started");
    let idle = "block/vda/read_bytes_total 5 | 5\nblock/vda/written_bytes_total 0 | 0";
    check(idle, "0");
    check(
        "block: no /proc/diskstats",
        "unknown: no n01/block/vda/read_bytes_total: no /proc/diskstats",
    );
}

#[test]
fn device_load_busy() {
    let check = |facts: &str, expected: &str| {
        check("device_load_busy_ratio", "vda", facts, expected);
    };
    check(VDA, "0.008");
    check("block/vda/busy_seconds_total 1 | 11.001", "1");
    check(
        "block/vda/busy_seconds_total 5 | 1",
        "unknown: n01/block/vda/busy_seconds_total has restarted, and a rate needs two polls",
    );
}

#[test]
fn device_energy_per_transfer() {
    let check = |facts: &[&str], expected: &str| {
        check("device_energy_per_transfer_joules", "vda", &with(facts), expected);
    };
    // 997 transfers in ten seconds.
    check(&[VDA, "energy/vda/power_watts 8.5"], "0.08525576730190572");
    check(
        &[VDA, "energy/total/power_watts 65", "energy: no meter at all"],
        "unknown: vda has no power meter; a process that reads one can publish \
         n01/energy/vda/power_watts",
    );
    let idle = "block/vda/read_requests_total 7 | 7\nblock/vda/written_requests_total 7 | 7";
    check(&[idle, "energy/vda/power_watts 8.5"], "unknown: no transfers in the last interval");
    check(&[VDA, "energy/vda/power_watts -3"], "unknown: an amount is negative: -3 / 99.7");
}
