import assert from "node:assert/strict";
import { createPublicKey, verify } from "node:crypto";
import { test } from "node:test";

import {
  AuthError,
  authResponse,
  ClosedError,
  envelope,
  InvalidError,
  MessageType,
  readPayload,
  RelayConnection,
  TimeoutError,
  type AuthFailure,
  type ConnectOptions,
  type Envelope,
  type RelayKey,
  type WebSocketConstructor,
} from "tidegate/relay";

import { attempt, type Attempt } from "./support/attempt.js";
import { hex, toHex } from "./support/bytes.js";
import { FakeClock } from "./support/fake-clock.js";
import { challenge, fakeWebSocket, nextSent, NOW_MS, result } from "./support/fake-web-socket.js";

/** The first test vector of RFC 8032. */
const SEED = hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
const PUBLIC_KEY = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

async function assertFails(
  { socket, connecting, clock }: Attempt,
  failure: AuthFailure,
  message: RegExp,
): Promise<void> {
  await assert.rejects(connecting, (error) => {
    assert.ok(error instanceof AuthError, String(error));
    assert.equal(error.failure, failure);
    assert.match(error.message, message);
    return true;
  });
  assert.equal(socket.closes, 1);
  await Promise.resolve();
  assert.equal(clock.timers, 0);
}

test("a challenge is signed as specified, and the connection has the assigned address", async () => {
  const { socket, connecting } = await attempt({ key: SEED, relayHost: "relay.example" });
  const responded = nextSent(socket);
  socket.receive(challenge());
  const sent = await responded;
  assert.equal(sent.version, 1);
  assert.equal(sent.type, MessageType.AUTH_RESPONSE);
  const response = readPayload(sent, authResponse);
  assert.ok(response);
  assert.equal(response.version, 1);
  assert.equal(toHex(response.publicKey), PUBLIC_KEY);
  assert.equal(toHex(response.nonce), "09".repeat(32));
  const signed = Buffer.concat([
    Buffer.from("pinch-auth-v1\0relay.example\0"),
    Buffer.alloc(32, 9),
  ]);
  const x = Buffer.from(PUBLIC_KEY, "hex").toString("base64url");
  const key = createPublicKey({ format: "jwk", key: { kty: "OKP", crv: "Ed25519", x } });
  assert.ok(verify(null, signed, key, response.signature));

  socket.receive(result({ assignedAddress: "pinch:abc@relay.example" }));
  assert.equal((await connecting).address, "pinch:abc@relay.example");
});

test("an invalid challenge is not signed", async () => {
  const table: [Envelope | Uint8Array | string, AuthFailure, RegExp][] = [
    [challenge({ version: 0 }), "bad-challenge", /version 0, not 1/],
    [challenge({ version: 2 }), "bad-challenge", /version 2, not 1/],
    [challenge({ nonce: new Uint8Array(31) }), "bad-challenge", /31 bytes, not 32/],
    [challenge({ nonce: new Uint8Array(33) }), "bad-challenge", /33 bytes, not 32/],
    [challenge({ relayHost: "" }), "bad-challenge", /host/],
    [challenge({ relayHost: "a\0b" }), "bad-challenge", /host/],
    [challenge({ relayHost: "evil\n" }), "wrong-host", /`evil\\u\{a\}`, not `relay.example`/],
    [challenge({ expiresAtMs: NOW_MS }), "expired", /not valid now/],
    [challenge({ issuedAtMs: 1n, expiresAtMs: NOW_MS - 30_000n }), "expired", /not valid now/],
    [
      challenge({ issuedAtMs: NOW_MS + 30_001n, expiresAtMs: NOW_MS + 40_000n }),
      "expired",
      /not valid now/,
    ],
    [{ ...challenge(), version: 2 }, "unexpected", /version 2, type 2/],
    [{ ...challenge(), type: MessageType.MESSAGE }, "unexpected", /version 1, type 4/],
    [result(), "unexpected", /version 1, type 9/],
    [envelope({ type: MessageType.AUTH_CHALLENGE }), "unexpected", /type 2/],
    [hex("08"), "unexpected", /malformed/],
    ["text", "unexpected", /malformed/],
    [new Uint8Array(131_073), "unexpected", /malformed/],
  ];
  for (const [frame, failure, message] of table) {
    const trial = await attempt({ relayHost: "relay.example" });
    trial.socket.receive(frame);
    await assertFails(trial, failure, message);
    assert.equal(trial.socket.sent.length, 0);
  }
});

test("the relay's clock may be off by half a minute, or by clockSkewMs", async () => {
  const table: [bigint, bigint, number | undefined, boolean][] = [
    [-40_000n, -29_999n, undefined, true],
    [-40_000n, -30_000n, undefined, false],
    [30_000n, 40_000n, undefined, true],
    [-10_000n, 1n, 0, true],
    [-10_000n, 0n, 0, false],
    [1n, 10_000n, 0, false],
  ];
  for (const [issued, expires, clockSkewMs, valid] of table) {
    const trial = await attempt(clockSkewMs === undefined ? {} : { clockSkewMs });
    const responded = nextSent(trial.socket);
    trial.socket.receive(challenge({ issuedAtMs: NOW_MS + issued, expiresAtMs: NOW_MS + expires }));
    if (valid) await responded;
    else await assertFails(trial, "expired", /not valid now/);
  }
});

test("without an expected host any host is signed", async () => {
  const { socket } = await attempt();
  const responded = nextSent(socket);
  socket.receive(challenge({ relayHost: "any-host" }));
  await responded;
});

test("the reason of a rejection is quoted in one line", async () => {
  for (const [errorMessage, expected] of [
    ["address already connected", /^the relay refused: address already connected$/],
    ["no\nway", /^the relay refused: no\\u\{a\}way$/],
    ["", /^the relay refused: no reason given$/],
  ] as const) {
    const trial = await attempt();
    const responded = nextSent(trial.socket);
    trial.socket.receive(challenge());
    await responded;
    trial.socket.receive(result({ success: false, errorMessage }));
    await assertFails(trial, "rejected", expected);
  }
});

test("anything but a result ends the handshake", async () => {
  for (const frame of [result({ assignedAddress: "" }), challenge(), hex("08"), "text"]) {
    const trial = await attempt();
    const responded = nextSent(trial.socket);
    trial.socket.receive(challenge());
    await responded;
    trial.socket.receive(frame);
    await assertFails(trial, "unexpected", /./);
  }
});

test("a result before the response is rejected", async () => {
  const trial = await attempt();
  trial.socket.receive(challenge());
  trial.socket.receive(result());
  await assertFails(trial, "unexpected", /out of turn/);
});

test("a silent relay times out", async () => {
  const trial = await attempt({ timeoutMs: 500 });
  trial.clock.advance(499);
  assert.equal(trial.socket.closes, 0);
  trial.clock.advance(1);
  await assert.rejects(trial.connecting, (error) => {
    return error instanceof TimeoutError && /no challenge .* within 500 ms/.test(error.message);
  });
  assert.equal(trial.socket.closes, 1);

  const silent = await attempt();
  const responded = nextSent(silent.socket);
  silent.socket.receive(challenge());
  await responded;
  silent.clock.advance(10_000);
  await assert.rejects(silent.connecting, (error) => {
    return error instanceof TimeoutError && /no response .* within 10000 ms/.test(error.message);
  });
});

test("a socket that ends during the handshake is an error with its code", async () => {
  const trial = await attempt();
  trial.socket.fail(new Error("refused"));
  trial.socket.end(1006, "");
  await assert.rejects(trial.connecting, (error) => {
    assert.ok(error instanceof ClosedError);
    assert.equal(error.closeCode, 1006);
    assert.equal(error.message, "the connection is closed, code 1006 (refused)");
    return true;
  });
  assert.equal(trial.clock.timers, 0);
});

test("aborting ends the handshake with the signal's reason", async () => {
  const reason = new Error("changed my mind");
  const { WebSocket } = fakeWebSocket();
  const signal = AbortSignal.abort(reason);
  await assert.rejects(RelayConnection.connect("ws://h", { key: SEED, WebSocket, signal }), reason);
  const controller = new AbortController();
  const trial = await attempt({ signal: controller.signal });
  controller.abort(reason);
  await assert.rejects(trial.connecting, reason);
  assert.equal(trial.socket.closes, 1);
});

test("keys that cannot sign with Ed25519 are errors", async () => {
  const { WebSocket } = fakeWebSocket();
  const ecdsa = (await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, true, [
    "sign",
    "verify",
  ])) as Exclude<RelayKey, Uint8Array>;
  const keys: [RelayKey, RegExp][] = [
    [new Uint8Array(31), /a seed has 32 bytes, not 31/],
    [new Uint8Array(64), /a seed has 32 bytes, not 64/],
    [ecdsa, /ECDSA, not Ed25519/],
    [{} as never, /cannot sign with Ed25519/],
  ];
  for (const [key, message] of keys) {
    await assert.rejects(RelayConnection.connect("ws://h", { key, WebSocket }), (error) => {
      assert.ok(error instanceof InvalidError);
      assert.match(error.message, message);
      return true;
    });
  }
});

test("invalid options are errors that name the option", async () => {
  const table: [string, Partial<ConnectOptions>, RegExp][] = [
    ["not a url\n", {}, /`not a url\\u\{a\}` is not a URL/],
    ["http://h/ws", {}, /ws: or wss:, not http:/],
    ["ws://h", { timeoutMs: 0 }, /timeoutMs is 0/],
    ["ws://h", { clockSkewMs: -1 }, /clockSkewMs is -1/],
    ["ws://h", { envelopeBytesMax: 0.5 }, /envelopeBytesMax is 0.5/],
    ["ws://h", { bufferedBytesMax: NaN }, /bufferedBytesMax is NaN/],
    ["ws://h", { inboxLimits: { messagesMax: 0 } }, /inboxLimits.messagesMax is 0/],
    ["ws://h", { sendLimits: { attemptsMax: 0 } }, /attemptsMax is 0/],
  ];
  for (const [url, options, message] of table) {
    const { WebSocket } = fakeWebSocket();
    await assert.rejects(
      RelayConnection.connect(url, { key: SEED, WebSocket, ...options }),
      (error) => error instanceof InvalidError && message.test(error.message),
      String(message),
    );
  }
});

test("a relay's address without a path is that of its WebSocket", async () => {
  for (const [given, url] of [
    ["ws://h:1", "ws://h:1/ws"],
    [new URL("wss://h/#x"), "wss://h/ws"],
    ["ws://h/other?a=b", "ws://h/other?a=b"],
  ] as const) {
    const { WebSocket, made } = fakeWebSocket();
    RelayConnection.connect(given, { key: SEED, WebSocket, clock: new FakeClock() }).catch(
      () => {},
    );
    assert.equal((await made).url, url);
  }
});

test("a WebSocket that the platform forbids is an InvalidError", async () => {
  class WebSocket {
    constructor(url: string) {
      throw new Error(`not to ${url}`);
    }
  }
  const forbidden = WebSocket as never as WebSocketConstructor;
  const connecting = RelayConnection.connect("ws://h", { key: SEED, WebSocket: forbidden });
  await assert.rejects(connecting, (error) => {
    assert.ok(error instanceof InvalidError);
    assert.equal(error.message, "the platform cannot open a WebSocket to ws://h/ws");
    return true;
  });
});

test("the platform's WebSocket is used if there is one, and required if there is none", async () => {
  const platform = globalThis as { WebSocket?: WebSocketConstructor | undefined };
  const before = platform.WebSocket;
  try {
    platform.WebSocket = undefined;
    await assert.rejects(RelayConnection.connect("ws://h", { key: SEED }), (error) => {
      return error instanceof InvalidError && /pass one as `WebSocket`/.test(error.message);
    });
    const { WebSocket, made } = fakeWebSocket();
    platform.WebSocket = WebSocket;
    const clock = new FakeClock();
    RelayConnection.connect("ws://h", { key: SEED, clock }).catch(() => {});
    assert.equal((await made).binaryType, "arraybuffer");
  } finally {
    platform.WebSocket = before;
  }
});

test("the package's main entry exports the relay", async () => {
  const { relay } = await import("tidegate");
  assert.equal(relay.RelayConnection, RelayConnection);
});
