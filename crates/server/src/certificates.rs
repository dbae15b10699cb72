//! The gRPC method `CreateCertificate` of istiod's certificate service: it authenticates the caller and forwards to the signer.

mod kubernetes;

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use ca::{CertificateService, Identity, SigningDenied};
use http::HeaderMap;
use prost::Message;
use wire::istio::v1::auth::{IstioCertificateRequest, IstioCertificateResponse};
use xds::{BoxFuture, CallError, Peer, UnaryCall};

use crate::authentication::{Authenticated, CallerAuthenticator, Proof, bearer};
use crate::root_rotation::IssuedCertificates;
use crate::secure_port::ExternalCa;
pub(crate) use kubernetes::KubernetesSigner;

const METHOD: &str = "/istio.v1.auth.IstioCertificateService/CreateCertificate";

/// `CreateCertificate` on a port of `xds`.
pub(crate) struct CertificateMethods {
    pub(crate) signer: Signer,
    pub(crate) authenticator: Arc<CallerAuthenticator>,
    pub(crate) stages: xds::Stages,
}

/// Who signs requests.
pub(crate) enum Signer {
    Local {
        certificates: Arc<CertificateService>,
        issued: Arc<IssuedCertificates>,
    },
    /// An external CA, which gets the caller's token and authenticates it by itself.
    External(ExternalCa),
    /// A Kubernetes signer, which signs whatever a request asks for.
    Kubernetes(Arc<KubernetesSigner>),
}

impl CertificateMethods {
    async fn answer(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        authenticated: Authenticated,
        message: Bytes,
    ) -> Result<Bytes, CallError> {
        let request = IstioCertificateRequest::decode(message)
            .map_err(|error| CallError::InvalidArgument(format!("cannot read the request: {error}")))?;
        let response = match &self.signer {
            Signer::Local { certificates, issued } => {
                let signing_started = Instant::now();
                let signed = self.sign(certificates, peer, &request, &authenticated.identities);
                if signed.is_ok() {
                    let not_after = certificates.ends(request.validity_duration, SystemTime::now());
                    let names = authenticated.identities.iter().map(ToString::to_string);
                    names.for_each(|name| issued.record(&name, peer.address.ip(), signing_started, not_after));
                }
                signed
            }
            Signer::External(authority) => {
                let forwarded = authority.answer(bearer(headers), &request, &authenticated.identities).await;
                self.authenticator.metrics.forwarded(forwarded.is_ok());
                forwarded.inspect_err(|failure| {
                    tracing::warn!(address = %peer.address, caller = %authenticated.identities[0], ?failure, "signing request failed: external CA");
                })
            }
            Signer::Kubernetes(authority) => {
                let signed = authority.answer(&request, &authenticated.identities).await;
                self.authenticator.metrics.forwarded(signed.is_ok());
                signed.inspect_err(|failure| {
                    tracing::warn!(address = %peer.address, caller = %authenticated.identities[0], ?failure, "signing request failed: Kubernetes signer");
                })
            }
        };
        response.map(|response| response.encode_to_vec().into())
    }

    async fn authenticate(&self, peer: &Peer, headers: &HeaderMap) -> Result<Authenticated, CallError> {
        // istiod's text: agents log it.
        let unauthenticated = || CallError::Unauthenticated("request authenticate failure".to_owned());
        let authenticated = self.authenticator.authenticate_caller(peer, headers).await.map_err(|reason| {
            self.authenticator.metrics.stranger();
            match self.authenticator.rejections.permits() {
                Some(skipped) => {
                    tracing::warn!(address = %peer.address, ?reason, skipped, "signing request rejected: unauthenticated");
                }
                None => tracing::debug!(address = %peer.address, ?reason, "signing request rejected: unauthenticated"),
            }
            match reason {
                CallError::Unavailable(_) => CallError::Unavailable("the token cannot be reviewed at the moment".to_owned()),
                _ => unauthenticated(),
            }
        })?;
        // A token becomes invalid with its workload; a certificate could be renewed for ever.
        let gone = authenticated.identities.iter().find(|identity| !self.authenticator.registry.exists(identity));
        match gone {
            Some(gone) if authenticated.proof != Proof::Token => {
                self.authenticator.metrics.stranger();
                tracing::warn!(address = %peer.address, caller = %gone, "signing request rejected: the workload no longer exists");
                Err(unauthenticated())
            }
            _ => Ok(authenticated),
        }
    }

    fn sign(
        &self,
        certificates: &CertificateService,
        peer: &Peer,
        request: &IstioCertificateRequest,
        callers: &[Identity],
    ) -> Result<IstioCertificateResponse, CallError> {
        let sign = || certificates.answer(request, callers, SystemTime::now());
        self.stages.run_long(xds::Stage::Certificates, sign).map_err(|denied| {
            tracing::warn!(address = %peer.address, caller = %callers[0], %denied, "signing request rejected");
            match &denied {
                SigningDenied::NoIdentity | SigningDenied::Impersonation => {
                    CallError::Unauthenticated(denied.to_string())
                }
                _ if denied.is_client_error() => CallError::InvalidArgument(denied.to_string()),
                _ => CallError::Unavailable(denied.to_string()),
            }
        })
    }
}

impl xds::UnaryMethods for CertificateMethods {
    fn serves(&self, path: &str) -> bool {
        path == METHOD
    }

    fn admit<'a>(&'a self, peer: &'a Peer, headers: &'a HeaderMap) -> BoxFuture<'a, Result<UnaryCall<'a>, CallError>> {
        Box::pin(async move {
            let authenticated = self.authenticate(peer, headers).await?;
            let call =
                move |message| -> BoxFuture<'a, _> { Box::pin(self.answer(peer, headers, authenticated, message)) };
            Ok(Box::new(call) as UnaryCall<'a>)
        })
    }
}
