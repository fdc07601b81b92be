import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test } from "node:test";

import {
  ClosedError,
  decodeEnvelope,
  encodeEnvelope,
  envelope,
  InboxFullError,
  InvalidError,
  MessageType,
  QueueFullError,
  type RelayConnection,
  TooLargeError,
  WireError,
  type ConnectionEnd,
  type ConnectOptions,
  type Envelope,
  type RelayError,
} from "tidegate/relay";

import { attempt, admit, type Attempt } from "./support/attempt.js";
import { fromUtf8, hex, toHex, utf8 } from "./support/bytes.js";
import { NOW_MS } from "./support/fake-web-socket.js";
import { denial } from "./support/simulated-relay.js";
import { uncaught } from "./support/uncaught.js";

/** The address of the public key of 32 zero bytes. */
const YOU = "pinch:111111111111111111111111111111113cpqAU@h";

interface Bench extends Attempt {
  readonly connection: RelayConnection;
  readonly problems: RelayError[];
  readonly log: string[];
}

/** An open connection. `behind` arrives together with the relay's result. */
async function connected(
  options: Partial<ConnectOptions> = {},
  behind: Envelope[] = [],
): Promise<Bench> {
  const problems: RelayError[] = [];
  const log: string[] = [];
  const trial = await attempt({
    logger: (line) => log.push(line),
    onProblem: (problem) => problems.push(problem),
    ...options,
  });
  await admit(trial);
  for (const frame of behind) trial.socket.receive(frame);
  return { ...trial, connection: await trial.connecting, problems, log };
}

function named(name: string): Envelope {
  return envelope({ type: MessageType.MESSAGE, messageId: utf8(name), toAddress: YOU });
}

function nameOf(message: Envelope | undefined): string {
  return fromUtf8(message?.messageId ?? utf8("nothing"));
}

test("missing fields of a message are filled in", async () => {
  const { connection, socket } = await connected({ randomBytes: (n) => new Uint8Array(n).fill(5) });
  const sent = await connection.send({ to: YOU });
  assert.deepEqual(decodeEnvelope(socket.sent[0] ?? hex("")), {
    version: 1,
    fromAddress: "pinch:me@h",
    toAddress: YOU,
    type: MessageType.MESSAGE,
    messageId: new Uint8Array(16).fill(5),
    timestampMs: NOW_MS,
  });
  assert.deepEqual(sent, { messageId: new Uint8Array(16).fill(5), state: "sent" });

  const whole = { ...named("mine"), timestampMs: 7n, type: MessageType.HEARTBEAT };
  await connection.send(whole);
  const expected = { ...whole, fromAddress: "pinch:me@h" };
  assert.deepEqual(decodeEnvelope(socket.sent[1] ?? hex("")), expected);
});

test("ids are random by default", async () => {
  const { connection } = await connected();
  const first = await connection.send({ to: YOU });
  const second = await connection.send({ to: YOU });
  assert.equal(first.messageId.length, 16);
  assert.notEqual(toHex(first.messageId), toHex(second.messageId));
});

test("a message that the relay would drop silently is an error", async () => {
  const { connection, socket } = await connected({ envelopeBytesMax: 50 });
  const foreign = { ...named("a"), fromAddress: YOU };
  await assert.rejects(connection.send(foreign), InvalidError);
  const large = { field: 10, bytes: new Uint8Array(50) };
  await assert.rejects(connection.send({ to: YOU, payload: large }), TooLargeError);
  await assert.rejects(connection.send({ to: "\ud800" }), InvalidError);
  assert.equal(socket.sent.length, 0);
});

test("a full socket buffer accepts no more", async () => {
  const { connection, socket } = await connected({ bufferedBytesMax: 1_000 });
  socket.bufferedAmount = 990;
  await assert.rejects(connection.send({ to: YOU }), QueueFullError);
  socket.bufferedAmount = 0;
  await connection.send({ to: YOU });
});

test("a denial is logged, not delivered, and the message is sent again", async () => {
  const outcomes: string[] = [];
  const { connection, socket, clock, log } = await connected({
    onRateLimited: ({ outcome }) => outcomes.push(outcome),
  });
  const heard: string[] = [];
  connection.onMessage((message) => heard.push(nameOf(message)));
  await connection.send(named("a"));
  socket.receive(denial("a", 1000, "slow down"));
  assert.deepEqual(log, ["Rate limited by relay: slow down. Retry after 1000ms"]);
  assert.equal((await connection.send(named("b"))).state, "queued");
  assert.ok(connection.backingOff);
  assert.equal(connection.waiting, 2);
  const flushed = connection.flush();
  clock.runOut(10_000);
  await flushed;
  assert.deepEqual(socket.sent.map(decodeEnvelope).map(nameOf), ["a", "a", "b"]);
  assert.equal(toHex(socket.sent[0] ?? hex("")), toHex(socket.sent[1] ?? hex("00")));
  assert.deepEqual(outcomes, ["queued"]);
  assert.deepEqual(heard, []);
});

test("a denial from another client is an ordinary message", async () => {
  const { connection, socket, log } = await connected();
  socket.receive({ ...denial("forged", 60_000), toAddress: "pinch:me@h" });
  assert.equal(nameOf((await connection.messages().next()).value), "forged");
  assert.ok(!connection.backingOff);
  assert.deepEqual(log, []);
});

test("messages before the first listener are stored, in order", async () => {
  const { connection, socket } = await connected({}, [named("a"), named("b")]);
  const heard: string[] = [];
  const stop = connection.onMessage((message) => {
    heard.push(nameOf(message));
    if (heard.length === 3) stop();
  });
  socket.receive(named("c"));
  socket.receive(named("d"));
  await Promise.resolve();
  assert.deepEqual(heard, ["a", "b", "c"]);
  // Without a listener again.
  socket.receive(named("e"));
  const messages = connection.messages();
  assert.equal(nameOf((await messages.next()).value), "d");
  assert.equal(nameOf((await messages.next()).value), "e");
});

test("every listener gets every message", async () => {
  const { connection, socket } = await connected();
  const heard: string[] = [];
  const stop = connection.onMessage((...all) => {
    assert.equal(all.length, 1);
    heard.push(`1${nameOf(all[0])}`);
  });
  connection.onMessage((message) => heard.push(`2${nameOf(message)}`));
  const messages = connection.messages();
  socket.receive(named("a"));
  stop();
  socket.receive(named("b"));
  assert.deepEqual(heard, ["1a", "2a", "2b"]);
  assert.equal(nameOf((await messages.next()).value), "a");
  assert.equal(nameOf((await messages.next()).value), "b");
});

test("a loop over messages ends with the connection, after the last message", async () => {
  const { connection, socket } = await connected();
  const messages = connection.messages();
  socket.receive(named("a"));
  const waiting = connection.messages().next();
  socket.end(1001, "bye");
  const heard: string[] = [];
  for await (const message of messages) heard.push(nameOf(message));
  assert.deepEqual(heard, ["a"]);
  assert.equal((await waiting).done, true);
  // Also one that begins after the end.
  for await (const message of connection) assert.fail(nameOf(message));
});

test("messages after an ended loop go to the next one", async () => {
  const { connection, socket } = await connected();
  setImmediate(() => socket.receive(named("a")));
  for await (const message of connection) {
    assert.equal(nameOf(message), "a");
    break;
  }
  socket.receive(named("b"));
  assert.equal(nameOf((await connection.messages().next()).value), "b");
});

test("unread messages are bounded, and their loss is reported once", async () => {
  const size = encodeEnvelope(named("0")).length;
  for (const inboxLimits of [{ messagesMax: 3 }, { bytesMax: 3 * size }]) {
    const { connection, socket, problems } = await connected({ inboxLimits });
    for (let index = 0; index < 10; index++) socket.receive(named(String(index)));
    assert.equal(problems.length, 1);
    assert.ok(problems[0] instanceof InboxFullError);
    const messages = connection.messages();
    for (const name of ["0", "1", "2"]) assert.equal(nameOf((await messages.next()).value), name);
    // The same for a loop that is too slow.
    for (let index = 0; index < 10; index++) socket.receive(named(String(index)));
    assert.equal(problems.length, 2);
  }
});

test("malformed messages of other clients are reported, and the connection stays", async () => {
  const { connection, socket, problems } = await connected();
  socket.receive(hex("08"));
  socket.receive("text");
  // Well-formed, but larger than a relay accepts.
  socket.receive(envelope({ payload: { field: 10, bytes: new Uint8Array(131_072) } }));
  socket.receive({ ...denial("a", 1), payload: { field: 24, bytes: hex("0a") } });
  assert.equal(problems.length, 4);
  assert.ok(problems.every((problem) => problem instanceof WireError));
  socket.receive(named("a"));
  assert.equal(nameOf((await connection.messages().next()).value), "a");
});

test("by default problems are logged", async () => {
  const log: string[] = [];
  const trial = await attempt({ logger: (line) => log.push(line) });
  await admit(trial);
  trial.socket.receive("text");
  assert.deepEqual(log, ["Relay client: a frame is not binary (at byte 0)"]);
});

test("an error of the problem listener is uncaught, and the connection continues", async (context) => {
  const thrown = uncaught(context);
  const failure = new Error("of the listener");
  const { connection, socket } = await connected({
    onProblem: () => {
      throw failure;
    },
  });
  socket.receive("text");
  socket.receive(named("a"));
  assert.equal(nameOf((await connection.messages().next()).value), "a");
  assert.deepEqual(await thrown(1), [failure]);
});

test("an id in use is an error until its message is removed", async () => {
  const { connection, socket, clock } = await connected();
  await connection.send(named("a"));
  await assert.rejects(connection.send(named("a")), InvalidError);
  clock.advance(60_000);
  await connection.send(named("a"));
  assert.equal(socket.sent.length, 2);
});

test("closing twice closes once, with the same end for every listener", async () => {
  const { connection, socket, clock } = await connected();
  const ends: ConnectionEnd[] = [];
  connection.onClose((end) => ends.push(end));
  connection.onClose((end) => ends.push(end))();
  const [first, second] = [connection.close(), connection.close()];
  await assert.rejects(connection.send({ to: YOU }), ClosedError);
  const end = await first;
  assert.equal(await second, end);
  assert.equal(await connection.close(), end);
  assert.deepEqual(end, { code: 1000, reason: "", unsent: [], uncertain: [] });
  assert.deepEqual(ends, [end]);
  assert.equal(socket.closes, 1);
  assert.equal(clock.timers, 0);
  const late = await new Promise((resolve) => connection.onClose(resolve));
  assert.equal(late, end);
});

test("a close without a reply ends after two seconds", async () => {
  const { connection, socket, clock } = await connected();
  socket.repliesToClose = false;
  const closed = connection.close();
  clock.advance(1_999);
  assert.ok(!socket.terminated);
  clock.advance(1);
  assert.ok(socket.terminated);
  assert.equal((await closed).code, 1006);
  // Later events of the socket are ignored.
  socket.end(1000, "");
  socket.receive(named("a"));
});

test("an unexpected end is an error with the relay's reason", async () => {
  const { connection, socket } = await connected();
  await connection.send(named("a"));
  await connection.send(named("b"));
  socket.receive(denial("a", 1000));
  socket.fail(new Error("cable\ncut"));
  socket.end(1008, "go\naway");
  const { code, reason, error, unsent, uncertain } = await connection.closed;
  assert.deepEqual([code, reason], [1008, "go\naway"]);
  assert.equal(
    error?.message,
    "the connection is closed, code 1008: go\\u{a}away (cable\\u{a}cut)",
  );
  assert.deepEqual([unsent.map(nameOf), uncertain.map(nameOf)], [["a"], ["b"]]);
  await assert.rejects(connection.send({ to: YOU }), error);
});

test("a closing socket accepts no message, and loses none that is queued", async () => {
  const { connection, socket, clock } = await connected();
  await connection.send(named("a"));
  socket.receive(denial("a", 100));
  socket.readyState = 2;
  clock.advance(100);
  assert.equal(connection.waiting, 1);
  socket.end(1006, "");
  assert.deepEqual((await connection.closed).unsent.map(nameOf), ["a"]);

  const other = await connected();
  other.socket.readyState = 2;
  await assert.rejects(other.connection.send(named("b")), ClosedError);
});

test("aborting closes an open connection, and leaves no listener behind", async () => {
  const controller = new AbortController();
  const { connection, socket } = await connected({ signal: controller.signal });
  controller.abort();
  assert.equal((await connection.closed).code, 1000);
  assert.equal(socket.closes, 1);

  const later = new AbortController();
  const other = await connected({ signal: later.signal });
  // Its own listener; that of the handshake is gone.
  assert.equal(getEventListeners(later.signal, "abort").length, 1);
  await other.connection.close();
  assert.equal(getEventListeners(later.signal, "abort").length, 0);
  later.abort();
  assert.equal(other.socket.closes, 1);
});
