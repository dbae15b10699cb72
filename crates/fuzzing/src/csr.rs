//! Certificate signing requests, as PEM or as DER.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ca::{Csr, Identity};

pub fn csr(data: &[u8]) {
    match data.split_first() {
        Some((b'-', _)) => check(&String::from_utf8_lossy(data)),
        // DER, which a mutation of base64 would rarely hit.
        _ => check(&pem(data)),
    }
}

fn check(text: &str) {
    let Ok(csr) = Csr::parse(text) else { return };
    let caller = Identity {
        trust_domain: "cluster.local".to_owned(),
        namespace: "shop".to_owned(),
        service_account: "cart".to_owned(),
    };
    if let Ok(request) = csr.for_signer(&[caller]) {
        // What is passed on is a CSR again, for the same name.
        Csr::parse(&request.pem()).expect("what a signer receives can be read");
    }
}

fn pem(der: &[u8]) -> String {
    format!("-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n", STANDARD.encode(der))
}
