//! Symbolic links: ConfigMap mounts, linked files and folders, loops.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::*;

/// As the kubelet does: a new folder, files linked through `..data`, and the link replaced by a rename.
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
    let mut fixture = Fixture::new(&[]);
    mount(&fixture.root(), "1", &set(80));
    assert_eq!(fixture.scan(), ["put Service shop/a", "put Service shop/b"]);
    assert_eq!(fixture.folder.scan().files, 2);
    assert_eq!(fixture.diagnostics(), Vec::<String>::new());
}

#[test]
fn a_swap_of_a_config_map_is_one_change() {
    let mut fixture = Fixture::new(&[]);
    mount(&fixture.root(), "1", &set(80));
    fixture.scan();
    mount(&fixture.root(), "2", &set(81));
    fs::remove_dir_all(fixture.path("..2026_1")).expect("the old set");
    assert_eq!(fixture.scan(), ["put Service shop/a", "put Service shop/b"]);
    assert_eq!(fixture.scan(), Vec::<String>::new());
}

#[test]
fn a_key_taken_out_of_a_config_map_is_removed_once_its_link_is() {
    let mut fixture = Fixture::new(&[]);
    mount(&fixture.root(), "1", &set(80));
    fixture.scan();
    mount(&fixture.root(), "2", &set(80)[..1]);
    fixture.scan();
    assert_eq!(fixture.objects().len(), 2, "the link of b still stands");
    fixture.remove("b.yaml");
    assert_eq!(fixture.scan(), ["delete Service shop/b", "diagnostics b.yaml"]);
}

#[test]
fn a_swap_during_the_scan_does_not_mix_two_sets() {
    let mut fixture = Fixture::new(&[]);
    mount(&fixture.root(), "80", &set(80));
    let (root, stop) = (fixture.root(), Arc::new(AtomicBool::new(false)));
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
        fixture.scan();
        assert_eq!(fixture.stored.port("a"), fixture.stored.port("b"));
        versions.extend(fixture.stored.port("a"));
    }
    stop.store(true, Ordering::Relaxed);
    turner.join().expect("the turner");
    assert!(versions.len() > 1, "the test saw no swap");
}

#[test]
fn linked_files_and_folders_are_read_and_their_changes_seen() {
    let mut fixture = Fixture::new(&[]);
    write(&fixture.aside("one/a.yaml"), service("a", 80));
    write(&fixture.aside("many/b.yaml"), service("b", 80));
    fixture.link("../one/a.yaml", "x.yaml");
    fixture.link("../many", "sub");
    assert_eq!(fixture.scan(), ["put Service shop/a", "put Service shop/b"]);
    write(&fixture.aside("one/a.yaml"), service("a", 81));
    write(&fixture.aside("many/b.yaml"), service("b", 81));
    assert_eq!(fixture.scan(), ["put Service shop/a", "put Service shop/b"]);
}

#[test]
fn a_folder_linked_into_itself_is_read_once() {
    let mut fixture = Fixture::new(&[("sub/a.yaml", &service("a", 80))]);
    fixture.link(".", "again");
    fixture.link("..", "sub/up");
    fixture.link("sub", "a-link-before-it");
    assert_eq!(fixture.scan(), ["put Service shop/a"]);
    assert!(fixture.stored.locations()[0].ends_with("at sub/a.yaml:1:1"), "the real path is preferred");
}

#[test]
fn a_linked_folder_that_is_then_found_by_its_real_path_moves_there() {
    let mut fixture = Fixture::new(&[]);
    write(&fixture.aside("far/a.yaml"), service("a", 80));
    fixture.link("../far", "z");
    assert_eq!(fixture.scan(), ["put Service shop/a"]);
    fixture.link("../far", "b");
    assert_eq!(fixture.scan(), ["put Service shop/a"]);
    fixture.check_fresh();
    fixture.remove("z");
    fs::rename(fixture.aside("far"), fixture.path("c")).expect("a rename");
    fixture.link("c", "z");
    fixture.scan();
    assert_eq!(fixture.diagnostics().len(), 2, "b leads nowhere and shadows c: {:?}", fixture.diagnostics());
    fixture.remove("b");
    fixture.scan();
    fixture.check_fresh();
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
    let mut fixture = Fixture::new(&[]);
    for level in 0..64 {
        let folder = fixture.aside(&format!("levels/{level}"));
        fs::create_dir_all(&folder).expect("a folder");
        symlink(format!("../{}", level + 1), folder.join("x")).expect("a link");
        symlink(format!("../{}", level + 1), folder.join("y")).expect("a link");
    }
    write(&fixture.aside("levels/64/a.yaml"), service("a", 80));
    fixture.link("../levels/0", "sub");
    assert_eq!(fixture.scan(), ["put Service shop/a"]);
}

#[test]
fn a_root_that_is_a_link_can_be_turned() {
    let mut fixture = Fixture::new(&[]);
    write(&fixture.aside("v1/a.yaml"), service("a", 80));
    write(&fixture.aside("v2/b.yaml"), service("b", 80));
    fs::remove_dir(fixture.root()).expect("the root");
    symlink("v1", fixture.root()).expect("a link");
    assert_eq!(fixture.scan(), ["put Service shop/a"]);
    symlink("v2", fixture.aside("next")).expect("a link");
    fs::rename(fixture.aside("next"), fixture.root()).expect("a rename");
    assert_eq!(fixture.scan(), ["delete Service shop/a", "put Service shop/b"]);
}
