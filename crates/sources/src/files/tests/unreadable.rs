//! What cannot be read: kept as it was, and told. Only what is gone is removed.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::*;

fn loaded() -> Bed {
    Bed::loaded(&[("a.yaml", &service("a", 80)), ("sub/b.yaml", &service("b", 80))])
}

fn check_all_kept(bed: &mut Bed, note: &str) {
    bed.scan();
    assert_eq!(bed.objects(), ["Service shop/a", "Service shop/b"]);
    assert!(bed.note().starts_with(note), "{}", bed.note());
    assert!(bed.note().contains("stays in force"), "{}", bed.note());
    assert_eq!(bed.scan(), Vec::<String>::new(), "told once");
}

#[test]
fn a_file_whose_reading_fails_is_kept() {
    let mut bed = loaded();
    bed.remove("a.yaml");
    // Reading the first byte of a process's memory is an input/output error.
    bed.link("/proc/self/mem", "a.yaml");
    check_all_kept(&mut bed, "error: a.yaml:1:1: cannot be read: Input/output error");
    bed.remove("a.yaml");
    assert_eq!(bed.scan(), ["delete Service shop/a", "notes a.yaml"]);
}

#[test]
fn a_link_that_leads_nowhere_or_to_itself_is_kept() {
    let mut bed = loaded();
    bed.remove("a.yaml");
    bed.link("nowhere", "a.yaml");
    check_all_kept(&mut bed, "error: a.yaml:1:1: is a link that leads nowhere");
    bed.remove("a.yaml");
    bed.link("a.yaml", "a.yaml");
    check_all_kept(&mut bed, "error: a.yaml:1:1: cannot be read: ");
}

#[test]
fn a_pipe_or_device_is_not_opened() {
    let mut bed = loaded();
    bed.remove("a.yaml");
    let made = Command::new("mkfifo").arg(bed.path("a.yaml")).status().expect("mkfifo");
    assert!(made.success());
    check_all_kept(&mut bed, "error: a.yaml:1:1: is not a regular file");
    bed.remove("a.yaml");
    bed.link("/dev/zero", "a.yaml");
    check_all_kept(&mut bed, "error: a.yaml:1:1: is not a regular file");
}

#[test]
fn a_linked_folder_whose_target_is_lost_is_kept() {
    let mut bed = Bed::new(&[("a.yaml", &service("a", 80))]);
    write(&bed.aside("shared/b.yaml"), service("b", 80));
    bed.link("../shared", "sub");
    bed.scan();
    fs::rename(bed.aside("shared"), bed.aside("lost")).expect("a rename");
    check_all_kept(&mut bed, "error: folder sub/ cannot be read: ");
    bed.remove("sub");
    assert_eq!(bed.scan(), ["delete Service shop/b", "notes sub/"]);
}

#[test]
fn a_root_that_vanishes_removes_nothing() {
    let mut bed = loaded();
    fs::rename(bed.root(), bed.aside("elsewhere")).expect("a rename");
    let expected = format!("error: folder {} cannot be read: No such file", bed.root().display());
    check_all_kept(&mut bed, &expected);
    assert!(!bed.folder.scan().readable);

    fs::rename(bed.aside("elsewhere"), bed.root()).expect("a rename");
    assert_eq!(bed.scan(), ["notes ."]);
    assert!(bed.folder.scan().readable);
}

#[test]
fn a_root_that_becomes_a_file_removes_nothing() {
    let mut bed = loaded();
    fs::rename(bed.root(), bed.aside("elsewhere")).expect("a rename");
    fs::write(bed.root(), "").expect("a file");
    let note = format!("error: folder {} cannot be read: Not a directory", bed.root().display());
    check_all_kept(&mut bed, &note);
}

#[test]
fn an_empty_but_readable_root_removes() {
    let mut bed = loaded();
    fs::remove_dir_all(bed.root()).expect("a folder to remove");
    bed.scan();
    fs::create_dir(bed.root()).expect("a folder");
    assert_eq!(bed.scan(), ["delete Service shop/a", "delete Service shop/b", "notes ."]);
}

#[test]
fn a_root_that_was_never_there_says_so() {
    let bed = Bed::new(&[]);
    let mut folder = Folder::open(&bed.aside("missing"));
    let Scan { updates, files, readable, .. } = folder.scan();
    assert_eq!((updates.iter().map(told).collect::<Vec<_>>(), files, readable), (vec!["notes .".to_owned()], 0, false));
}

#[test]
fn a_file_or_folder_without_permission_is_kept() {
    let mut bed = loaded();
    if fs::metadata(bed.root()).expect("metadata").uid() == 0 {
        return as_nobody("files::tests::unreadable::a_file_or_folder_without_permission_is_kept");
    }
    for (path, note) in [
        ("a.yaml", "error: a.yaml:1:1: cannot be read: Permission denied".to_owned()),
        ("sub/b.yaml", "error: sub/b.yaml:1:1: cannot be read: Permission denied".to_owned()),
        ("sub", "error: folder sub/ cannot be read: Permission denied".to_owned()),
        ("", format!("error: folder {} cannot be read: Permission denied", bed.root().display())),
    ] {
        let path = bed.path(path);
        let before = fs::metadata(&path).expect("metadata").permissions();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("permissions");
        check_all_kept(&mut bed, &note);
        fs::set_permissions(&path, before).expect("permissions");
        bed.scan();
        assert_eq!(bed.notes(), Vec::<String>::new());
        bed.check_fresh();
    }
}

/// Root may read everything: runs the test once more as a user who may not.
fn as_nobody(test: &str) {
    const NOBODY: u32 = 65534;
    let bed = Bed::new(&[]);
    fs::set_permissions(bed.temporary.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
    let program = bed.aside("program");
    fs::copy(std::env::current_exe().expect("this program"), &program).expect("a copy that all may run");
    let output = Command::new(&program).args(["--exact", test]).current_dir("/").uid(NOBODY).output().expect("a run");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
