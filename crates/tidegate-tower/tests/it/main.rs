//! The layers from outside: in front of services, over sockets, by the clock of a test.

#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]
#![allow(clippy::type_complexity, reason = "tables of cases are told where they are")]

mod addresses;
mod gate;
mod grpc;
mod guard;
mod guides;
mod limit;
mod on_disk;
mod places;
mod policy;
mod proxy;
mod settle;
mod support;
mod wire;
