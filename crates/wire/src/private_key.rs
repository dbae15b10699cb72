//! The configuration of private key providers, CryptoMB and QAT. Their messages are in Envoy's contrib folder, which the descriptor set lacks, and
//! have the same fields.

use prost::Message;

use crate::envoy::config::core::v3::DataSource;
use crate::google::protobuf::Duration;

/// The hardware, as Envoy registers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrivateKeyMethod {
    CryptoMb,
    Qat,
}

impl PrivateKeyMethod {
    /// The name of the extension.
    pub fn name(self) -> &'static str {
        match self {
            Self::CryptoMb => "cryptomb",
            Self::Qat => "qat",
        }
    }

    pub fn type_url(self) -> &'static str {
        match self {
            Self::CryptoMb => {
                "type.googleapis.com/envoy.extensions.private_key_providers.cryptomb.v3alpha.CryptoMbPrivateKeyMethodConfig"
            }
            Self::Qat => {
                "type.googleapis.com/envoy.extensions.private_key_providers.qat.v3alpha.QatPrivateKeyMethodConfig"
            }
        }
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct PrivateKeyMethodConfig {
    #[prost(message, optional, tag = "1")]
    pub private_key: Option<DataSource>,
    /// Envoy rejects zero.
    #[prost(message, optional, tag = "2")]
    pub poll_delay: Option<Duration>,
}
