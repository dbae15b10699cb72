//! What operators use, against a running server with proxies: istioctl, Prometheus, `meltemi doctor`. One mesh per question.

mod doctor;
mod figures;
mod istioctl;
mod kube_inject;
mod limits;
mod load;
mod observed;
mod prometheus;
mod rejecting;
mod secrets;
mod served;
mod strained;
mod symptoms;
mod tenants;
