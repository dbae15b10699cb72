//! What operators use, against a running server with proxies: istioctl, Prometheus, `meltemi doctor`. One mesh per question.

mod doctor;
mod istioctl;
mod load;
mod prometheus;
mod secrets;
mod world;
