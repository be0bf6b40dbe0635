//! Tasks whose futures are boxed.
//!
//! Owns: how a task begins. Never: decides how one ends.
//!
//! The runtime's code for a task is compiled once for each type of future, and there were a hundred types: in a box,
//! they are of one type for each result. A task that begins with each execution (`engine::slots`) needs no box.

use std::pin::Pin;

use tokio::task::JoinHandle;

/// Work of any type of future, which stays on its thread.
pub type LocalWork<T> = Pin<Box<dyn Future<Output = T>>>;

/// Boxes work that stays on its thread, for a set of tasks.
pub fn boxed<T>(work: impl Future<Output = T> + 'static) -> LocalWork<T> {
    Box::pin(work)
}

/// Begins a task on this thread.
pub fn local<T: 'static>(work: impl Future<Output = T> + 'static) -> JoinHandle<T> {
    tokio::task::spawn_local(boxed(work))
}

/// Begins a task on any thread of the runtime.
pub fn anywhere<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    let work: Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(work);
    tokio::spawn(work)
}
