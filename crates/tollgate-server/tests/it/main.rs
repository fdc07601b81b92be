//! The daemon from outside.

#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

mod envoy;
mod grpc;
mod grpc_bad_input;
mod grpc_client;
