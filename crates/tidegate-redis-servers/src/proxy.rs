//! A TCP proxy that makes faults.

use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::port::Port;
use event_loop::{EventLoop, Order};

mod event_loop;
mod link;

/// What a proxy does with connections, until the test chooses something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// None: bytes pass at once.
    Pass,
    /// New connections are refused. Those that are open go on.
    Refuse,
    /// Half-open: connections are accepted, and no bytes pass either way. They wait where they are, and pass
    /// when the fault is over, as after a network partition.
    Hold,
    /// Half-open for good: connections are accepted, and all bytes are discarded. A connection that has lost
    /// bytes is cut when the fault is over.
    Discard,
    /// All bytes pass this much later, each way.
    Delay(Duration),
}

/// How connections end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// As if the other side had closed them: the client reads an end of file.
    Close,
    /// With a reset: the client gets an error.
    Reset,
}

/// A proxy in front of a server, in a thread of its own. It ends with this value.
///
/// It serves at most 256 connections, and holds at most 64 KiB of each for each direction. A connection to a
/// server that refuses it is accepted, then cut.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    orders: Mutex<mpsc::Sender<Order>>,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy in front of an address, without a fault.
    ///
    /// # Panics
    ///
    /// If it cannot listen.
    #[must_use]
    #[track_caller]
    pub fn start(target: SocketAddr) -> Self {
        let port = Port::reserve();
        let address = port.address();
        let (wake, woken) = UnixStream::pair().expect("two descriptors");
        let (orders, received) = mpsc::channel();
        let event_loop = EventLoop::new(port, target, woken, received)
            .unwrap_or_else(|error| panic!("cannot start a proxy: {error}"));
        let thread = thread::spawn(move || event_loop.run());
        Self { address, orders: Mutex::new(orders), wake, thread: Some(thread) }
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address as `redis://127.0.0.1:6379`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Changes the fault, of connections that are open as well. It is in force when this returns.
    ///
    /// # Panics
    ///
    /// If the proxy has failed.
    #[track_caller]
    pub fn set(&self, fault: Fault) {
        self.order(|done| Order::Fault(fault, done));
    }

    /// Cuts all connections: no byte passes from when this returns. New ones are accepted.
    ///
    /// # Panics
    ///
    /// If the proxy has failed.
    #[track_caller]
    pub fn cut(&self, how: Cut) {
        self.order(|done| Order::Cut(how, done));
    }

    /// Loses the replies to the next requests with this command: each request reaches the server, and when
    /// the server has answered it, the connection is closed without the reply. Replies to earlier requests
    /// of the connection pass. An empty name is any command; a count of 0 loses no more.
    ///
    /// The proxy counts requests and replies, so each request must have one reply: no `SUBSCRIBE` before
    /// RESP 3, no `CLIENT REPLY`, no TLS.
    ///
    /// # Panics
    ///
    /// If the proxy has failed.
    #[track_caller]
    pub fn lose_replies(&self, command: &str, count: u32) {
        let command = command.to_owned();
        self.order(|done| Order::Lose { command, count, done });
    }

    /// How many replies were lost so far.
    ///
    /// # Panics
    ///
    /// If the proxy has failed.
    #[must_use]
    #[track_caller]
    pub fn lost_replies(&self) -> u64 {
        self.order(Order::CountLost)
    }

    /// How many connections are open.
    ///
    /// # Panics
    ///
    /// If the proxy has failed.
    #[must_use]
    #[track_caller]
    pub fn connections(&self) -> usize {
        self.order(Order::CountConnections)
    }

    /// Gives an order to the thread, and waits until it is carried out.
    #[track_caller]
    fn order<T>(&self, order: impl FnOnce(mpsc::Sender<T>) -> Order) -> T {
        let (done, result) = mpsc::channel();
        self.send(order(done));
        result.recv_timeout(ORDER_TIMEOUT).expect("the proxy has failed")
    }

    fn send(&self, order: Order) {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = orders.send(order);
        let _ = (&self.wake).write_all(b"!");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.send(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

const ORDER_TIMEOUT: Duration = Duration::from_secs(20);
