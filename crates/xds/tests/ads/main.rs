//! ADS as a proxy sees it: the real server over memory, resources that tests set, and one test per rule of the protocol.

mod abuse;
mod authentication;
mod buffers;
mod cost;
mod delta;
mod faults;
mod floods;
mod harness;
mod holds;
mod life;
mod limits;
mod mesh;
mod model;
mod proxy;
mod push;
mod rules;
mod sotw;
mod warming;
