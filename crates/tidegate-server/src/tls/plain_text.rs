//! What clients get that send plain text to a port with TLS.

use crate::listener::Listener;
use tidegate_listen::tls::PlainTextResponse;

/// The response of a listener, by the first bytes of a client.
pub(super) const fn response(listener: Listener) -> PlainTextResponse {
    match listener {
        Listener::Http | Listener::Admin | Listener::Unix => |_| HTTP,
        Listener::Grpc => |first| if first.starts_with(b"PRI ") { HTTP2 } else { HTTP },
        Listener::Resp => |_| RESP,
    }
}

const HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
    content-type: application/problem+json\r\n\
    content-length: 102\r\n\
    connection: close\r\n\r\n\
    {\"type\":\"about:blank\",\"title\":\"TLS Required\",\"status\":400,\
    \"detail\":\"this port speaks TLS: use https\"}\n";

/// Empty settings, then GOAWAY for all streams with INADEQUATE_SECURITY and a message: clients of
/// gRPC report it as the reason of `UNAVAILABLE`.
const HTTP2: &[u8] = b"\0\0\0\x04\0\0\0\0\0\
    \0\0\x25\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0c\
    this port speaks TLS: use TLS";

const RESP: &[u8] =
    b"-ERR this port speaks TLS: connect with TLS (redis-cli --tls, or rediss://)\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_in_the_responses_are_right() {
        let text = std::str::from_utf8(HTTP).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{}", body.len());
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["status"], 400);
        let (settings, goaway) = HTTP2.split_at(9);
        assert_eq!(settings, [0, 0, 0, 4, 0, 0, 0, 0, 0]);
        let (head, payload) = goaway.split_at(9);
        assert_eq!(usize::from(head[2]), payload.len());
    }

    #[test]
    fn http_on_the_grpc_port_gets_http() {
        let of = response(Listener::Grpc);
        assert_eq!(of(b"PRI * HTTP/2.0\r\n"), HTTP2);
        assert_eq!(of(b"GET / HTTP/1.1\r\n"), HTTP);
        assert_eq!(of(b"P"), HTTP);
    }
}
