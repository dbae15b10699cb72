//! A node by its number: its addresses, names and folder. Several run side by side, each a cluster of its own.

use std::fmt::{self, Display};
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Result, bail};

use crate::project;

/// 0 to 9.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Node(u8);

impl FromStr for Node {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Node> {
        match text.parse() {
            Ok(number @ 0..=9) => Ok(Node(number)),
            _ => bail!("{text:?} is not the number of a node; it is one digit, 0 to 9"),
        }
    }
}

impl Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Node {
    /// Where the API server and node ports are.
    pub(crate) fn address(self) -> String {
        format!("172.30.{}.2", self.0)
    }

    /// This machine, as the node sees it.
    pub(super) fn gateway(self) -> String {
        format!("172.30.{}.1", self.0)
    }

    /// The first three numbers of the addresses of pods.
    pub(super) fn pods(self) -> String {
        format!("10.210.{}", self.0)
    }

    pub(super) fn services(self) -> String {
        format!("10.211.{}", self.0)
    }

    /// Addresses of Services of type LoadBalancer.
    pub(super) fn balancers(self) -> String {
        format!("10.212.{}", self.0)
    }

    pub(super) fn dns(self) -> String {
        format!("{}.10", self.services())
    }

    pub(super) fn api(self) -> String {
        format!("https://{}:6443", self.address())
    }

    /// The name of its network link on this machine and of its control groups.
    pub(super) fn name(self) -> String {
        format!("meltemi{}", self.0)
    }

    /// All that it writes, gone with it.
    pub(crate) fn folder(self) -> Result<PathBuf> {
        Ok(project::cache()?.join("cluster").join(self.0.to_string()))
    }

    /// Of somebody who may do everything.
    pub(crate) fn kubeconfig(self) -> Result<PathBuf> {
        Ok(self.folder()?.join("admin.kubeconfig"))
    }

    /// Fills the gaps of one of its files.
    pub(super) fn filled(self, template: &str) -> Result<String> {
        let folder = self.folder()?.display().to_string();
        let gaps = [("@FOLDER@", folder), ("@GROUP@", self.name()), ("@DNS@", self.dns()), ("@PODS@", self.pods())];
        Ok(gaps.iter().fold(template.to_owned(), |text, (gap, value)| text.replace(gap, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_one_digit() {
        assert_eq!("7".parse::<Node>().unwrap().to_string(), "7");
        for wrong in ["10", "-1", "", "a"] {
            assert!(wrong.parse::<Node>().unwrap_err().to_string().contains("0 to 9"));
        }
    }

    #[test]
    fn nodes_share_no_address() {
        let (one, other) = (Node(1), Node(2));
        for part in [Node::address, Node::gateway, Node::pods, Node::services, Node::balancers, Node::name] {
            assert_ne!(part(one), part(other));
        }
    }
}
