//! Large and hostile folders: rejected with the limit, in bounded time, without effect on the rest.

use std::time::Instant;

use super::super::Limits;
use super::*;

#[test]
fn rejects_a_file_of_100_mb_with_the_limit() {
    let mut fixture = Fixture::loaded(&[("a.yaml", &service("a", 80)), ("b.yaml", &service("b", 80))]);
    File::create(fixture.path("a.yaml")).and_then(|file| file.set_len(100_000_000)).expect("a large file");
    assert_eq!(fixture.scan(), ["diagnostics a.yaml"]);
    assert_eq!(
        fixture.diagnostic(),
        "error: a.yaml:1:1: has 100000000 bytes, the limit is 16777216; split it, or put its objects into a List (134217728 bytes); the last good version of this file stays in force (1 object)"
    );
}

#[test]
fn reads_a_list_above_the_limit_of_a_file() {
    let padding = format!("# {}\n", "x".repeat(1000)).repeat(17 << 10);
    let list = |body: &str| format!("apiVersion: v1\n{body}\n{padding}");
    let object = "{apiVersion: v1, kind: Service, metadata: {name: a, namespace: shop}, spec: {ports: [{port: 80}]}}";
    let fixture = Fixture::loaded(&[("list.yaml", &list(&format!("items:\n- {object}\nkind: List")))]);
    assert_eq!(fixture.objects(), ["Service shop/a"]);
    let text = list("kind: Service\nmetadata: {name: a, namespace: shop}\nspec: {ports: [{port: 80}]}");
    let mut fixture = Fixture::loaded(&[("one.yaml", &text)]);
    assert!(fixture.objects().is_empty() && fixture.diagnostic().contains("the limit is 16777216"));
    fixture.folder = Folder::open(&fixture.root()).with_max_file_size(32 << 20);
    assert_eq!(fixture.scan(), ["put Service shop/a"]);
}

#[test]
fn rejects_an_alias_bomb_and_applies_the_others() {
    let levels =
        (1..30).map(|n| format!("l{n}: &l{n} [*l{0}, *l{0}, *l{0}, *l{0}, *l{0}, *l{0}, *l{0}, *l{0}]\n", n - 1));
    let bomb = format!("l0: &l0 [x, x, x, x]\n{}", levels.collect::<String>());
    check_rejected(&bomb);
}

#[test]
fn rejects_a_depth_of_10_000_and_applies_the_others() {
    check_rejected(&"[".repeat(10_000));
    check_rejected(&format!("{}{}", "[".repeat(10_000), "]".repeat(10_000)));
    check_rejected(&"{\"a\":".repeat(10_000));
}

fn check_rejected(text: &str) {
    let began = Instant::now();
    let fixture = Fixture::loaded(&[("bad.yaml", text), ("good.yaml", &service("a", 80))]);
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_eq!(fixture.objects(), ["Service shop/a"]);
    assert!(fixture.diagnostic().starts_with("error: bad.yaml:"), "{}", fixture.diagnostic());
}

#[test]
fn rejects_too_many_files_as_a_whole_and_removes_nothing() {
    let mut fixture = Fixture::loaded(&[("a.yaml", &service("a", 80)), ("b.yaml", &service("b", 80))]);
    fixture.folder.limits = Limits { files: 2, ..super::super::LIMITS };
    fixture.remove("a.yaml");
    for name in ["c.yaml", "sub/d.yaml"] {
        fixture.write(name, service("c", 80));
    }
    assert_eq!(fixture.scan(), ["diagnostics ."]);
    assert_eq!(fixture.objects(), ["Service shop/a", "Service shop/b"]);
    assert!(fixture.diagnostic().contains("holds more than 2 files, which is the limit"), "{}", fixture.diagnostic());
    fixture.remove("c.yaml");
    assert_eq!(fixture.scan(), ["delete Service shop/a", "put Service shop/c", "diagnostics ."]);
}

fn vast_tree(fixture: &Fixture, name: &str) {
    for n in 0..100 {
        write(&fixture.aside(&format!("{name}/{n}/file.txt")), "");
    }
    write(&fixture.aside(&format!("{name}/in.yaml")), service(name, 80));
}

#[test]
fn a_link_into_a_large_tree_is_left_out_and_others_apply() {
    let mut fixture = Fixture::loaded(&[("a.yaml", &service("a", 80))]);
    fixture.folder.limits = Limits { link_entries: 50, ..super::super::LIMITS };
    vast_tree(&fixture, "vast");
    write(&fixture.aside("small/b.yaml"), service("b", 80));
    fixture.link("../vast", "sub");
    fixture.link("../small", "then");
    fixture.write("a.yaml", service("a", 81));
    assert_eq!(fixture.scan(), ["put Service shop/a", "put Service shop/b", "diagnostics sub/"]);
    let left_out =
        "folder sub/ holds more than 50 entries besides configuration files, which is the limit; it is left out";
    assert!(fixture.diagnostic().contains(left_out), "{}", fixture.diagnostic());
    assert!(!fixture.folder.watched_dirs.keys().any(|dir| dir.ends_with("vast/1")), "it is not watched either");
    fixture.remove("sub");
    assert_eq!(fixture.scan(), ["diagnostics sub/"]);
}

#[test]
fn a_linked_folder_that_grows_too_large_keeps_its_objects() {
    let mut fixture = Fixture::new(&[]);
    fixture.folder.limits = Limits { link_entries: 50, ..super::super::LIMITS };
    write(&fixture.aside("vast/in.yaml"), service("vast", 80));
    fixture.link("../vast", "sub");
    assert_eq!(fixture.scan(), ["put Service shop/vast"]);
    vast_tree(&fixture, "vast");
    assert_eq!(fixture.scan(), ["diagnostics sub/"]);
    assert!(fixture.diagnostic().ends_with("its previous objects stay in force"), "{}", fixture.diagnostic());
}

#[test]
fn many_links_into_large_trees_cost_a_bounded_number_of_entries() {
    let mut fixture = Fixture::loaded(&[("a.yaml", &service("a", 80))]);
    fixture.folder.limits = Limits { link_entries: 250, all_link_entries: 500, ..super::super::LIMITS };
    for n in 0..20 {
        vast_tree(&fixture, &format!("vast{n}"));
        fixture.link(format!("../vast{n}"), &format!("sub{n}"));
    }
    fixture.write("a.yaml", service("a", 81));
    assert!(fixture.scan().contains(&"put Service shop/a".to_owned()));
    let left_out = fixture.diagnostics().iter().filter(|text| text.contains("it is left out")).count();
    assert!((15..20).contains(&left_out), "{left_out}");
}

#[test]
fn links_into_file_systems_of_the_kernel_are_not_followed() {
    let mut fixture = Fixture::loaded(&[("a.yaml", &service("a", 80))]);
    for (to, name) in [("/proc", "proc"), ("/proc/self", "self"), ("/sys", "sys"), ("/proc/kmsg", "kmsg.yaml")] {
        fixture.link(to, name);
    }
    fixture.link("/proc/self/status", "status.yaml");
    fixture.link("/dev/zero", "zero.yaml");
    fixture.link("/dev/random", "random.yaml");
    fixture.write("a.yaml", service("a", 81));
    assert_eq!(fixture.scan()[0], "put Service shop/a");
    let diagnostics = fixture.diagnostics().join("\n");
    assert_eq!(diagnostics.matches("a file system of the kernel").count(), 5, "{diagnostics}");
    assert_eq!(diagnostics.matches("is not a regular file").count(), 2, "{diagnostics}");
    let watched = |prefix: &str| fixture.folder.watched_dirs.keys().any(|dir| dir.starts_with(prefix));
    assert!(!watched("/proc") && !watched("/sys"), "{:?}", fixture.folder.watched_dirs.keys());
}

#[test]
fn a_link_to_the_root_of_the_file_system_does_not_delay_others() {
    let mut fixture = Fixture::loaded(&[("a.yaml", &service("a", 80))]);
    fixture.link("/", "everything");
    fixture.write("a.yaml", service("a", 81));
    assert!(fixture.scan().contains(&"put Service shop/a".to_owned()));
    let proc = Path::new("/proc");
    assert!(!fixture.folder.watched_dirs.keys().any(|dir| dir.starts_with(proc)));
}

#[test]
fn a_fifo_in_the_place_of_a_file_does_not_block() {
    let mut fixture = Fixture::loaded(&[("a.yaml", &service("a", 80)), ("b.yaml", &service("b", 80))]);
    fixture.remove("b.yaml");
    nix::unistd::mkfifo(&fixture.path("b.yaml"), nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    fixture.link("b.yaml", "c.yaml");
    fixture.write("a.yaml", service("a", 81));
    assert_eq!(fixture.scan()[0], "put Service shop/a");
    let shown = "b.yaml".into();
    let read = super::super::Reading::new(&fixture.path("b.yaml"), &shown, 1000, None).expect("it is there");
    let super::super::reading::Content::Unusable(diagnostic) = read.content else { panic!("a FIFO was read") };
    assert!(diagnostic.to_string().contains("is not a regular file"), "{diagnostic}");
}

#[test]
fn a_file_of_nothing_but_mistakes_has_a_bounded_number_of_notes() {
    let mistakes: String = (0..5000).map(|n| format!("mistake{n}: 1\n")).collect();
    let fixture = Fixture::loaded(&[("a.yaml", &format!("{}{mistakes}---\n{}", service("a", 80), service("b", -1)))]);
    let diagnostics = fixture.diagnostics();
    assert_eq!(diagnostics.len(), 1001);
    assert!(
        diagnostics[0].starts_with("error: ") && diagnostics[0].contains("Service shop/b"),
        "errors come first: {}",
        diagnostics[0]
    );
    assert_eq!(diagnostics[1000], "warning: a.yaml:1:1: 4001 more diagnostics on this file are not shown");
}

#[test]
fn many_files_are_read_in_time_and_not_read_again() {
    const FILES: usize = if cfg!(debug_assertions) { 10_000 } else { 50_000 };
    let mut fixture = Fixture::new(&[]);
    for n in 0..FILES {
        fixture.write(&format!("{:02}/{n}.yaml", n % 100), service(&format!("s{n}"), 80));
    }
    let began = Instant::now();
    let Scan { updates, files, .. } = fixture.folder.scan();
    let took = began.elapsed();
    assert_eq!((updates.len(), files), (FILES, FILES));
    let began = Instant::now();
    assert_eq!(fixture.folder.scan().read, 0);
    println!("{FILES} files: {took:?}, again {:?}", began.elapsed());
    if !cfg!(debug_assertions) {
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
}
