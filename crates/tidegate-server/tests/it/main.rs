//! The daemon from outside: real sockets, real proxies, every listener.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod access;
mod access_descriptors;
mod admin;
mod admin_edits;
mod admin_openapi;
mod byte_budgets;
mod dashboard;
mod envoy;
mod grpc;
mod grpc_bad_input;
mod grpc_bounds;
mod grpc_client;
mod grpc_metadata;
mod http;
mod http_bad_input;
mod http_behind;
mod http_forward;
mod http_guides;
mod http_holds;
mod http_openapi;
mod http_support;
mod http_time_outs;
mod local;
mod local_bad_input;
mod openapi;
mod openapi_coverage;
mod permits;
mod policy_watcher;
mod postpaid;
mod preview;
mod readiness;
mod resp;
mod rls_outages;
mod running;
mod shared_store;
mod tls;
mod usage;
mod wire_forms;
