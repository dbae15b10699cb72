//! One object defined more than once.

use super::*;

const WARNING: &str = "warning: z.yaml:1:1: Service shop/a: is defined at b.yaml:1:1 too; that one is used (the first path wins), this one is not; remove one of them";

#[test]
fn the_first_path_wins_and_both_are_named() {
    let fixture = Fixture::loaded(&[("z.yaml", &service("a", 90)), ("b.yaml", &service("a", 80))]);
    assert_eq!(fixture.stored.port("a"), Some(80));
    assert_eq!(fixture.diagnostic(), WARNING);
}

#[test]
fn the_other_takes_over_without_a_removal() {
    let mut fixture = Fixture::loaded(&[("z.yaml", &service("a", 90)), ("b.yaml", &service("a", 80))]);
    fixture.remove("b.yaml");
    assert_eq!(fixture.scan(), ["put Service shop/a", "diagnostics z.yaml"]);
    assert_eq!((fixture.stored.port("a"), fixture.diagnostics().len()), (Some(90), 0));
    fixture.remove("z.yaml");
    assert_eq!(fixture.scan(), ["delete Service shop/a"]);
}

#[test]
fn an_earlier_path_that_appears_takes_over() {
    let mut fixture = Fixture::loaded(&[("z.yaml", &service("a", 90))]);
    fixture.write("b.yaml", service("a", 80));
    assert_eq!(fixture.scan(), ["put Service shop/a", "diagnostics z.yaml"]);
    assert_eq!(fixture.diagnostic(), WARNING);
}

#[test]
fn a_later_path_that_appears_changes_nothing_but_is_reported() {
    let mut fixture = Fixture::loaded(&[("b.yaml", &service("a", 80))]);
    fixture.write("z.yaml", service("a", 90));
    assert_eq!(fixture.scan(), ["diagnostics z.yaml"]);
    fixture.write("z.yaml", service("a", 91));
    assert_eq!(fixture.scan(), Vec::<String>::new(), "an edit of the one that is not used");
    fixture.write("z.yaml", service("b", 91));
    assert_eq!(fixture.scan(), ["put Service shop/b", "diagnostics z.yaml"]);
}

#[test]
fn the_warning_follows_the_winner_as_it_moves() {
    let mut fixture = Fixture::loaded(&[("b.yaml", &service("a", 80)), ("z.yaml", &service("a", 90))]);
    fixture.write("b.yaml", format!("# one line more\n{}", service("a", 80)));
    assert_eq!(fixture.scan(), ["put Service shop/a", "diagnostics z.yaml"]);
    assert!(fixture.diagnostic().contains("defined at b.yaml:2:1 too"), "{}", fixture.diagnostic());
    fixture.check_fresh();
}

#[test]
fn of_three_each_loser_names_the_winner() {
    let mut fixture =
        Fixture::loaded(&[("a.yaml", &service("a", 80)), ("b.yaml", &service("a", 81)), ("c.yaml", &service("a", 82))]);
    assert_eq!(fixture.diagnostics().len(), 2);
    fixture.remove("a.yaml");
    assert_eq!(fixture.scan(), ["put Service shop/a", "diagnostics b.yaml", "diagnostics c.yaml"]);
    assert!(fixture.diagnostic().starts_with("warning: c.yaml:1:1: Service shop/a: is defined at b.yaml:1:1 too"));
    fixture.check_fresh();
}

#[test]
fn the_same_object_twice_in_one_file_is_the_first() {
    let fixture = Fixture::loaded(&[("x.yaml", &format!("{}---\n{}", service("a", 80), service("a", 90)))]);
    assert_eq!(fixture.stored.port("a"), Some(80));
    assert_eq!(
        fixture.diagnostic(),
        "warning: x.yaml:10:1: Service shop/a: is defined before in the same file at x.yaml:1:1; the first is used, this one is not"
    );
}

#[test]
fn a_winner_that_breaks_still_wins() {
    let mut fixture = Fixture::loaded(&[("b.yaml", &service("a", 80)), ("z.yaml", &service("a", 90))]);
    fixture.write("b.yaml", "[");
    assert_eq!(fixture.scan(), ["diagnostics b.yaml"]);
    assert_eq!(fixture.stored.port("a"), Some(80));
}
