//! Provenance over the corpus: every resource of every proxy names an object or is built in, `render_resource` gives what `render` gives, and
//! an object that is named as the only maker changes the resource when it is removed.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use config::object::parse_documents;
use config::store::{Store, StoreOptions, Update};
use model::{Environment, Mesh, Proxy};
use provenance::Role;
use testkit::parity::{Case, Corpus};
use testkit::say;

#[test]
fn every_resource_names_its_makers_and_an_only_maker_matters() {
    let corpus = Corpus::open().expect("the corpus is there");
    let (mut resources, mut searched, mut failures) = (0, 0, Vec::new());
    for name in corpus.wanted() {
        match corpus.case(&name).and_then(|case| check(&case)) {
            Ok((rendered, explained)) => (resources, searched) = (resources + rendered, searched + explained),
            Err(error) => failures.push(format!("{name}: {error:#}")),
        }
    }
    say(&format!("provenance: {resources} resources, {searched} explained"));
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
    assert!(resources > 0, "no case has such a name");
}

fn check(case: &Case) -> Result<(usize, usize)> {
    let environment = Environment::default();
    let mut store = Store::new(StoreOptions { pod_namespace: environment.pod_namespace.clone(), mesh_config: None });
    let texts = case.objects.values().flatten().map(ToString::to_string);
    let objects = texts.flat_map(|text| parse_documents("case", &text).objects).map(Update::Put).collect();
    let mesh = Mesh::new(&store.apply(objects), &Arc::new(environment));
    let (mut resources, mut searched) = (0, 0);
    for case_proxy in &case.proxies {
        let info = views::node_info(&case_proxy.node()).context("a node")?;
        let proxy = Arc::new(Proxy::new(&info)?);
        let placement = mesh.place(&proxy);
        let rendered = views::render(&mesh, &placement);
        for made in &rendered {
            let (kind, name) = (made.kind.short(), &made.name);
            let alone = views::render_resource(&mesh, &placement, made.kind, &made.name);
            ensure!(alone.as_ref() == Some(made), "{}: {kind} {name} alone is another one", case_proxy.name);
            resources += 1;
            // An only maker that changes nothing would be named for nothing. A Sidecar may import what is imported anyway.
            let mut makers = made.made_from.iter();
            if let (Some(only), None, true) = (makers.next(), makers.next(), made.patched.is_empty())
                && matters_by_itself(only.kind)
            {
                let (without, _) = mesh.next(&mesh.snapshot().without_objects([only]));
                let other = views::render_resource(&without, &without.place(&proxy), made.kind, &made.name);
                ensure!(other.as_ref() != Some(made), "{}: {kind} {name} is the same without {only}", case_proxy.name);
            }
        }
        // One search for each case, which takes up to a second: where an object of Istio's kinds or a patch takes part, if anywhere.
        let interesting = |made: &&views::RenderedResource| {
            !made.patched.is_empty() || made.made_from.iter().any(|id| id.kind.is_istio())
        };
        let sample = rendered.iter().find(interesting).or(rendered.first()).filter(|_| searched == 0);
        if let Some(made) = sample {
            let explained = provenance::explain_resource(&mesh, &proxy, made.kind, &made.name, &|_, _| None);
            let explained = explained.with_context(|| format!("{} is not explained", made.name))?;
            let named = |cause: &provenance::Cause| cause.role != Role::Read;
            let built_in = explained.parts.iter().all(|part| part.from == ["default"]);
            ensure!(
                built_in || explained.causes.iter().any(named),
                "{}: {} {} names nobody",
                case_proxy.name,
                explained.kind,
                explained.name
            );
            searched += 1;
        }
    }
    Ok((resources, searched))
}

fn matters_by_itself(kind: config::kind::Kind) -> bool {
    use config::kind::Kind;
    matches!(kind, Kind::Service | Kind::ServiceEntry | Kind::VirtualService | Kind::WasmPlugin)
}
