//! Alert rules with the real promtool, which checks and fires them, and the pages of the manual that they lead to.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use testkit::{environment, skip};

fn folder() -> PathBuf {
    environment::repository().join("deploy/observability")
}

fn read(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn every_alert_fires_when_it_should() {
    let alerts: Vec<String> = names_after(&read("alerts.yaml"), "- alert: ");
    let tests = read("alerts-test.yaml");
    assert!(alerts.len() >= 15, "{alerts:?}");
    for alert in &alerts {
        for (state, what) in [("firing", "fires"), ("pending", "ends before it fires")] {
            let tested = format!("alertname=\"{alert}\", alertstate=\"{state}\"");
            assert!(tests.contains(&tested), "no test in which {alert} {what}");
        }
    }
    let Some(promtool) = environment::promtool() else {
        return skip("alert rules: no promtool (Debian: apt-get install prometheus, or set MELTEMI_PROMETHEUS)");
    };
    for words in [["check", "rules", "alerts.yaml"], ["test", "rules", "alerts-test.yaml"]] {
        let output = Command::new(&promtool).args(words).current_dir(folder()).output().expect("promtool starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "promtool {words:?}: {text}");
    }
}

/// What runbooks say exists.
#[test]
fn every_alert_leads_to_a_page_of_the_manual() {
    let manual = fs::read_to_string(environment::repository().join("docs/operating.md")).expect("docs/operating.md");
    let headings: BTreeSet<String> = names_after(&manual, "## ")
        .iter()
        .map(|heading| heading.trim_start_matches("# ").to_lowercase().replace(' ', "-"))
        .collect();
    for runbook in names_after(&read("alerts.yaml"), "runbook: docs/operating.md#") {
        assert!(headings.contains(&runbook), "{runbook} is not among {headings:?}");
    }
}

fn names_after(text: &str, mark: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.trim().strip_prefix(mark)).map(|rest| rest.trim().to_owned()).collect()
}
