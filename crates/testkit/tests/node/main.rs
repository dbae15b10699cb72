//! The chart, the image and injected sidecars on a real cluster: kubelet, containerd, iptables. `cargo xtask test --cluster` starts one and runs
//! these; they take turns.

mod disruption;
mod gateway;
mod injection;
mod install;
mod mesh;
mod prometheus;
mod shop;
mod workloads;
