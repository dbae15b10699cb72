//! The secure gRPC port, by who signs: this server's CA, a Kubernetes signer, or an external CA.

mod external;
mod kubernetes;
mod local;

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use controllers::CsrSigner;
use xds::PortListener;

use crate::authentication::CallerAuthenticator;
use crate::certificates::KubernetesSigner;
use crate::loaded::LoadedServer;
use crate::settings::ExternalCaSettings;
use crate::state::ReplicaAccess;
use crate::webhook;
pub(crate) use external::ExternalCa;
use external::ExternalCaPort;
use kubernetes::KubernetesCaPort;
use local::LocalCaPort;
pub(crate) use local::hosts;

/// What every kind of secure port is opened with.
struct SecureListener {
    listener: PortListener,
    authenticator: Arc<CallerAuthenticator>,
    debug_handler: Arc<dyn xds::DebugHandler>,
}

impl LoadedServer {
    /// Returns when the port is open, however long a signer takes, or at once where the port is off.
    pub async fn open_secure_port(&mut self, debug_handler: Arc<dyn xds::DebugHandler>) -> Result<()> {
        let Some(listener) = self.parts.listeners.secure.take() else { return Ok(()) };
        let authenticator = self.authenticator.take().context("the secure port has no authenticator")?;
        let secure = SecureListener { listener, authenticator, debug_handler };
        let signer = self.kubernetes_signer()?;
        let serving = signer.as_ref().and_then(|signer| Some((signer.clone(), signer.settings.serving.clone()?)));
        match (self.parts.identity.external.clone(), serving) {
            (Some(external), _) => self.open_external(secure, external),
            (None, Some((signer, name))) => self.open_kubernetes(secure, signer, name).await,
            (None, None) => self.open_local(secure, signer).await,
        }
    }

    fn kubernetes_signer(&self) -> Result<Option<Arc<KubernetesSigner>>> {
        let identity = &self.parts.identity;
        match (&identity.signer, &self.leader_tasks) {
            (Some(settings), Some(tasks)) => Ok(Some(Arc::new(KubernetesSigner {
                settings: settings.clone(),
                signing: CsrSigner::new(&tasks.client),
                objects: self.pipeline.objects(),
                lifetimes: identity.lifetimes,
            }))),
            (Some(_), None) => {
                bail!("EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API needs an API server, and --config names a folder")
            }
            (None, _) => Ok(None),
        }
    }

    fn open_external(&mut self, secure: SecureListener, external: ExternalCaSettings) -> Result<()> {
        let SecureListener { listener, authenticator, debug_handler } = secure;
        let port = ExternalCaPort::open(self.parts.identity.clone(), external, authenticator)?;
        self.allow_replica_access(port.roots());
        if let (Some(tasks), Some((handles, leadership))) = (self.leader_tasks.take(), &mut self.tasks.leader) {
            tasks.publish_webhook_roots(handles, leadership.clone(), port.roots());
        }
        self.serve(listener, port.port(self.stages(), debug_handler)?);
        self.serve_webhook(&port.tls()?)?;
        tokio::spawn(port.follow());
        Ok(())
    }

    fn allow_replica_access(&self, roots: impl Fn() -> String + Send + Sync + 'static) {
        let Some(server_name) = self.hosts().into_iter().next() else { return };
        // Set nowhere else.
        let _ = self.parts.state.replica_access.set(ReplicaAccess { server_name, roots: Box::new(roots) });
    }

    async fn open_kubernetes(
        &mut self,
        secure: SecureListener,
        signer: Arc<KubernetesSigner>,
        name: String,
    ) -> Result<()> {
        let SecureListener { listener, authenticator, debug_handler } = secure;
        let (identity, hosts) = (self.parts.identity.clone(), self.hosts());
        let port = KubernetesCaPort::open(identity, signer.clone(), name, hosts, authenticator).await?;
        let roots = move || signer.roots(None).iter().map(ca::Certificate::pem).collect::<String>();
        self.allow_replica_access(roots.clone());
        if let (Some(tasks), Some((handles, leadership))) = (self.leader_tasks.take(), &mut self.tasks.leader) {
            tasks.publish_roots(handles, leadership.clone(), self.pipeline.objects(), roots, None);
        }
        self.serve(listener, port.port(self.stages(), debug_handler)?);
        self.serve_webhook(&port.tls()?)?;
        tokio::spawn(port.follow());
        Ok(())
    }

    async fn open_local(&mut self, secure: SecureListener, signer: Option<Arc<KubernetesSigner>>) -> Result<()> {
        let SecureListener { listener, authenticator, debug_handler } = secure;
        let identity = self.parts.identity.clone();
        let own = ca::plugged(&identity.plugged).context("cannot read the plugged-in CA")?.is_none();
        let root = self.root_folder.take().filter(|_| own);
        if let (Some(tasks), Some(folder)) = (&self.leader_tasks, &root) {
            let options = local::root_options(&identity, &authenticator);
            tasks.share_root(folder, &options, identity.grace_percent).await?;
        }
        let namespace = &self.parts.mesh.pod_namespace;
        let port = LocalCaPort::open(identity, authenticator, namespace, &self.revision, signer)?;
        self.allow_replica_access(port.roots());
        let state = self.parts.state.clone();
        if let Some(key) = port.signing_key() {
            // Set nowhere else.
            let _ = state.signing_key.set(Box::new(key));
        }
        if let Some(ages) = port.certificate_ages() {
            // Set nowhere else.
            let _ = state.certificate_ages.set(ages);
        }
        let shared = self.leader_tasks.as_ref().map(|tasks| tasks.shared_rotation(state.replicas.get().cloned()));
        if let (Some(tasks), Some((handles, leadership))) = (self.leader_tasks.take(), &mut self.tasks.leader) {
            tasks.publish_roots(handles, leadership.clone(), self.pipeline.objects(), port.roots(), root);
        }
        self.serve(listener, port.port(self.stages(), debug_handler, &self.parts.views)?);
        self.serve_webhook(&port.tls()?)?;
        if let Some(rotation) = port.rotation(state.connections.clone(), shared).map(Arc::new) {
            // Set nowhere else.
            let _ = state.rotation.set(rotation.clone());
            self.tasks.rotation = Some((tokio::spawn(rotation.clone().follow()), rotation));
        }
        tokio::spawn(port.follow());
        Ok(())
    }

    fn stages(&self) -> xds::Stages {
        self.parts.state.metrics.stages().clone()
    }

    fn serve(&mut self, listener: PortListener, port: xds::ServerPort) {
        self.parts.grpc.serve(listener, port);
    }

    fn serve_webhook(&mut self, tls: &tokio_rustls::TlsAcceptor) -> Result<()> {
        if let Some(listener) = self.parts.listeners.https.take() {
            let tls = webhook::acceptor(tls, self.parts.webhook.client_ca.as_deref())?;
            let state = &self.parts.state;
            let (validation, injection) = (state.metrics.validation.clone(), state.injection.clone());
            let reach = state.planner.clone().filter(|_| self.parts.webhook.reach);
            tokio::spawn(webhook::serve(listener, tls, validation, injection, reach));
        }
        Ok(())
    }
}
