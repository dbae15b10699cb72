//! `meltemi admission-policy`: prints the ValidatingAdmissionPolicies for `kubectl apply`.

use super::{CommandOutcome, print};

pub fn run() -> CommandOutcome {
    print(&text());
    CommandOutcome::Done
}

fn text() -> String {
    let comment = "# Made by `meltemi admission-policy`.\n";
    let objects = server::admission_policies();
    comment.to_owned() + &objects.iter().map(crate::yaml::document).collect::<Vec<_>>().join("---\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chart_has_what_the_command_prints() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/helm/meltemi/files/admission.yaml");
        let current = std::fs::read_to_string(file).unwrap_or_default();
        assert!(current == text(), "run `meltemi admission-policy > deploy/helm/meltemi/files/admission.yaml`");
    }
}
