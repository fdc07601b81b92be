use std::future::Future;
use std::pin::Pin;

/// A boxed future.
pub(crate) type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;
