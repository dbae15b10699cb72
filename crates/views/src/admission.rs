//! Admission of a proxy: binds it to an identity of its caller, and checks it against the registry.

use model::{Mesh, Proxy};
use xds::{Caller, IdentityCheck};

/// Binds the proxy to an identity of its caller. The error is shown to the proxy and logged.
pub(crate) fn bind(proxy: &mut Proxy, caller: &Caller, mesh: &Mesh) -> Result<(), String> {
    let strict = match caller.check {
        IdentityCheck::Off => return Ok(()),
        IdentityCheck::Compatible => false,
        IdentityCheck::Strict => true,
    };
    let names = || caller.identities.join(",");
    proxy.bind(caller.accounts(), strict).map_err(|why| format!("{why}; it is {}", names()))?;
    match mesh.verify(proxy) {
        Err(why) if strict => Err(format!("{why} ({})", names())),
        Err(why) => {
            let node: String = proxy.id.chars().take(100).collect();
            tracing::warn!(node, caller = names(), %why, "node does not match its workload; strict identity would reject it");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}
