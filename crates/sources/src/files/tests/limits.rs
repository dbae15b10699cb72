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
        "error: a.yaml:1:1: has 100000000 bytes, the limit is 16777216; split it; the last good version of this file stays in force (1 object)"
    );
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

#[test]
fn rejects_a_link_into_a_vast_tree() {
    let mut fixture = Fixture::loaded(&[("a.yaml", &service("a", 80))]);
    fixture.folder.limits = Limits { entries: 50, ..super::super::LIMITS };
    for n in 0..100 {
        write(&fixture.aside(&format!("vast/{n}/file.txt")), "");
    }
    fixture.link("../vast", "sub");
    assert_eq!(fixture.scan(), ["diagnostics ."]);
    assert!(fixture.diagnostic().contains("holds more than 50 entries"), "{}", fixture.diagnostic());
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
