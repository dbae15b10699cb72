//! Symbolic links: ConfigMap mounts, linked files and folders, loops.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::*;

/// What the kubelet does: a new folder, files linked through `..data`, and the link turned by a rename.
pub(in crate::files) fn mount(root: &Path, version: &str, files: &[(&str, String)]) {
    let set = format!("..2026_{version}");
    for (name, text) in files {
        write(&root.join(&set).join(name), text);
    }
    symlink(&set, root.join("..data_tmp")).expect("a link");
    fs::rename(root.join("..data_tmp"), root.join("..data")).expect("a rename");
    for (name, _) in files {
        let visible = root.join(name);
        if fs::symlink_metadata(&visible).is_err() {
            symlink(Path::new("..data").join(name), visible).expect("a link");
        }
    }
}

fn set(port: i32) -> [(&'static str, String); 2] {
    [("a.yaml", service("a", port)), ("b.yaml", service("b", port))]
}

#[test]
fn files_of_a_config_map_are_read_once() {
    let mut bed = Bed::new(&[]);
    mount(&bed.root(), "1", &set(80));
    assert_eq!(bed.scan(), ["put Service shop/a", "put Service shop/b"]);
    assert_eq!(bed.folder.scan().files, 2);
    assert_eq!(bed.notes(), Vec::<String>::new());
}

#[test]
fn a_swap_of_a_config_map_is_one_change() {
    let mut bed = Bed::new(&[]);
    mount(&bed.root(), "1", &set(80));
    bed.scan();
    mount(&bed.root(), "2", &set(81));
    fs::remove_dir_all(bed.path("..2026_1")).expect("the old set");
    assert_eq!(bed.scan(), ["put Service shop/a", "put Service shop/b"]);
    assert_eq!(bed.scan(), Vec::<String>::new());
}

#[test]
fn a_key_taken_out_of_a_config_map_is_removed_once_its_link_is() {
    let mut bed = Bed::new(&[]);
    mount(&bed.root(), "1", &set(80));
    bed.scan();
    mount(&bed.root(), "2", &set(80)[..1]);
    bed.scan();
    assert_eq!(bed.objects().len(), 2, "the link of b still stands");
    bed.remove("b.yaml");
    assert_eq!(bed.scan(), ["delete Service shop/b", "notes b.yaml"]);
}

#[test]
fn a_swap_during_the_scan_does_not_mix_two_sets() {
    let mut bed = Bed::new(&[]);
    mount(&bed.root(), "80", &set(80));
    let (root, stop) = (bed.root(), Arc::new(AtomicBool::new(false)));
    let stopped = stop.clone();
    let turner = std::thread::spawn(move || {
        for port in (1000..).take_while(|_| !stopped.load(Ordering::Relaxed)) {
            mount(&root, &port.to_string(), &set(port));
            std::thread::yield_now();
        }
    });
    let mut versions = std::collections::BTreeSet::new();
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while versions.len() < 20 && std::time::Instant::now() < end {
        bed.scan();
        assert_eq!(bed.held.port("a"), bed.held.port("b"));
        versions.extend(bed.held.port("a"));
    }
    stop.store(true, Ordering::Relaxed);
    turner.join().expect("the turner");
    assert!(versions.len() > 1, "the test saw no swap");
}

#[test]
fn linked_files_and_folders_are_read_and_their_changes_seen() {
    let mut bed = Bed::new(&[]);
    write(&bed.aside("one/a.yaml"), service("a", 80));
    write(&bed.aside("many/b.yaml"), service("b", 80));
    bed.link("../one/a.yaml", "x.yaml");
    bed.link("../many", "sub");
    assert_eq!(bed.scan(), ["put Service shop/a", "put Service shop/b"]);
    write(&bed.aside("one/a.yaml"), service("a", 81));
    write(&bed.aside("many/b.yaml"), service("b", 81));
    assert_eq!(bed.scan(), ["put Service shop/a", "put Service shop/b"]);
}

#[test]
fn a_folder_linked_into_itself_is_read_once() {
    let mut bed = Bed::new(&[("sub/a.yaml", &service("a", 80))]);
    bed.link(".", "again");
    bed.link("..", "sub/up");
    bed.link("sub", "a-link-before-it");
    assert_eq!(bed.scan(), ["put Service shop/a"]);
    assert!(bed.held.places()[0].ends_with("at sub/a.yaml:1:1"), "the real path is preferred");
}

#[test]
fn a_linked_folder_that_is_then_found_by_its_real_path_moves_there() {
    let mut bed = Bed::new(&[]);
    write(&bed.aside("far/a.yaml"), service("a", 80));
    bed.link("../far", "z");
    assert_eq!(bed.scan(), ["put Service shop/a"]);
    bed.link("../far", "b");
    assert_eq!(bed.scan(), ["put Service shop/a"]);
    bed.check_fresh();
    bed.remove("z");
    fs::rename(bed.aside("far"), bed.path("c")).expect("a rename");
    bed.link("c", "z");
    bed.scan();
    assert_eq!(bed.notes().len(), 2, "b leads nowhere and shadows c: {:?}", bed.notes());
    bed.remove("b");
    bed.scan();
    bed.check_fresh();
}

#[test]
fn links_turned_again_and_again_never_seem_gone() {
    const LINKS: usize = 1500;
    let temporary = in_memory();
    let root = temporary.path().join("conf");
    fs::create_dir(&root).expect("the root");
    let to = |n: usize| format!("../far/{n}");
    for n in 0..LINKS {
        write(&root.join(to(n)).join("a.yaml"), "# nothing\n");
        symlink(to(n), root.join(n.to_string())).expect("a link");
    }
    let mut folder = Folder::open(&root);
    assert_eq!(folder.scan().files, LINKS);
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let turner = std::thread::spawn(move || {
        for n in (0..LINKS).cycle().take_while(|_| !stopped.load(Ordering::Relaxed)) {
            symlink(to(n), root.join("new.tmp")).expect("a link");
            fs::rename(root.join("new.tmp"), root.join(n.to_string())).expect("a rename");
        }
    });
    let counts: Vec<usize> = (0..30).map(|_| folder.scan().files).collect();
    stop.store(true, Ordering::Relaxed);
    turner.join().expect("the turner");
    assert_eq!(counts, [LINKS; 30]);
}

#[test]
fn links_that_double_at_each_level_are_bounded() {
    let mut bed = Bed::new(&[]);
    for level in 0..64 {
        let folder = bed.aside(&format!("levels/{level}"));
        fs::create_dir_all(&folder).expect("a folder");
        symlink(format!("../{}", level + 1), folder.join("x")).expect("a link");
        symlink(format!("../{}", level + 1), folder.join("y")).expect("a link");
    }
    write(&bed.aside("levels/64/a.yaml"), service("a", 80));
    bed.link("../levels/0", "sub");
    assert_eq!(bed.scan(), ["put Service shop/a"]);
}

#[test]
fn a_root_that_is_a_link_can_be_turned() {
    let mut bed = Bed::new(&[]);
    write(&bed.aside("v1/a.yaml"), service("a", 80));
    write(&bed.aside("v2/b.yaml"), service("b", 80));
    fs::remove_dir(bed.root()).expect("the root");
    symlink("v1", bed.root()).expect("a link");
    assert_eq!(bed.scan(), ["put Service shop/a"]);
    symlink("v2", bed.aside("next")).expect("a link");
    fs::rename(bed.aside("next"), bed.root()).expect("a rename");
    assert_eq!(bed.scan(), ["delete Service shop/a", "put Service shop/b"]);
}
