//! The findings of `meltemi doctor` as text.

use super::checks::{CheckOutcome, DoctorCheck};

/// `judged_over`: of which time the metrics are.
pub fn text(checks: &[DoctorCheck], judged_over: &str) -> String {
    let mut text = String::new();
    let mut group = "";
    for check in checks {
        if check.group != group {
            group = check.group;
            text.push_str(&format!("{}{group}\n", if text.is_empty() { "" } else { "\n" }));
        }
        let mark = match check.outcome {
            CheckOutcome::Ok => '✓',
            CheckOutcome::Unknown => '?',
            CheckOutcome::Warning => '!',
            CheckOutcome::Error => '✗',
        };
        let replica = if check.replica.is_empty() { String::new() } else { format!("replica {}: ", check.replica) };
        text.push_str(&format!("  {mark} {:<18} {replica}{}\n", check.id, check.what));
        if !check.hint.is_empty() {
            text.push_str(&format!("    {:<18} {}\n", "", check.hint));
        }
    }
    let count = |outcome| checks.iter().filter(|check| check.outcome == outcome).count();
    text.push_str(&format!(
        "\n{} errors, {} warnings, {} unknown, {} in order; {judged_over}\n",
        count(CheckOutcome::Error),
        count(CheckOutcome::Warning),
        count(CheckOutcome::Unknown),
        count(CheckOutcome::Ok)
    ));
    let objects: String = checks.iter().flat_map(|check| &check.apply).map(|object| format!("---\n{object}")).collect();
    if !objects.is_empty() {
        text.push_str("\nsuggested objects, after a look at what else these namespaces call:\n");
        text.push_str(&objects);
    }
    text
}
