//! `CreateCertificate` on the wire: bytes in, bytes out. Who calls is the door's word, what they get the signer's.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use ca::{Certificates, Denied, Identity};
use http::HeaderMap;
use prost::Message;
use wire::istio::v1::auth::{IstioCertificateRequest, IstioCertificateResponse};
use xds::{Failure, Later, Peer};

use super::cluster_signer::ClusterAuthority;
use super::door::{Door, Proof, Shown, bearer};
use super::external::ExternalAuthority;
use super::rotation::Issued;

const METHOD: &str = "/istio.v1.auth.IstioCertificateService/CreateCertificate";

pub(crate) struct CertificateService {
    pub(crate) signer: Signer,
    pub(crate) door: Arc<Door>,
    pub(crate) stages: xds::Stages,
}

/// Who makes certificates of requests.
pub(crate) enum Signer {
    Own {
        certificates: Arc<Certificates>,
        issued: Arc<Issued>,
    },
    /// Somebody else, who is shown the caller's token and decides for himself.
    External(ExternalAuthority),
    /// A signer of the cluster, who grants what is asked for.
    Cluster(Arc<ClusterAuthority>),
}

impl CertificateService {
    async fn answer(&self, peer: &Peer, headers: &HeaderMap, message: Bytes) -> Result<Bytes, Failure> {
        let shown = self.shown(peer, headers).await?;
        let request = IstioCertificateRequest::decode(message)
            .map_err(|error| Failure::InvalidArgument(format!("cannot read the request: {error}")))?;
        let response = match &self.signer {
            Signer::Own { certificates, issued } => {
                let begun = Instant::now();
                let signed = self.signed(certificates, peer, &request, &shown.identities);
                if signed.is_ok() {
                    let names = shown.identities.iter().map(ToString::to_string);
                    names.for_each(|name| issued.note(&name, peer.address.ip(), begun));
                }
                signed
            }
            Signer::External(authority) => {
                let forwarded = authority.answer(bearer(headers), &request, &shown.identities).await;
                self.door.metrics.forwarded(forwarded.is_ok());
                forwarded.inspect_err(|failure| {
                    tracing::warn!(address = %peer.address, caller = %shown.identities[0], ?failure, "no certificate from the external authority");
                })
            }
            Signer::Cluster(authority) => {
                let signed = authority.answer(&request, &shown.identities).await;
                self.door.metrics.forwarded(signed.is_ok());
                signed.inspect_err(|failure| {
                    tracing::warn!(address = %peer.address, caller = %shown.identities[0], ?failure, "no certificate from the signer of the cluster");
                })
            }
        };
        response.map(|response| response.encode_to_vec().into())
    }

    async fn shown(&self, peer: &Peer, headers: &HeaderMap) -> Result<Shown, Failure> {
        // istiod's words: agents log them.
        let nobody = || Failure::Unauthenticated("request authenticate failure".to_owned());
        let shown = self.door.shown(peer, headers).await.map_err(|reason| {
            self.door.metrics.stranger();
            match self.door.rejections.permits() {
                Some(skipped) => {
                    tracing::warn!(address = %peer.address, ?reason, skipped, "signing request rejected: unauthenticated");
                }
                None => tracing::debug!(address = %peer.address, ?reason, "signing request rejected: unauthenticated"),
            }
            match reason {
                Failure::Unavailable(_) => Failure::Unavailable("the token cannot be reviewed at the moment".to_owned()),
                _ => nobody(),
            }
        })?;
        // A token ends with its workload, a certificate would renew itself for ever.
        let gone = shown.identities.iter().find(|identity| !self.door.registry.exists(identity));
        match gone {
            Some(gone) if shown.by != Proof::Token => {
                self.door.metrics.stranger();
                tracing::warn!(address = %peer.address, caller = %gone, "a signing request was refused: the workload is gone");
                Err(nobody())
            }
            _ => Ok(shown),
        }
    }

    fn signed(
        &self,
        certificates: &Certificates,
        peer: &Peer,
        request: &IstioCertificateRequest,
        callers: &[Identity],
    ) -> Result<IstioCertificateResponse, Failure> {
        let sign = || certificates.answer(request, callers, SystemTime::now());
        self.stages.run_long(xds::Stage::Certificates, sign).map_err(|denied| {
            tracing::warn!(address = %peer.address, caller = %callers[0], %denied, "a signing request was refused");
            match &denied {
                Denied::Nobody | Denied::Impersonation => Failure::Unauthenticated(denied.to_string()),
                _ if denied.is_callers() => Failure::InvalidArgument(denied.to_string()),
                _ => Failure::Unavailable(denied.to_string()),
            }
        })
    }
}

impl xds::Methods for CertificateService {
    fn serves(&self, path: &str) -> bool {
        path == METHOD
    }

    fn call<'a>(&'a self, peer: &'a Peer, headers: &'a HeaderMap, message: Bytes) -> Later<'a, Result<Bytes, Failure>> {
        Box::pin(self.answer(peer, headers, message))
    }
}
