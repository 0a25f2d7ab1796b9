//! Tables of mounts of known content: `fs` and `remote_fs`.

use std::fs;

use crate::support::{Host, Tree};

pub(crate) fn mounted(tree: &Tree, lines: &str) -> Host {
    let folder = tree.folder.path().to_str().expect("a UTF-8 path");
    tree.write("proc/self/mountinfo", lines.replace("TREE", folder));
    tree.host()
}

#[test]
fn a_file_system_is_one_instance_however_often_it_is_mounted() {
    let tree = Tree::empty();
    for folder in ["a", "b/deep", "c d", "hidden", "net"] {
        fs::create_dir_all(tree.path(folder)).expect("writable");
    }
    tree.link("sys/dev/block/259:1", "../../devices/pci0000:00/nvme0n1/nvme0n1p1");
    let mut host = mounted(
        &tree,
        "1 0 259:1 / TREE/b/deep rw shared:1 - ext4 /dev/root rw
2 1 259:1 /sub TREE/a rw - ext4 /dev/root rw
3 1 0:40 / TREE/c\\040d rw - tmpfs tmpfs rw
4 1 0:41 / TREE/proc rw - proc proc rw
5 1 0:42 / TREE/hidden rw - tmpfs below rw
6 5 0:43 / TREE/hidden rw - xfs /dev/mapper/on-top rw
7 1 0:44 / TREE/net rw - nfs4 server:/export rw
8 1 0:45 / TREE/net2 rw - fuse.sshfs me@host: rw
9 1 0:46 / TREE/gone rw - ext4 /dev/sdz1 rw
this is not a mount
10 1 0:47 / TREE/short rw\n",
    );
    host.poll(1.0);
    let folder = tree.folder.path().to_str().expect("UTF-8").trim_start_matches('/');
    let mut with_space = String::new();
    skopos_model::escape_segment(format!("{folder}/c d").as_bytes(), &mut with_space);
    let instances = host.table.instances("fs/");
    let mut expected = ["nvme0n1p1", "on-top", &with_space];
    expected.sort_unstable();
    assert_eq!(instances, expected);
    assert!(host.table.value("fs/nvme0n1p1/total_bytes") > 0.0);
    // File systems of other machines belong to another family.
    assert_eq!(host.skip("fs/nfs4"), None);
    let gone = host.skip("fs/sdz1").expect("a reason");
    assert!(gone.ends_with("/gone: No such file or directory (os error 2)"), "{gone}");
}

#[test]
fn file_systems_of_other_machines_and_processes() {
    let tree = Tree::empty();
    let mounts = ["home", "lustre", "sshfs", "scratch", "disk"];
    for folder in mounts {
        fs::create_dir_all(tree.path(folder)).expect("writable");
    }
    let mut host = mounted(
        &tree,
        "1 0 0:50 / TREE/home rw,relatime shared:7 - nfs4 fs1.site:/export/home rw,vers=4.2,hard
2 0 0:50 /me TREE/me rw,relatime - nfs4 fs1.site:/export/home/me rw,vers=4.2,hard
3 0 0:51 / TREE/lustre rw,flock - lustre 10.0.0.1@tcp:10.0.0.2@tcp:/lustre rw,flock,lazystatfs
4 0 0:52 / TREE/sshfs ro,nosuid - fuse.sshfs me@login:/my\\040data ro,user_id=1000,group_id=1000
5 0 0:53 / TREE/gone rw - cifs //filer/share rw
6 0 0:54 / TREE/home/auto rw - autofs /etc/auto.home rw
7 0 8:16 / TREE/scratch rw - gfs2 /dev/sdb rw
8 0 8:32 / TREE/disk rw - ext4 /dev/sdc rw\n",
    );
    // Poll until all have answered: a busy machine may take longer than a poll waits.
    for _ in 0..60 {
        host.poll(1.0);
        let topics = host.table.topics("remote_fs/").into_iter();
        if topics.filter(|topic| topic.ends_with("/responding")).count() == 5 {
            break;
        }
    }
    let folder = tree.folder.path().to_str().expect("UTF-8").to_owned();
    let instance = |name: &str| {
        let mut segment = String::new();
        skopos_model::escape_segment(format!("{folder}/{name}").as_bytes(), &mut segment);
        segment
    };
    for (name, kind, server) in [
        ("home", "nfs4", "fs1.site:/export/home"),
        ("lustre", "lustre", "10.0.0.1@tcp:10.0.0.2@tcp:/lustre"),
        ("sshfs", "fuse.sshfs", "me@login:/my data"),
        // Several machines share it, though it lies on a block device.
        ("scratch", "gfs2", "/dev/sdb"),
    ] {
        let topic = |metric: &str| format!("remote_fs/{}/{metric}", instance(name));
        assert_eq!(host.table.text(&topic("type")), Some(kind), "{name}");
        assert_eq!(host.table.text(&topic("server")), Some(server), "{name}");
        let point = format!("{folder}/{name}");
        assert_eq!(host.table.text(&topic("mount_point")), Some(&*point), "{name}");
        assert_eq!(host.table.get(&topic("responding")), Some(1.0), "{name}");
        assert!(host.table.value(&topic("total_bytes")) > 0.0, "{name}");
        assert!(host.table.value(&topic("answer_seconds")) >= 0.0, "{name}");
    }
    assert_eq!(host.table.instances("fs/"), ["sdc"]);
    let gone = host.skip(&format!("remote_fs/{}", instance("gone"))).expect("a reason");
    assert!(gone.ends_with("/gone: No such file or directory (os error 2)"), "{gone}");
    assert_eq!(host.table.get(&format!("remote_fs/{}/total_bytes", instance("gone"))), None);
}

#[test]
fn file_systems_that_refuse_are_skips() {
    let tree = Tree::empty();
    // Root may search any folder, but a file does not contain folders.
    tree.write("file", "");
    let lines = |folder: &str| {
        let line = |n| format!("{n} 1 0:{n} / TREE/{folder}/{n} rw - ext4 /dev/sd{n} rw\n");
        (40..50).map(line).collect::<String>()
    };
    let mut host = mounted(&tree, &lines("file"));
    assert_eq!(host.skip("fs/sd40"), None, "it was not asked yet");
    assert!(host.poll(1.0).topics("fs/").is_empty());
    for what in ["fs/sd40", "fs/sd47"] {
        let reason = host.skip(what).expect("a reason");
        assert!(reason.contains("Not a directory"), "{reason}");
    }
    assert_eq!(host.skip("fs/sd48"), None);
    assert_eq!(host.skip("fs/*").as_deref(), Some("2 more that refuse statvfs"));
    // Once the permission is there, they are asked.
    fs::remove_file(tree.path("file")).expect("writable");
    (40..50).for_each(|n| fs::create_dir_all(tree.path(&format!("file/{n}"))).expect("writable"));
    assert_eq!(host.poll(1.0).instances("fs/").len(), 10);
    assert_eq!((host.skip("fs/sd40"), host.skip("fs/*")), (None, None));
}

#[test]
fn file_systems_beyond_the_limits_are_skips() {
    let tree = Tree::empty();
    let line = |n| format!("{n} 1 0:{n} / TREE rw - ext4 /dev/sd{n} rw\n");
    let below = |n| {
        fs::create_dir(tree.path(&format!("{n}"))).expect("writable");
        line(n).replace("TREE", &format!("TREE/{n}"))
    };
    let mut host = mounted(&tree, &(0..300).map(below).collect::<String>());
    assert_eq!(host.poll(1.0).instances("fs/").len(), 128);
    let skips: Vec<_> = host.sensors.iter().flat_map(|s| s.skips()).map(|s| s.reason).collect();
    assert!(skips[0].starts_with("128 instances beyond the first 128"), "{skips:?}");
    assert!(skips[1].starts_with("44 file systems beyond the first 256"), "{skips:?}");
}

#[test]
fn a_mount_is_hidden_by_mounts_on_its_path_but_not_by_the_mount_below_it() {
    let tree = Tree::empty();
    // Each mount is a name, its parent and its point. The names serve as ids and devices, too.
    let check = |mounts: &[(u32, u32, &str)], visible: &[u32]| {
        let line = |&(n, parent, point): &(u32, u32, &str)| {
            fs::create_dir_all(tree.path(&format!("m{point}"))).expect("writable");
            let point = point.trim_end_matches('/');
            format!("{n} {parent} 0:{n} / TREE/m{point} rw - ext4 /dev/sd{n} rw\n")
        };
        let mut host = mounted(&tree, &mounts.iter().map(line).collect::<String>());
        let expected: Vec<_> = visible.iter().map(|n| format!("sd{n}")).collect();
        assert_eq!(host.poll(1.0).instances("fs/"), expected, "{mounts:?}");
    };
    // A name that starts like another is not below it.
    check(
        &[(1, 0, "/"), (2, 1, "/a"), (3, 1, "/a-b"), (4, 2, "/a/b"), (5, 1, "/a.b")],
        &[1, 2, 3, 4, 5],
    );
    // A mount on top of another at the same point, and a mount that was there before and lies
    // below.
    check(&[(1, 0, "/"), (2, 1, "/a"), (3, 2, "/a"), (4, 3, "/a")], &[1, 4]);
    check(&[(1, 0, "/"), (2, 1, "/a/b/c"), (3, 1, "/a"), (4, 3, "/a/b")], &[1, 3, 4]);
    check(&[(2, 1, "/a/b"), (3, 2, "/a/b/c"), (4, 1, "/a/x"), (5, 1, "/a/b")], &[4]);
    // Parents that come later in the table, or are their own (the first mount of a namespace).
    check(&[(4, 3, "/a/b"), (3, 1, "/a"), (1, 1, "/")], &[1, 3, 4]);
    // Parents that form a ring are not a mount table, but the search must end.
    check(&[(1, 2, "/a"), (2, 1, "/a"), (3, 2, "/a/b")], &[1, 2, 3]);
}
