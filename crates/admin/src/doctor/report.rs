//! The findings of `meltemi doctor` as text.

use super::checks::{CheckOutcome, DoctorCheck};

pub fn text(checks: &[DoctorCheck]) -> String {
    let mut text = String::new();
    let mut group = "";
    for check in checks {
        if check.group != group {
            group = check.group;
            text.push_str(&format!("{}{group}\n", if text.is_empty() { "" } else { "\n" }));
        }
        let mark = match check.outcome {
            CheckOutcome::Ok => '✓',
            CheckOutcome::Warning => '!',
            CheckOutcome::Error => '✗',
        };
        text.push_str(&format!("  {mark} {:<18} {}\n", check.id, check.what));
        if !check.hint.is_empty() {
            text.push_str(&format!("    {:<18} {}\n", "", check.hint));
        }
        for object in &check.apply {
            text.push_str("---\n");
            text.push_str(object);
        }
    }
    let count = |mark| checks.iter().filter(|check| check.outcome == mark).count();
    text.push_str(&format!(
        "\n{} errors, {} warnings, {} in order\n",
        count(CheckOutcome::Error),
        count(CheckOutcome::Warning),
        count(CheckOutcome::Ok)
    ));
    text
}
