//! `CreateCertificate` on the wire: bytes in, bytes out. Who calls is the door's word, what they get the authority's.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use ca::{Certificates, Denied};
use http::HeaderMap;
use prost::Message;
use wire::istio::v1::auth::IstioCertificateRequest;
use xds::{Failure, Later, Peer};

use super::door::Door;

const METHOD: &str = "/istio.v1.auth.IstioCertificateService/CreateCertificate";

pub(crate) struct CertificateService {
    pub(crate) certificates: Arc<Certificates>,
    pub(crate) door: Arc<Door>,
    pub(crate) metrics: Arc<ca::Metrics>,
    pub(crate) stages: xds::Stages,
}

impl CertificateService {
    fn answer(&self, peer: &Peer, headers: &HeaderMap, message: Bytes) -> Result<Bytes, Failure> {
        let callers = self.door.identities(peer, headers).map_err(|reason| {
            self.metrics.stranger();
            tracing::warn!(address = %peer.address, reason, "a signing request was refused: nobody is known");
            // istiod's words: agents log them.
            Failure::Unauthenticated("request authenticate failure".to_owned())
        })?;
        let request = IstioCertificateRequest::decode(message)
            .map_err(|error| Failure::InvalidArgument(format!("cannot read the request: {error}")))?;
        let sign = || self.certificates.answer(&request, &callers, SystemTime::now());
        let response = self.stages.run(xds::Stage::Certificates, sign);
        response.map(|response| response.encode_to_vec().into()).map_err(|denied| {
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
        Box::pin(async move { self.answer(peer, headers, message) })
    }
}
