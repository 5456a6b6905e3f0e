use super::*;

/// Where a group is, by the mounts of a system.
fn find(mounts: &str, own: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|mount| folder_in(mount, own))
}

const UNIFIED: &str = "\
22 28 0:20 / /proc rw,nosuid shared:12 - proc proc rw
30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev shared:4 - cgroup2 cgroup2 rw,nsdelegate
25 28 0:5 / /dev rw,nosuid shared:2 - devtmpfs udev rw";

/// Both kinds side by side; the older kind has a tree for each controller.
const HYBRID: &str = "\
30 23 0:26 / /sys/fs/cgroup ro,nosuid shared:4 - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:5 - cgroup2 cgroup2 rw
32 30 0:28 / /sys/fs/cgroup/systemd rw,nosuid shared:6 - cgroup cgroup rw,name=systemd
33 30 0:29 / /sys/fs/cgroup/cpu rw,nosuid shared:7 - cgroup cgroup rw,cpu";

const OLD: &str = "\
32 30 0:28 / /sys/fs/cgroup/systemd rw,nosuid shared:6 - cgroup cgroup rw,name=systemd
33 30 0:29 / /sys/fs/cgroup/cpu rw,nosuid shared:7 - cgroup cgroup rw,cpu";

/// A container that sees its own group as the root, and one that sees only its part of the host's.
const PART: &str = "\
40 35 0:26 /docker/abc /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate";

#[test]
fn a_group_is_found_where_it_is_mounted() {
    let service = "/system.slice/leasehold.service";
    for (mounts, own, expected) in [
        (UNIFIED, "/", Some("/sys/fs/cgroup/")),
        (
            UNIFIED,
            service,
            Some("/sys/fs/cgroup/system.slice/leasehold.service"),
        ),
        (HYBRID, "/", Some("/sys/fs/cgroup/unified/")),
        (
            HYBRID,
            service,
            Some("/sys/fs/cgroup/unified/system.slice/leasehold.service"),
        ),
        (OLD, "/", None),
        (OLD, service, None),
        (PART, "/docker/abc", Some("/sys/fs/cgroup/")),
        (PART, "/docker/abc/run", Some("/sys/fs/cgroup/run")),
        // Outside of what can be seen, and one whose name only begins the same.
        (PART, "/", None),
        (PART, "/docker/abcd", None),
        ("", "/", None),
        ("no mount at all", "/", None),
    ] {
        let found = find(mounts, own);
        assert_eq!(found, expected.map(PathBuf::from), "{own} in {mounts}");
    }
}

#[test]
fn a_run_has_a_group_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let warden = rustix::process::getpid();
    let group = Group::create(folder.path(), warden).unwrap();
    assert_eq!(group.folder, Group::of(folder.path(), warden).folder);
    assert!(group.folder.is_dir());

    // One that was left by a warden of the same number is replaced, as long as it is empty.
    let again = Group::create(folder.path(), warden).unwrap();
    again.remove().unwrap();
    assert!(!group.folder.exists());
}

#[test]
fn a_group_that_is_in_use_is_nobody_elses() {
    let folder = tempfile::tempdir().unwrap();
    let warden = rustix::process::getpid();
    let group = Group::create(folder.path(), warden).unwrap();
    fs::write(group.folder.join("cgroup.procs"), "").unwrap();
    assert!(Group::create(folder.path(), warden).is_err());
}
