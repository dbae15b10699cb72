//! Files that are half-written, damaged, or hold a bad object.

use super::*;

const A_AND_B: [&str; 2] = ["Service shop/a", "Service shop/b"];

/// A file with `a` and `b` gets this text; both stay in force, one error says where, and the next good save counts.
fn check_kept(damaged: impl AsRef<[u8]>, place: &str) -> String {
    let mut bed = Bed::loaded(&[("x.yaml", &services(&["a", "b"], 80)), ("y.yaml", &service("c", 80))]);
    bed.write("x.yaml", damaged);
    assert_eq!(bed.scan(), ["notes x.yaml"]);
    assert_eq!(bed.objects()[..2], A_AND_B);
    let note = bed.note();
    assert!(note.starts_with(&format!("error: x.yaml:{place}")), "{note}");
    assert!(note.ends_with("the last good version of this file stays in force (2 objects)"), "{note}");

    bed.write("y.yaml", service("c", 81));
    assert_eq!(bed.scan(), ["put Service shop/c"], "the others go on");

    bed.write("x.yaml", service("a", 81));
    assert_eq!(bed.scan(), ["put Service shop/a", "delete Service shop/b", "notes x.yaml"]);
    assert_eq!(bed.notes(), Vec::<String>::new());
    bed.check_fresh();
    note
}

#[test]
fn a_truncated_file_keeps_its_last_good_objects() {
    let text = format!("{}---\nkind: Service\nmetadata: {{name: \"b", service("a", 81));
    check_kept(text, "11:18: ");
}

#[test]
fn tabs_and_stray_brackets_keep_the_last_good_objects() {
    check_kept("kind: Service\n\tname: a\n", "1:7: ");
    check_kept("kind: [Service\n", "2:1: ");
}

#[test]
fn nul_bytes_keep_the_last_good_objects() {
    check_kept(vec![0; 4096], "1:1: ");
    check_kept(format!("{}\0\0\0\0", service("a", 81)), "9:1: ");
}

#[test]
fn bytes_that_are_not_text_keep_the_last_good_objects() {
    let note = check_kept(b"kind: Service\nname: \xe9t\xe9\n", "2:7: ");
    assert!(note.contains("byte 0xe9 is not UTF-8; save the file as UTF-8"), "{note}");
}

#[test]
fn an_emptied_file_counts_as_half_written() {
    let note = check_kept("", "1:1: ");
    assert!(note.contains("is empty; delete the file to remove its objects"), "{note}");
    check_kept("\n\n", "1:1: ");
}

#[test]
fn a_file_of_comments_removes_its_objects() {
    let mut bed = Bed::loaded(&[("x.yaml", &service("a", 80))]);
    bed.write("x.yaml", "# nothing for now\n");
    assert_eq!(bed.scan(), ["delete Service shop/a"]);
    assert_eq!(bed.notes(), Vec::<String>::new());
}

#[test]
fn a_file_that_was_never_good_gives_nothing_and_harms_nobody() {
    let bed = Bed::loaded(&[
        ("bad.yaml", &format!("{}---\n{{", service("a", 80))),
        ("good.yaml", &service("b", 80)),
        ("void.yaml", ""),
    ]);
    assert_eq!(bed.objects(), ["Service shop/b"]);
    let note = bed.note();
    assert!(note.starts_with("error: bad.yaml:") && !note.contains("stays in force"), "{note}");
}

#[test]
fn a_bad_object_keeps_its_last_good_version_while_others_apply() {
    let mut bed = Bed::loaded(&[("x.yaml", &services(&["a", "b"], 80))]);
    bed.write("x.yaml", format!("{}---\n{}", service("a", -1), service("b", 81)));
    assert_eq!(bed.scan(), ["put Service shop/b", "notes x.yaml"]);
    assert_eq!((bed.held.port("a"), bed.held.port("b")), (Some(80), Some(81)));
    let note = bed.note();
    assert!(note.starts_with("error: x.yaml:8:11: Service shop/a: spec.ports[0].port: "), "{note}");
    assert!(note.ends_with("; its last good version stays in force"), "{note}");

    bed.write("x.yaml", services(&["a", "b"], 81));
    assert_eq!(bed.scan(), ["put Service shop/a", "notes x.yaml"]);
}

#[test]
fn an_object_that_was_never_good_is_left_out() {
    let bed = Bed::loaded(&[("x.yaml", &format!("{}---\n{}", service("a", -1), service("b", 81)))]);
    assert_eq!(bed.objects(), ["Service shop/b"]);
    assert!(!bed.note().contains("stays in force"));
}

#[test]
fn a_document_that_lost_its_name_removes_nothing() {
    let mut bed = Bed::loaded(&[("x.yaml", &services(&["a", "b"], 80))]);
    bed.write("x.yaml", format!("{}---\n{}", service("a", 80), service("b", 80).replace("name: b", "nmae: b")));
    assert_eq!(bed.scan(), ["notes x.yaml"]);
    assert_eq!(bed.objects(), A_AND_B);
    let note = bed.notes().join("\n");
    assert!(note.contains("until this is mended, what this file no longer gives stays in force (1 object)"), "{note}");
}

#[test]
fn a_bad_object_that_is_then_taken_out_is_removed() {
    let mut bed = Bed::loaded(&[("x.yaml", &services(&["a", "b"], 80))]);
    bed.write("x.yaml", services(&["a", "b"], -1));
    bed.scan();
    bed.write("x.yaml", service("b", 80));
    assert_eq!(bed.scan(), ["delete Service shop/a", "put Service shop/b", "notes x.yaml"]);
    bed.check_fresh();
}

const RULE: &str = "\
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata:
  name: r
  namespace: shop
spec:
  host: a
  nonsense: 1
";

#[test]
fn wrong_versions_unknown_kinds_and_fields_are_noted_and_the_rest_applies() {
    let text = [
        RULE.to_owned(),
        service("b", 80).replace("v1", "v7"),
        service("c", 80).replace("Service", "Serviette"),
        service("d", 80),
    ];
    let bed = Bed::loaded(&[("x.yaml", &text.join("---\n"))]);
    assert_eq!(bed.objects(), ["Service shop/d", "DestinationRule shop/r"]);
    let notes = bed.notes();
    assert!(
        notes.iter().any(|note| note.starts_with("warning: x.yaml:8:3: DestinationRule shop/r: spec.nonsense: ")),
        "{notes:?}"
    );
    assert!(notes.iter().any(|note| note.contains("v7")), "{notes:?}");
    assert!(notes.iter().any(|note| note.contains("Serviette")), "{notes:?}");
}
