//! The server behind `meltemi serve`: from changes of objects to pushes, and what goes with it: authentication, certificates, root rotation,
//! leader tasks, the webhooks. Pages and metrics endpoints are in the crate `admin`, flags in the program.

mod admission_policies;
mod authentication;
mod banner;
mod certificates;
mod class_sweep;
mod core_dumps;
mod debounce;
mod folder;
mod gateway_credentials;
mod grpc_ports;
mod history_folder;
mod history_recorder;
pub mod http_port;
mod injection;
mod jwks;
mod leader_tasks;
mod loaded;
mod memory_pressure;
mod metrics;
mod nack_holds;
mod needed_rights;
mod object_acks;
mod object_input;
mod object_source;
mod object_status;
mod open_files;
mod panics;
mod pipeline;
mod planner;
mod ports;
mod process_memory;
mod replicas;
mod root_rotation;
mod root_secret;
mod running;
mod secure_port;
pub mod settings;
mod starting;
mod state;
mod stop;
pub mod version;
mod webhook;
mod workload_secrets;

pub use admission_policies::admission_policies;
pub use core_dumps::disable as disable_core_dumps;
pub use folder::{LoadedFolder, load as load_folder, load_text};
pub use history_recorder::HistoryRecorder;
pub use injection::{InjectionService, InjectorReport, injector_config_map};
pub use loaded::LoadedServer;
pub use metrics::{CurrentObjects, Metrics, RefreshKind};
pub use object_acks::{ObjectAcks, ProxyAck, content_digest};
pub use object_input::{FileInput, LoadedObjects, ObjectInput};
pub use panics::count_panics;
pub use planner::{ObjectEffect, PlanError, PlanOperation, PlanPermit, PlannedObjects, Planner};
pub use process_memory::memory_limit;
pub use replicas::{ReplicaBalancer, ReplicaState, ReplicaStatus};
pub use root_rotation::{
    AdvanceRequest, CertificateAge, CertificateAges, ReplicaCoverage, RootRotation, RootStatus, RotationStatus,
};
pub use running::RunningServer;
pub use starting::StartingServer;
pub use state::{ReplicaAccess, SharedState};
pub use stop::StopSignals;
