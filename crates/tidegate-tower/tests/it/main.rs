//! The layers from outside: in front of services, over sockets, with a manual clock.

#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]
#![allow(clippy::type_complexity, reason = "tables of cases are written inline")]

mod addresses;
mod gate;
mod grpc;
mod guard;
mod guides;
mod limit;
mod on_disk;
mod policy;
mod proxy;
mod reload;
mod renewals;
mod settle;
mod slots;
mod support;
mod surprises;
mod wire;
