//! Unreadable files and folders keep their objects, with a diagnostic. Only deleted ones remove them.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::super::reading::{Content, Reading};
use super::*;

fn loaded() -> Fixture {
    Fixture::loaded(&[("a.yaml", &service("a", 80)), ("sub/b.yaml", &service("b", 80))])
}

fn check_all_stay_in_force(fixture: &mut Fixture, diagnostic: &str) {
    fixture.scan();
    assert_eq!(fixture.objects(), ["Service shop/a", "Service shop/b"]);
    assert!(fixture.diagnostic().starts_with(diagnostic), "{}", fixture.diagnostic());
    assert!(fixture.diagnostic().contains("in force"), "{}", fixture.diagnostic());
    assert_eq!(fixture.scan(), Vec::<String>::new(), "reported once");
}

#[test]
fn a_file_whose_reading_fails_is_kept() {
    let mut fixture = loaded();
    fixture.remove("a.yaml");
    fixture.link("/proc/self/mem", "a.yaml");
    check_all_stay_in_force(&mut fixture, "error: a.yaml:1:1: is a link into a file system of the kernel");
    // Reading the first byte of a process's memory is an input/output error.
    let read = Reading::new(Path::new("/proc/self/mem"), &"a.yaml".into(), 1000, None).expect("it is there");
    let Content::Unusable(diagnostic) = read.content else { panic!("it was read") };
    assert!(diagnostic.to_string().contains("cannot be read: Input/output error"), "{diagnostic}");
    fixture.remove("a.yaml");
    assert_eq!(fixture.scan(), ["delete Service shop/a", "diagnostics a.yaml"]);
}

#[test]
fn a_link_that_leads_nowhere_or_to_itself_is_kept() {
    let mut fixture = loaded();
    fixture.remove("a.yaml");
    fixture.link("nowhere", "a.yaml");
    check_all_stay_in_force(&mut fixture, "error: a.yaml:1:1: is a link that leads nowhere");
    fixture.remove("a.yaml");
    fixture.link("a.yaml", "a.yaml");
    check_all_stay_in_force(&mut fixture, "error: a.yaml:1:1: cannot be read: ");
}

#[test]
fn a_pipe_or_device_is_not_opened() {
    let mut fixture = loaded();
    fixture.remove("a.yaml");
    let made = Command::new("mkfifo").arg(fixture.path("a.yaml")).status().expect("mkfifo");
    assert!(made.success());
    check_all_stay_in_force(&mut fixture, "error: a.yaml:1:1: is not a regular file");
    fixture.remove("a.yaml");
    fixture.link("/dev/zero", "a.yaml");
    check_all_stay_in_force(&mut fixture, "error: a.yaml:1:1: is not a regular file");
}

#[test]
fn a_linked_folder_whose_target_is_lost_is_kept() {
    let mut fixture = Fixture::new(&[("a.yaml", &service("a", 80))]);
    write(&fixture.aside("shared/b.yaml"), service("b", 80));
    fixture.link("../shared", "sub");
    fixture.scan();
    fs::rename(fixture.aside("shared"), fixture.aside("lost")).expect("a rename");
    check_all_stay_in_force(&mut fixture, "error: folder sub/ cannot be read: ");
    fixture.remove("sub");
    assert_eq!(fixture.scan(), ["delete Service shop/b", "diagnostics sub/"]);
}

#[test]
fn a_root_that_vanishes_removes_nothing() {
    let mut fixture = loaded();
    fs::rename(fixture.root(), fixture.aside("elsewhere")).expect("a rename");
    let expected = format!("error: folder {} cannot be read: No such file", fixture.root().display());
    check_all_stay_in_force(&mut fixture, &expected);
    assert!(!fixture.folder.scan().readable);

    fs::rename(fixture.aside("elsewhere"), fixture.root()).expect("a rename");
    assert_eq!(fixture.scan(), ["diagnostics ."]);
    assert!(fixture.folder.scan().readable);
}

#[test]
fn a_root_that_becomes_a_file_removes_nothing() {
    let mut fixture = loaded();
    fs::rename(fixture.root(), fixture.aside("elsewhere")).expect("a rename");
    fs::write(fixture.root(), "").expect("a file");
    let diagnostic = format!("error: folder {} cannot be read: Not a directory", fixture.root().display());
    check_all_stay_in_force(&mut fixture, &diagnostic);
}

#[test]
fn an_empty_but_readable_root_removes() {
    let mut fixture = loaded();
    fs::remove_dir_all(fixture.root()).expect("a folder to remove");
    fixture.scan();
    fs::create_dir(fixture.root()).expect("a folder");
    assert_eq!(fixture.scan(), ["delete Service shop/a", "delete Service shop/b", "diagnostics ."]);
}

#[test]
fn a_root_that_was_never_there_says_so() {
    let fixture = Fixture::new(&[]);
    let mut folder = Folder::open(&fixture.aside("missing"));
    let Scan { updates, files, readable, .. } = folder.scan();
    assert_eq!(
        (updates.iter().map(describe_update).collect::<Vec<_>>(), files, readable),
        (vec!["diagnostics .".to_owned()], 0, false)
    );
}

#[test]
fn a_file_or_folder_without_permission_is_kept() {
    let mut fixture = loaded();
    if fs::metadata(fixture.root()).expect("metadata").uid() == 0 {
        return as_nobody("files::tests::unreadable::a_file_or_folder_without_permission_is_kept");
    }
    for (path, diagnostic) in [
        ("a.yaml", "error: a.yaml:1:1: cannot be read: Permission denied".to_owned()),
        ("sub/b.yaml", "error: sub/b.yaml:1:1: cannot be read: Permission denied".to_owned()),
        ("sub", "error: folder sub/ cannot be read: Permission denied".to_owned()),
        ("", format!("error: folder {} cannot be read: Permission denied", fixture.root().display())),
    ] {
        let path = fixture.path(path);
        let before = fs::metadata(&path).expect("metadata").permissions();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("permissions");
        check_all_stay_in_force(&mut fixture, &diagnostic);
        fs::set_permissions(&path, before).expect("permissions");
        fixture.scan();
        assert_eq!(fixture.diagnostics(), Vec::<String>::new());
        fixture.check_fresh();
    }
}

/// Root may read everything: runs the test again as a user without the permission.
fn as_nobody(test: &str) {
    const NOBODY: u32 = 65534;
    let fixture = Fixture::new(&[]);
    fs::set_permissions(fixture.temporary.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
    let program = fixture.aside("program");
    fs::copy(std::env::current_exe().expect("this program"), &program).expect("a copy that all may run");
    let output = Command::new(&program).args(["--exact", test]).current_dir("/").uid(NOBODY).output().expect("a run");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
