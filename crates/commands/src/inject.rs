//! `meltemi inject`: workloads of a file with their pods injected, by the configuration in a folder and without a server.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};
use config::store::Name;
use config::yaml::{Scalars, documents};
use inject::Injector;
use serde_json::Value;

use super::{CommandOutcome, print};
use crate::yaml;
use settings::args::{Env, InjectArgs, MeshArgs};
use settings::{control_plane, mesh_settings};

pub fn run(args: InjectArgs, env: &Env) -> Result<CommandOutcome> {
    let mesh_args =
        MeshArgs { mesh_config: None, domain: "cluster.local".into(), cluster_id: None, derive_endpoints: false };
    let mut mesh = mesh_settings(mesh_args, &env.mesh);
    if let Some(revision) = args.revision {
        mesh.revision = revision;
    }
    let plane = control_plane(&mesh, &env.injection);
    let objects = server::load_folder(&args.dir, &mesh)?.store.snapshot();
    let name = Name::new(&mesh.pod_namespace, &server::injector_config_map(&plane.revision));
    let Some(map) = objects.config_maps.get(&name) else {
        bail!("no ConfigMap {}/{} in {}", name.namespace, name.name, args.dir.display());
    };
    let injector =
        Injector::parse(&map.spec.data).with_context(|| format!("ConfigMap {}/{}", name.namespace, name.name))?;
    let mut found = Vec::new();
    let (mut injected, mut refused) = (0, 0);
    for object in read(&args.filename)? {
        match injector.inject_object(object, &plane, &objects) {
            Ok(result) => {
                injected += result.injected;
                result.skipped.iter().for_each(|line| eprintln!("not injected: {line}"));
                result.warnings.iter().for_each(|line| eprintln!("warning: {line}"));
                found.push(yaml::document(&result.object));
            }
            Err(error) => {
                refused += 1;
                eprintln!("error: {}", error.trim_end());
            }
        }
    }
    eprintln!("{injected} pods injected");
    if refused > 0 {
        return Ok(CommandOutcome::Found);
    }
    print(&found.join("---\n"));
    Ok(CommandOutcome::Done)
}

fn read(file: &Path) -> Result<Vec<Value>> {
    let shown = file.display().to_string();
    let text = if shown == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read stdin")?;
        text
    } else {
        std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?
    };
    parsed(&text, &shown)
}

/// `shown`: the file, for errors.
pub(super) fn parsed(text: &str, shown: &str) -> Result<Vec<Value>> {
    let parsed = documents(text, Scalars::Objects).map(|document| match document {
        Ok(node) => Ok(node.to_json()),
        Err(error) => bail!("{shown}:{}:{}: {}", error.at.line, error.at.column, error.what),
    });
    parsed.collect()
}
