//! A proxy and its caller: which identity it is served as, and what the objects say against it.

use model::{Mesh, Proxy};
use xds::{Caller, IdentityCheck};

/// Binds the proxy to an identity of its caller. The error is for the proxy and the log.
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
            tracing::warn!(node, caller = names(), %why, "node does not match its workload; strict identity would refuse it");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}
