//! The control planes that are compared, and the settings that they run with.

use clap::ValueEnum;
use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Istiod {
    /// No settings
    Default,
    /// What its guides advise for large meshes: nothing waits longer than it must
    Tuned,
}

/// Where Meltemi reads the mesh from. istiod has an API server in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Source {
    Folder,
    /// A kube-apiserver; istiod's own where it is measured too
    ApiServer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum System {
    Meltemi,
    Istiod(Istiod),
}

impl System {
    pub(super) const REFERENCES: [System; 2] = [System::Istiod(Istiod::Default), System::Istiod(Istiod::Tuned)];

    pub(super) fn name(self) -> &'static str {
        match self {
            System::Meltemi => "meltemi",
            System::Istiod(Istiod::Default) => "istiod/default",
            System::Istiod(Istiod::Tuned) => "istiod/tuned",
        }
    }
}

impl Istiod {
    pub(super) fn name(self) -> &'static str {
        match self {
            Istiod::Default => "default",
            Istiod::Tuned => "tuned",
        }
    }

    pub(super) fn environment(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Istiod::Default => &[],
            Istiod::Tuned => &[
                ("PILOT_DEBOUNCE_AFTER", "10ms"),
                ("PILOT_PUSH_THROTTLE", "100"),
                ("PILOT_MAX_REQUESTS_PER_SECOND", "100000"),
            ],
        }
    }
}

impl Serialize for System {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
