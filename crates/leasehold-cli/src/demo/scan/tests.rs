//! What is found in a folder, and what is left out.

use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;
use crate::failure::Exit;

fn folder(files: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for file in files {
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        fs::write(path, file).expect("a file");
    }
    folder
}

fn paths(scan: &Scan) -> Vec<&str> {
    scan.files.iter().map(|file| file.path.as_str()).collect()
}

#[test]
fn files_are_found_in_the_order_of_their_paths() {
    let folder = folder(&["b", "a/z", "a.txt", "a/b/c"]);
    let scan = Scan::of(folder.path(), 10).expect("a scan");
    assert_eq!(paths(&scan), ["a.txt", "a/b/c", "a/z", "b"]);
    assert_eq!(scan.left_out.lines(), Vec::<String>::new());
}

#[test]
fn what_tools_made_and_links_are_left_out() {
    let folder = folder(&["src/a", ".git/b", "target/c", "x/node_modules/d"]);
    symlink("src", folder.path().join("link")).expect("a link");
    let scan = Scan::of(folder.path(), 10).expect("a scan");
    assert_eq!(paths(&scan), ["src/a"]);
    assert_eq!(
        scan.left_out.lines(),
        ["left out: 3 folders that tools made (.git, target, …), 1 symbolic link"]
    );
}

#[test]
fn too_many_files_are_cut_and_too_large_ones_passed_over() {
    let folder = folder(&["a", "b", "c"]);
    fs::File::create(folder.path().join("0"))
        .and_then(|file| file.set_len(FILE_BYTES_MAX + 1))
        .expect("a large file");
    let scan = Scan::of(folder.path(), 2).expect("a scan");
    assert_eq!(paths(&scan), ["a", "b"]);
    assert_eq!(
        scan.left_out.lines(),
        [
            "left out: 1 file over 16 MiB",
            "cut short: there are more than the 2 of --limit"
        ]
    );
}

#[test]
fn a_folder_without_files_is_refused_with_what_was_left_out() {
    let folder = folder(&["target/a"]);
    let failure = Scan::of(folder.path(), 10).expect_err("no work");
    assert_eq!(failure.exit(), Exit::Usage);
    assert!(
        failure
            .why()
            .is_some_and(|why| why.contains("1 folder that tools made")),
        "{failure:?}"
    );
    for path in ["target/a", "nowhere"] {
        let failure = Scan::of(&folder.path().join(path), 10).expect_err(path);
        assert_eq!(failure.exit(), Exit::Usage);
    }
}
