//! Frames and messages of the local socket.
