//! One object defined more than once.

use super::*;

const WARNING: &str = "warning: z.yaml:1:1: Service shop/a: is defined at b.yaml:1:1 too; that one is used (the first path wins), this one is not; remove one of them";

#[test]
fn the_first_path_wins_and_both_are_named() {
    let bed = Bed::loaded(&[("z.yaml", &service("a", 90)), ("b.yaml", &service("a", 80))]);
    assert_eq!(bed.held.port("a"), Some(80));
    assert_eq!(bed.note(), WARNING);
}

#[test]
fn the_other_takes_over_without_a_removal() {
    let mut bed = Bed::loaded(&[("z.yaml", &service("a", 90)), ("b.yaml", &service("a", 80))]);
    bed.remove("b.yaml");
    assert_eq!(bed.scan(), ["put Service shop/a", "notes z.yaml"]);
    assert_eq!((bed.held.port("a"), bed.notes().len()), (Some(90), 0));
    bed.remove("z.yaml");
    assert_eq!(bed.scan(), ["delete Service shop/a"]);
}

#[test]
fn an_earlier_path_that_appears_takes_over() {
    let mut bed = Bed::loaded(&[("z.yaml", &service("a", 90))]);
    bed.write("b.yaml", service("a", 80));
    assert_eq!(bed.scan(), ["put Service shop/a", "notes z.yaml"]);
    assert_eq!(bed.note(), WARNING);
}

#[test]
fn a_later_path_that_appears_changes_nothing_but_is_told() {
    let mut bed = Bed::loaded(&[("b.yaml", &service("a", 80))]);
    bed.write("z.yaml", service("a", 90));
    assert_eq!(bed.scan(), ["notes z.yaml"]);
    bed.write("z.yaml", service("a", 91));
    assert_eq!(bed.scan(), Vec::<String>::new(), "an edit of the one that is not used");
    bed.write("z.yaml", service("b", 91));
    assert_eq!(bed.scan(), ["put Service shop/b", "notes z.yaml"]);
}

#[test]
fn the_warning_follows_the_winner_as_it_moves() {
    let mut bed = Bed::loaded(&[("b.yaml", &service("a", 80)), ("z.yaml", &service("a", 90))]);
    bed.write("b.yaml", format!("# one line more\n{}", service("a", 80)));
    assert_eq!(bed.scan(), ["put Service shop/a", "notes z.yaml"]);
    assert!(bed.note().contains("defined at b.yaml:2:1 too"), "{}", bed.note());
    bed.check_fresh();
}

#[test]
fn of_three_each_loser_names_the_winner() {
    let mut bed =
        Bed::loaded(&[("a.yaml", &service("a", 80)), ("b.yaml", &service("a", 81)), ("c.yaml", &service("a", 82))]);
    assert_eq!(bed.notes().len(), 2);
    bed.remove("a.yaml");
    assert_eq!(bed.scan(), ["put Service shop/a", "notes b.yaml", "notes c.yaml"]);
    assert!(bed.note().starts_with("warning: c.yaml:1:1: Service shop/a: is defined at b.yaml:1:1 too"));
    bed.check_fresh();
}

#[test]
fn the_same_object_twice_in_one_file_is_the_first() {
    let bed = Bed::loaded(&[("x.yaml", &format!("{}---\n{}", service("a", 80), service("a", 90)))]);
    assert_eq!(bed.held.port("a"), Some(80));
    assert_eq!(
        bed.note(),
        "warning: x.yaml:10:1: Service shop/a: is defined before in the same file at x.yaml:1:1; the first is used, this one is not"
    );
}

#[test]
fn a_winner_that_breaks_still_wins() {
    let mut bed = Bed::loaded(&[("b.yaml", &service("a", 80)), ("z.yaml", &service("a", 90))]);
    bed.write("b.yaml", "[");
    assert_eq!(bed.scan(), ["notes b.yaml"]);
    assert_eq!(bed.held.port("a"), Some(80));
}
