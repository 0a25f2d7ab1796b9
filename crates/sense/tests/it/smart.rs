//! `smart`, with a program in place of smartctl that gives recorded answers, or none.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use skopos_sense::Root;

use crate::recorded::check;
use crate::support::{Host, Tree};

/// Returns a tree with two devices, and a smartctl that runs `script` with the device's name in
/// `$d`.
fn with_smartctl(script: &str) -> Tree {
    let tree = Tree::empty();
    for device in ["nvme0n1", "sda"] {
        tree.write(&format!("sys/block/{device}/size"), "1\n");
    }
    // A path of a device with two paths, and a device without health records.
    tree.write("sys/block/nvme0c0n1/hidden", "1\n").write("sys/block/vda/size", "1\n");
    smartctl(&tree, script);
    tree
}

fn smartctl(tree: &Tree, script: &str) {
    let text = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && exit 0\nfor d; do :; done\nd=${{d##*/}}\n\
         {script}\n"
    );
    // Another test may be starting a program right now. Its copy of a descriptor that is open for
    // writing would keep this program from being run, so the shell writes it.
    tree.write("bin/text", text);
    let program = tree.path("bin/smartctl");
    let copied =
        std::process::Command::new("cp").args([tree.path("bin/text"), program.clone()]).status();
    assert!(copied.is_ok_and(|status| status.success()));
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).expect("ours");
}

fn recorded(name: &str) -> String {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/smart");
    data.join(format!("{name}.json")).display().to_string()
}

/// Checks the facts of `nvme0n1`, whose smartctl gives the recorded answer `name` and this exit
/// code.
fn check_recorded(name: &str, code: i32, expected: &str) -> Host {
    let tree = with_smartctl(&format!("cat {}; exit {code}", recorded(name)));
    let mut host = tree.host();
    let expected: String =
        expected.lines().map(|line| format!("smart/nvme0n1/{}\n", line.trim())).collect();
    check(host.poll(1.0), &expected);
    assert_eq!(
        host.table.instances("smart/"),
        ["nvme0n1", "sda"],
        "vda and nvme0c0n1 are left out"
    );
    host
}

#[test]
fn an_nvme_device() {
    check_recorded(
        "nvme-samsung-970-evo-plus",
        0,
        "passed 1
         endurance_used_ratio 0
         available_spare_ratio 1
         spare_threshold_ratio 0.1
         critical_warning 0
         media_errors_total 0
         bad_blocks 0
         total_blocks 488397168
         block_bytes 512
         data_read_bytes_total 1036817408000
         data_written_bytes_total 1008363008000
         power_on_seconds_total 11336400
         power_cycles_total 16
         unsafe_shutdowns_total 12
         temperature_celsius 35
         read_errors_total 0",
    );
}

/// Returns the records of all attributes.
fn attributes(host: &Host) -> &Vec<serde_json::Value> {
    let list = host.table.json("smart/nvme0n1/attributes").expect("attributes");
    list.as_array().expect("a list")
}

#[test]
fn every_attribute_is_there_and_common_ones_are_facts() {
    let host = check_recorded(
        "nvme-samsung-970-evo-worn",
        0,
        "error_log_entries_total 62
         controller_busy_seconds_total 456060
         warning_temperature_seconds_total 0
         critical_temperature_seconds_total 0
         program_failures_total -
         attributes_left_out 0",
    );
    let spare = serde_json::json!({ "name": "available_spare", "raw": 99 });
    assert!(attributes(&host).contains(&spare), "{:?}", attributes(&host));
    assert_eq!(attributes(&host).len(), 18);
    let host = check_recorded(
        "sata-hdd-seagate-barracuda",
        0,
        "reallocated_sectors 1
         pending_sectors 0
         uncorrectable_sectors 0
         command_timeouts_total 1
         link_errors_total -
         error_log_entries_total -",
    );
    assert_eq!(attributes(&host).len(), 13);
    assert_eq!(
        attributes(&host)[6]["raw"],
        32,
        "the maker packs three temperatures into one number"
    );
    assert_eq!(attributes(&host)[6]["threshold"], 45);
    let host = check_recorded("scsi-hdd-toshiba-al15seb", 0, "corrected_errors_total 4");
    let delayed = serde_json::json!({ "name": "read_errors_corrected_by_eccdelayed", "raw": 4 });
    assert!(attributes(&host).contains(&delayed), "{:?}", attributes(&host));
}

#[test]
fn attributes_without_room_are_counted_and_odd_ones_are_kept() {
    let names: Vec<_> = (0..100)
        .map(|n| match n {
            0 => serde_json::json!({ "id": "five", "raw": null }),
            1 => serde_json::json!({ "id": 171, "name": "Program_Fail_Count_Chip", "raw": { "value": 3 } }),
            2 => serde_json::json!({ "id": 172, "name": "Erase_Fail_Count_Chip", "raw": { "value": 4 } }),
            3 => serde_json::json!({ "id": 173, "name": "Ave_Block-Erase_Count", "raw": { "value": 55 } }),
            4 => serde_json::json!({ "id": 199, "name": "UDMA_CRC_Error_Count", "raw": { "value": 6 } }),
            n => serde_json::json!({ "id": n, "name": "x".repeat(60), "raw": { "value": n } }),
        })
        .collect();
    let answer = serde_json::json!({
        "smart_status": { "passed": true }, "ata_smart_attributes": { "table": names },
    });
    let tree = with_smartctl("cat \"$0.json\"");
    tree.write("bin/smartctl.json", answer.to_string());
    let mut host = tree.host();
    check(
        host.poll(1.0),
        "smart/nvme0n1/program_failures_total 3
         smart/nvme0n1/erase_failures_total 4
         smart/nvme0n1/erase_cycles_total 55
         smart/nvme0n1/link_errors_total 6",
    );
    let kept = attributes(&host).len();
    assert!((20..64).contains(&kept), "{kept}");
    let left_out = host.table.value("smart/nvme0n1/attributes_left_out");
    assert_eq!(left_out as usize + kept, 100);
}

#[test]
fn an_nvme_device_that_uses_its_spare_blocks_has_an_unknown_number_of_bad_ones() {
    check_recorded(
        "nvme-samsung-970-evo-worn",
        0,
        "available_spare_ratio 0.99
         media_errors_total 7
         bad_blocks -
         endurance_used_ratio 0.03
         total_blocks 976773168",
    );
}

#[test]
fn a_sata_ssd_that_counts_in_units_of_32_mib() {
    check_recorded(
        "sata-ssd-intel-s3520",
        0,
        "passed 1
         endurance_used_ratio 0
         available_spare_ratio -
         critical_warning -
         bad_blocks 0
         total_blocks 468862128
         data_written_bytes_total 4345064062976
         data_read_bytes_total 19247258402816
         power_on_seconds_total 76366800
         temperature_celsius 47",
    );
}

#[test]
fn a_sata_hard_disk() {
    check_recorded(
        "sata-hdd-seagate-barracuda",
        0,
        "passed 1
         endurance_used_ratio -
         media_errors_total 0
         bad_blocks 1
         total_blocks 976773168
         data_written_bytes_total 278191803392
         data_read_bytes_total 115185830400
         power_cycles_total 26
         temperature_celsius 32",
    );
}

#[test]
fn a_scsi_hard_disk() {
    check_recorded(
        "scsi-hdd-toshiba-al15seb",
        0,
        "passed 1
         media_errors_total 0
         bad_blocks 0
         data_read_bytes_total 1521086436000000
         data_written_bytes_total 56643667000000
         power_on_seconds_total 44774940
         power_cycles_total -
         temperature_celsius 32",
    );
}

/// 4: a command failed; 8: the disk is failing; 16, 32: an attribute is or was below its threshold;
/// 64, 128: errors in a log. All of them come with an answer.
#[test]
fn exit_codes_are_bits_and_most_describe_the_device() {
    for code in [4, 8, 16, 32, 64, 128, 252] {
        let host =
            check_recorded("nvme-samsung-970-evo-plus", code, "passed 1\ntotal_blocks 488397168");
        assert_eq!(host.skip("smart/nvme0n1"), None, "{code}");
    }
}

#[test]
fn a_device_without_an_answer_is_a_skip_and_not_a_failure() {
    let host = check_recorded("no-such-device", 1, "passed -\nread_errors_total 0");
    let reason = host.skip("smart/nvme0n1").expect("a reason");
    assert!(reason.contains("Unable to detect device type"), "{reason}");
}

#[test]
fn a_disk_that_sleeps_keeps_its_facts() {
    let tree = with_smartctl(&format!("cat {}", recorded("sata-hdd-seagate-barracuda")));
    let mut host = tree.host();
    host.poll(1.0);
    smartctl(
        &tree,
        r#"echo '{"smartctl": {"messages": [{"string": "Device is in STANDBY mode, exit(2)",
            "severity": "information"}], "exit_status": 2}}'; exit 2"#,
    );
    check(host.poll(1.0), "smart/sda/bad_blocks 1\nsmart/sda/read_errors_total 0");
    assert_eq!(host.skip("smart/sda"), None);
}

#[test]
fn a_program_that_prints_garbage_is_counted_and_a_skip() {
    for script in [
        "echo '<html>'",
        "exit 0",
        "head -c 2000000 /dev/zero",
        "printf '{\"smart_status\": {\"passed\": tr'",
        "echo '[]'; kill -SEGV $$",
    ] {
        let tree = with_smartctl(script);
        let mut host = tree.host();
        host.poll(1.0);
        let table = host.poll(1.0);
        check(table, "smart/sda/passed -\nsmart/sda/read_errors_total 2");
        assert!(host.skip("smart/sda").is_some_and(|r| r.contains("smartctl")), "{script}");
    }
}

/// JSON of another shape yields fewer facts, but no panic and no made-up number.
#[test]
fn odd_answers() {
    for (json, passed) in [
        (r#"{}"#, None),
        (r#"[1, 2]"#, None),
        (r#""text""#, None),
        (r#"{"smart_status": {"passed": "yes"}}"#, None),
        (
            r#"{"smart_status": {"passed": true}, "logical_block_size": 0,
             "user_capacity": {"bytes": 10}}"#,
            Some(1.0),
        ),
        (
            r#"{"smart_status": {"passed": false}, "power_on_time": {"hours": 18446744073709551615}}"#,
            Some(0.0),
        ),
        (r#"{"smart_status": {"passed": true}, "temperature": {"current": 1e300}}"#, Some(1.0)),
        (
            r#"{"smart_status": {"passed": true}, "ata_smart_attributes": {"table": [1, {}, null,
             {"id": 5}, {"id": 197, "raw": {"string": "x", "value": -1}}]}}"#,
            Some(1.0),
        ),
        (r#"{"smart_status": {"passed": true}, "ata_smart_attributes": {"table": {}}}"#, None),
        (r#"{"nvme_smart_health_information_log": {"media_errors": 1e99}}"#, None),
        (
            r#"{"smart_status": {"passed": true},
             "scsi_error_counter_log": {"read": {"gigabytes_processed": "nan"}}}"#,
            Some(1.0),
        ),
    ] {
        let tree = with_smartctl(&format!("cat <<'E'\n{json}\nE\n"));
        let mut host = tree.host();
        assert_eq!(host.poll(1.0).get("smart/sda/passed"), passed, "{json}");
        for absent in ["total_blocks", "power_on_seconds_total", "temperature_celsius"] {
            assert_eq!(host.table.get(&format!("smart/sda/{absent}")), None, "{json}");
        }
    }
}

#[test]
fn a_program_that_hangs_is_killed_and_the_other_devices_are_asked() {
    let answer = recorded("sata-hdd-seagate-barracuda");
    let tree = with_smartctl(&format!("[ $d = nvme0n1 ] && sleep 1000; cat {answer}"));
    let mut host = Host::open(&Root { patience: Duration::from_secs(2), ..tree.root() });
    check(
        host.poll(1.0),
        "smart/nvme0n1/passed -
         smart/nvme0n1/read_errors_total 1
         smart/sda/passed 1
         smart/sda/read_errors_total 0",
    );
    let reason = host.skip("smart/nvme0n1").expect("a reason");
    assert!(reason.contains("took longer than 2 s and was killed"), "{reason}");
    let smart = host.sensors.iter().find(|s| s.family().name == "smart").expect("open");
    assert!(smart.may_block());
    assert!(smart.interval_hint() >= Some(Duration::from_secs(60)));
}

/// Devices are asked in turn, and each may use up its timeout.
#[test]
fn a_poll_may_take_the_time_of_every_device() {
    let tree = with_smartctl("echo '{}'");
    let of = |tree: &Tree| {
        let host = Host::open(&Root { patience: Duration::from_secs(20), ..tree.root() });
        let smart = host.sensors.iter().find(|s| s.family().name == "smart").expect("open");
        smart.patience()
    };
    let (two, second) = (of(&tree), Duration::from_secs(1));
    assert!(two > 40 * second, "{two:?} for two devices");
    tree.write("sys/block/sdb/size", "1\n");
    assert!(of(&tree) >= two + 20 * second, "one more");
}

#[test]
fn without_the_program_the_reason_names_the_package() {
    let tree = Tree::empty();
    tree.write("sys/block/sda/size", "1\n");
    let reason = tree.host().skip("smart").expect("a reason");
    assert!(reason.contains("install smartmontools"), "{reason}");
}

/// The real program, on a file that is not a device. It must accept our arguments, and its answer
/// must be understood.
#[test]
fn the_real_smartctl_accepts_our_arguments() {
    let tree = Tree::empty();
    tree.write("sys/block/sda/size", "1\n").write("dev/sda", "no device\n");
    let real = Root { smartctl: "smartctl".into(), ..tree.root() };
    let mut host = Host::open(&real);
    if let Some(reason) = host.skip("smart") {
        let _ = writeln!(std::io::stderr(), "skipped: {reason}");
        return;
    }
    check(host.poll(1.0), "smart/sda/read_errors_total 0\nsmart/sda/passed -");
    let reason = host.skip("smart/sda").expect("a reason");
    assert!(reason.contains("Unable to detect device type"), "{reason}");
}
