//! Files that are half-written, damaged, or hold a bad object.

use super::*;

const A_AND_B: [&str; 2] = ["Service shop/a", "Service shop/b"];

/// A file with `a` and `b` gets this text; both stay in force, one error tells where, and the next good save counts.
fn check_stays_in_force(damaged: impl AsRef<[u8]>, place: &str) -> String {
    let mut fixture = Fixture::loaded(&[("x.yaml", &services(&["a", "b"], 80)), ("y.yaml", &service("c", 80))]);
    fixture.write("x.yaml", damaged);
    assert_eq!(fixture.scan(), ["diagnostics x.yaml"]);
    assert_eq!(fixture.objects()[..2], A_AND_B);
    let diagnostic = fixture.diagnostic();
    assert!(diagnostic.starts_with(&format!("error: x.yaml:{place}")), "{diagnostic}");
    assert!(diagnostic.ends_with("the last good version of this file stays in force (2 objects)"), "{diagnostic}");

    fixture.write("y.yaml", service("c", 81));
    assert_eq!(fixture.scan(), ["put Service shop/c"], "the others go on");

    fixture.write("x.yaml", service("a", 81));
    assert_eq!(fixture.scan(), ["put Service shop/a", "delete Service shop/b", "diagnostics x.yaml"]);
    assert_eq!(fixture.diagnostics(), Vec::<String>::new());
    fixture.check_fresh();
    diagnostic
}

#[test]
fn a_truncated_file_keeps_its_last_good_objects() {
    let text = format!("{}---\nkind: Service\nmetadata: {{name: \"b", service("a", 81));
    check_stays_in_force(text, "11:18: ");
}

#[test]
fn tabs_and_stray_brackets_keep_the_last_good_objects() {
    check_stays_in_force("kind: Service\n\tname: a\n", "1:7: ");
    check_stays_in_force("kind: [Service\n", "2:1: ");
}

#[test]
fn nul_bytes_keep_the_last_good_objects() {
    check_stays_in_force(vec![0; 4096], "1:1: ");
    check_stays_in_force(format!("{}\0\0\0\0", service("a", 81)), "9:1: ");
}

#[test]
fn bytes_that_are_not_text_keep_the_last_good_objects() {
    let diagnostic = check_stays_in_force(b"kind: Service\nname: \xe9t\xe9\n", "2:7: ");
    assert!(diagnostic.contains("byte 0xe9 is not UTF-8; save the file as UTF-8"), "{diagnostic}");
}

#[test]
fn an_emptied_file_counts_as_half_written() {
    let diagnostic = check_stays_in_force("", "1:1: ");
    assert!(diagnostic.contains("is empty; delete the file to remove its objects"), "{diagnostic}");
    check_stays_in_force("\n\n", "1:1: ");
}

#[test]
fn a_file_of_comments_removes_its_objects() {
    let mut fixture = Fixture::loaded(&[("x.yaml", &service("a", 80))]);
    fixture.write("x.yaml", "# nothing for now\n");
    assert_eq!(fixture.scan(), ["delete Service shop/a"]);
    assert_eq!(fixture.diagnostics(), Vec::<String>::new());
}

#[test]
fn a_file_that_was_never_good_gives_nothing_and_harms_nobody() {
    let fixture = Fixture::loaded(&[
        ("bad.yaml", &format!("{}---\n{{", service("a", 80))),
        ("good.yaml", &service("b", 80)),
        ("void.yaml", ""),
    ]);
    assert_eq!(fixture.objects(), ["Service shop/b"]);
    let diagnostic = fixture.diagnostic();
    assert!(diagnostic.starts_with("error: bad.yaml:") && !diagnostic.contains("stays in force"), "{diagnostic}");
}

#[test]
fn a_bad_object_keeps_its_last_good_version_while_others_apply() {
    let mut fixture = Fixture::loaded(&[("x.yaml", &services(&["a", "b"], 80))]);
    fixture.write("x.yaml", format!("{}---\n{}", service("a", -1), service("b", 81)));
    assert_eq!(fixture.scan(), ["put Service shop/b", "diagnostics x.yaml"]);
    assert_eq!((fixture.stored.port("a"), fixture.stored.port("b")), (Some(80), Some(81)));
    let diagnostic = fixture.diagnostic();
    assert!(diagnostic.starts_with("error: x.yaml:8:11: Service shop/a: spec.ports[0].port: "), "{diagnostic}");
    assert!(diagnostic.ends_with("; its last good version stays in force"), "{diagnostic}");

    fixture.write("x.yaml", services(&["a", "b"], 81));
    assert_eq!(fixture.scan(), ["put Service shop/a", "diagnostics x.yaml"]);
}

#[test]
fn an_object_that_was_never_good_is_left_out() {
    let fixture = Fixture::loaded(&[("x.yaml", &format!("{}---\n{}", service("a", -1), service("b", 81)))]);
    assert_eq!(fixture.objects(), ["Service shop/b"]);
    assert!(!fixture.diagnostic().contains("stays in force"));
}

#[test]
fn a_document_that_lost_its_name_removes_nothing() {
    let mut fixture = Fixture::loaded(&[("x.yaml", &services(&["a", "b"], 80))]);
    fixture.write("x.yaml", format!("{}---\n{}", service("a", 80), service("b", 80).replace("name: b", "nmae: b")));
    assert_eq!(fixture.scan(), ["diagnostics x.yaml"]);
    assert_eq!(fixture.objects(), A_AND_B);
    let diagnostic = fixture.diagnostics().join("\n");
    assert!(
        diagnostic.contains("until this is fixed, objects missing from this file stay in force (1 object)"),
        "{diagnostic}"
    );
}

#[test]
fn a_bad_object_that_is_then_taken_out_is_removed() {
    let mut fixture = Fixture::loaded(&[("x.yaml", &services(&["a", "b"], 80))]);
    fixture.write("x.yaml", services(&["a", "b"], -1));
    fixture.scan();
    fixture.write("x.yaml", service("b", 80));
    assert_eq!(fixture.scan(), ["delete Service shop/a", "put Service shop/b", "diagnostics x.yaml"]);
    fixture.check_fresh();
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
    let fixture = Fixture::loaded(&[("x.yaml", &text.join("---\n"))]);
    assert_eq!(fixture.objects(), ["Service shop/d", "DestinationRule shop/r"]);
    let diagnostics = fixture.diagnostics();
    assert!(
        diagnostics
            .iter()
            .any(|diagnostic| diagnostic.starts_with("warning: x.yaml:8:3: DestinationRule shop/r: spec.nonsense: ")),
        "{diagnostics:?}"
    );
    assert!(diagnostics.iter().any(|diagnostic| diagnostic.contains("v7")), "{diagnostics:?}");
    assert!(diagnostics.iter().any(|diagnostic| diagnostic.contains("Serviette")), "{diagnostics:?}");
}
