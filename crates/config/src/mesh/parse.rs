//! Parsing of the mesh config and the mesh networks, as istiod does: YAML 1.1 scalars, unknown fields skipped.

use super::{ExtensionProvider, MeshConfig, MeshNetworks};
use crate::de::{place, read_text};
use crate::diagnostic::{Diagnostic, Severity};
use crate::yaml::{Scalars, documents};

impl MeshConfig {
    /// The config over istiod's defaults, and warnings. `Err`: the errors for which istiod would reject the whole text.
    pub fn parse(text: &str, file: &str) -> Result<(MeshConfig, Vec<Diagnostic>), Vec<Diagnostic>> {
        let (mut config, diagnostics) = read_text::<MeshConfig>(file, text, Scalars::MeshConfig)?;
        let found = config.check();
        config.extension_providers = ExtensionProvider::over_built_in(config.extension_providers);
        judged(config, diagnostics, placed(found, text, file))
    }
}

impl MeshNetworks {
    /// `Err`: the errors for which istiod would reject the whole text.
    pub fn parse(text: &str, file: &str) -> Result<(MeshNetworks, Vec<Diagnostic>), Vec<Diagnostic>> {
        let (networks, diagnostics) = read_text::<MeshNetworks>(file, text, Scalars::MeshConfig)?;
        let found = networks.check();
        judged(networks, diagnostics, placed(found, text, file))
    }
}

fn judged<T>(
    value: T,
    mut diagnostics: Vec<Diagnostic>,
    found: Vec<Diagnostic>,
) -> Result<(T, Vec<Diagnostic>), Vec<Diagnostic>> {
    diagnostics.extend(found);
    if diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error) {
        Err(diagnostics)
    } else {
        Ok((value, diagnostics))
    }
}

/// Adds the location of its field to each diagnostic. The text is parsed again, which costs only invalid configs.
fn placed(diagnostics: Vec<Diagnostic>, text: &str, file: &str) -> Vec<Diagnostic> {
    if diagnostics.is_empty() {
        return diagnostics;
    }
    let Some(Ok(root)) = documents(text, Scalars::MeshConfig).next() else { return diagnostics };
    diagnostics
        .into_iter()
        .map(|diagnostic| Diagnostic { at: Some(place(&root, &diagnostic.field).in_file(file)), ..diagnostic })
        .collect()
}
