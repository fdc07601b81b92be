//! Rate limits as tower layers: for axum, hyper and tonic.
#![forbid(unsafe_code)]
