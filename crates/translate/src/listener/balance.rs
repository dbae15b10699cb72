//! Exact connection balancing between worker threads, if the node metadata asks for it.

use wire::envoy::config::listener::v3::listener::{
    ConnectionBalanceConfig,
    connection_balance_config::{BalanceType, ExactBalance},
};

pub(super) fn exact(wanted: bool) -> Option<ConnectionBalanceConfig> {
    wanted.then(|| ConnectionBalanceConfig { balance_type: Some(BalanceType::ExactBalance(ExactBalance {})) })
}
