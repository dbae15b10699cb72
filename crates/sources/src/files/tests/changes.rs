//! Ordinary changes of a folder: which files are read, which are ignored, which updates an edit sends.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use config::store::{Snapshot, Store, StoreOptions};

use super::*;

#[test]
fn yaml_yml_json_lists_and_several_documents_are_read_at_any_depth() {
    let list = r#"{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "d", "namespace": "shop"}, "spec": {"ports": [{"port": 80}]}}]}"#;
    let fixture = Fixture::loaded(&[
        ("a.yaml", &services(&["a", "b"], 80)),
        ("deep/er/c.yml", &service("c", 80)),
        ("deep/d.json", list),
        ("readme.md", "not: [configuration"),
    ]);
    assert_eq!(fixture.objects(), ["Service shop/a", "Service shop/b", "Service shop/c", "Service shop/d"]);
    assert_eq!(fixture.diagnostics(), Vec::<String>::new());
}

#[test]
fn editor_litter_and_hidden_files_are_not_read() {
    let text = service("a", 80);
    let names = [
        ".a.yaml",
        ".a.yaml.swp",
        ".a.yaml.swx",
        "a.yaml~",
        "a.yaml.tmp",
        "#a.yaml#",
        "4913",
        ".git/a.yaml",
        "..x/a.yaml",
        "b.tmp/a.yaml",
    ];
    let mut fixture = Fixture::new(&names.map(|name| (name, text.as_str())));
    fixture.link("nowhere", ".#a.yaml");
    assert_eq!(fixture.scan(), Vec::<String>::new());
    assert_eq!(fixture.folder.scan().files, 0);
}

#[test]
fn a_second_scan_reads_and_sends_nothing() {
    let mut fixture =
        Fixture::loaded(&[("a.yaml", &service("a", 80)), ("bad.yaml", "["), ("dup.yaml", &service("a", 80))]);
    let Scan { updates, files, read, readable } = fixture.folder.scan();
    assert_eq!((updates.len(), files, read, readable), (0, 3, 0, true));
}

#[test]
fn a_file_saved_unchanged_sends_nothing() {
    let mut fixture = Fixture::loaded(&[("a.yaml", &service("a", 80))]);
    fixture.write("a.yaml", format!("{}# a comment\n", service("a", 80)));
    let Scan { updates, read, .. } = fixture.folder.scan();
    assert_eq!((updates.len(), read), (0, 1));
}

#[test]
fn an_object_that_only_moved_within_its_file_is_no_change_to_the_store() {
    let mut fixture = Fixture::new(&[("a.yaml", &service("a", 80))]);
    let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".to_owned(), mesh_config: None });
    let first = store.apply(fixture.folder.scan().updates);
    fixture.write("a.yaml", format!("# a comment\n{}", service("a", 80)));
    let second = store.apply(fixture.folder.scan().updates);
    assert_eq!(first.seq, second.seq);
    let line =
        |snapshot: &Snapshot| snapshot.services.values().next().and_then(|s| s.meta.at.as_ref().map(|at| at.line));
    assert_eq!((line(&first), line(&second)), (Some(1), Some(2)));
}

#[test]
fn an_edit_sends_only_the_object_that_changed() {
    let mut fixture = Fixture::loaded(&[("a.yaml", &services(&["a", "b"], 80)), ("c.yaml", &service("c", 80))]);
    fixture.write("a.yaml", format!("{}---\n{}", service("a", 80), service("b", 81)));
    assert_eq!(fixture.scan(), ["put Service shop/b"]);
    assert_eq!(fixture.stored.port("b"), Some(81));
}

#[test]
fn an_edit_of_the_same_length_with_its_time_set_back_is_seen() {
    let mut fixture = Fixture::loaded(&[("a.yaml", &service("a", 80))]);
    let path = fixture.path("a.yaml");
    let before = fs::metadata(&path).expect("metadata");
    // The change time has the resolution of the kernel's clock tick.
    while changed(&before) == changed(&fs::metadata(&path).expect("metadata")) {
        fs::write(&path, service("a", 81)).expect("a write in place");
        let file = File::options().append(true).open(&path).expect("the file");
        file.set_modified(before.modified().expect("a time")).expect("a time to set");
    }
    assert_eq!(fixture.scan(), ["put Service shop/a"]);
}

fn changed(metadata: &fs::Metadata) -> (i64, i64) {
    use std::os::unix::fs::MetadataExt;
    (metadata.ctime(), metadata.ctime_nsec())
}

#[test]
fn edits_within_one_tick_of_the_clock_are_seen() {
    let mut fixture = Fixture::loaded(&[("a.yaml", &service("a", 80))]);
    for port in 1000..1200 {
        fs::write(fixture.path("a.yaml"), service("a", port)).expect("a write in place");
        fixture.scan();
        assert_eq!(fixture.stored.port("a").map(i32::from), Some(port));
    }
}

#[test]
fn an_atomic_rename_over_a_file_sends_the_new_version_once() {
    let mut fixture = Fixture::loaded(&[("a.yaml", &services(&["a", "b"], 80))]);
    fixture.write("a.yaml.tmp", services(&["a", "b"], 81));
    fs::rename(fixture.path("a.yaml.tmp"), fixture.path("a.yaml")).expect("a rename");
    assert_eq!(fixture.scan(), ["put Service shop/a", "put Service shop/b"]);
    assert_eq!(fixture.scan(), Vec::<String>::new());
}

#[test]
fn files_renamed_over_again_and_again_never_seem_gone() {
    const FILES: usize = 2000;
    let temporary = in_memory();
    let root = temporary.path().to_owned();
    (0..FILES).for_each(|n| write(&root.join(format!("{n}.yaml")), "# nothing\n"));
    let mut folder = Folder::open(&root);
    assert_eq!(folder.scan().files, FILES);
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let renamer = std::thread::spawn(move || {
        for n in (0..FILES).cycle().take_while(|_| !stopped.load(Ordering::Relaxed)) {
            write(&root.join("new.tmp"), "# nothing\n");
            fs::rename(root.join("new.tmp"), root.join(format!("{n}.yaml"))).expect("a rename");
        }
    });
    let counts: Vec<usize> = (0..50).map(|_| folder.scan().files).collect();
    stop.store(true, Ordering::Relaxed);
    renamer.join().expect("the renamer");
    assert_eq!(counts, [FILES; 50]);
}

#[test]
fn an_object_moved_to_another_file_is_never_deleted() {
    let mut fixture = Fixture::loaded(&[("a.yaml", &service("a", 80))]);
    fs::rename(fixture.path("a.yaml"), fixture.path("z.yaml")).expect("a rename");
    assert_eq!(fixture.scan(), ["put Service shop/a"]);
    fixture.check_fresh();
}

#[test]
fn a_replaced_folder_sends_the_difference() {
    let mut fixture = Fixture::loaded(&[("sub/a.yaml", &service("a", 80)), ("sub/b.yaml", &service("b", 80))]);
    write(&fixture.aside("new/b.yaml"), service("b", 80));
    write(&fixture.aside("new/c.yaml"), service("c", 80));
    fs::rename(fixture.path("sub"), fixture.aside("old")).expect("a rename");
    fs::rename(fixture.aside("new"), fixture.path("sub")).expect("a rename");
    assert_eq!(fixture.scan(), ["delete Service shop/a", "put Service shop/c"]);
    fixture.check_fresh();
}

#[test]
fn deleted_files_and_folders_remove_their_objects_and_notes() {
    let bad = format!("{}---\n{}", service("b", 80), service("x", -1));
    let mut fixture = Fixture::loaded(&[("a.yaml", &service("a", 80)), ("sub/b.yaml", &bad)]);
    fixture.remove("a.yaml");
    assert_eq!(fixture.scan(), ["delete Service shop/a"]);
    fs::remove_dir_all(fixture.path("sub")).expect("a folder to remove");
    assert_eq!(fixture.scan(), ["delete Service shop/b", "diagnostics sub/b.yaml"]);
    assert_eq!(fixture.diagnostics(), Vec::<String>::new());
}

#[test]
fn names_in_notes_are_relative_to_the_folder() {
    let fixture = Fixture::loaded(&[("sub/b.yaml", "[")]);
    assert!(fixture.diagnostic().starts_with("error: sub/b.yaml:"));
}

#[test]
fn changed_paths_are_scanned_without_looking_at_the_others() {
    let mut fixture = Fixture::loaded(&[("a.yaml", &service("a", 80)), ("deep/b.yaml", &service("b", 80))]);
    fixture.write("a.yaml", service("a", 82));
    fixture.write("deep/b.yaml", service("b", 81));
    assert_eq!(fixture.scan_paths(&["deep/b.yaml"]), Some(vec!["put Service shop/b".to_owned()]));
    fixture.write("deep/c.yaml", service("c", 80));
    assert_eq!(fixture.scan_paths(&["deep/c.yaml"]), Some(vec!["put Service shop/c".to_owned()]));
    fixture.remove("deep/b.yaml");
    assert_eq!(fixture.scan_paths(&["deep/b.yaml"]), Some(vec!["delete Service shop/b".to_owned()]));
    assert_eq!(fixture.stored.port("a"), Some(80), "nobody named it");
    assert_eq!(fixture.scan_paths(&["a.yaml"]), Some(vec!["put Service shop/a".to_owned()]));
    fixture.check_fresh();
}

#[test]
fn a_new_moved_or_deleted_folder_is_scanned_with_all_below_it() {
    let mut fixture = Fixture::loaded(&[("a.yaml", &service("a", 80))]);
    fixture.write("x/deep/b.yaml", service("b", 80));
    fixture.write("x/c.yaml", service("c", 80));
    assert_eq!(fixture.scan_paths(&["x"]).expect("no full scan"), ["put Service shop/b", "put Service shop/c"]);
    fixture.check_fresh();
    fs::rename(fixture.path("x"), fixture.path("y")).expect("a rename");
    assert_eq!(fixture.scan_paths(&["x", "y"]).expect("no full scan"), ["put Service shop/b", "put Service shop/c"]);
    fixture.check_fresh();
    fs::remove_dir_all(fixture.path("y")).expect("a folder to remove");
    assert_eq!(fixture.scan_paths(&["y"]).expect("no full scan"), ["delete Service shop/b", "delete Service shop/c"]);
    fixture.check_fresh();
}

#[test]
fn a_file_and_a_folder_may_change_places() {
    let mut fixture = Fixture::loaded(&[("x.yaml", &service("a", 80)), ("y.yaml/b.yaml", &service("b", 80))]);
    fixture.remove("x.yaml");
    fixture.write("x.yaml/a.yaml", service("a", 81));
    fs::remove_dir_all(fixture.path("y.yaml")).expect("a folder to remove");
    fixture.write("y.yaml", service("b", 81));
    let updates = fixture.scan_paths(&["x.yaml", "y.yaml", "y.yaml/b.yaml"]);
    assert_eq!(updates.expect("no full scan"), ["put Service shop/a", "put Service shop/b"]);
    fixture.check_fresh();
}

#[test]
fn hidden_and_temporary_files_need_no_scan() {
    let mut fixture = Fixture::loaded(&[("a.yaml", &service("a", 80))]);
    fixture.write(".a.yaml.rsync", service("a", 81));
    fixture.link("a.yaml", ".#a.yaml");
    assert_eq!(fixture.scan_paths(&[".a.yaml.rsync", ".#a.yaml", "a.yaml~"]), Some(Vec::new()));
}

#[test]
fn links_unreadable_parts_and_the_top_need_a_full_scan() {
    let mut fixture = Fixture::loaded(&[("a.yaml", &service("a", 80))]);
    fixture.link("a.yaml", "d.yaml");
    assert_eq!(
        [fixture.scan_paths(&["d.yaml"]), fixture.scan_paths(&[".."]), fixture.scan_paths(&[""])],
        [None, None, None]
    );
    fixture.write("sub/b.yaml", service("b", 80));
    fixture.link("../a.yaml", "sub/e.yaml");
    assert_eq!(fixture.scan_paths(&["sub"]), None, "a link below");
    fixture.scan();
    fixture.write("a.yaml", service("a", 81));
    assert_eq!(fixture.scan_paths(&["a.yaml"]), None, "the link gives it too");
}

#[test]
fn a_folder_that_was_moved_away_loses_no_object() {
    let mut fixture = Fixture::loaded(&[("a.yaml", &service("a", 80))]);
    let root = fs::canonicalize(fixture.root()).expect("the root");
    fs::rename(fixture.root(), fixture.aside("gone")).expect("a rename");
    assert!(fixture.folder.scan_paths(&[root.join("a.yaml")].into()).is_none());
    fs::create_dir(fixture.root()).expect("another folder");
    assert!(fixture.folder.scan_paths(&[root.join("a.yaml")].into()).is_none(), "another directory of that name");
}

#[test]
fn more_files_than_the_limit_need_a_full_scan() {
    let mut fixture = Fixture::loaded(&[("a.yaml", &service("a", 80))]);
    fixture.folder.limits.files = 1;
    fixture.write("b.yaml", service("b", 80));
    assert_eq!(fixture.scan_paths(&["b.yaml"]), None);
    fixture.scan();
    assert!(fixture.diagnostic().contains("more than 1 files"), "{}", fixture.diagnostic());
    assert_eq!(fixture.objects(), ["Service shop/a"]);
}
