/** The client against the real relay. Every wait is for an event of the relay. */

import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";

import {
  AuthError,
  ClosedError,
  decodeEnvelope,
  encodeEnvelope,
  encrypted,
  envelope,
  InvalidError,
  payload,
  readPayload,
  RefusedError,
  RelayConnection,
  TooLargeError,
  type ConnectOptions,
  type Envelope,
  type Payload,
} from "tidegate/relay";
import { WebSocket } from "ws";

import { fromUtf8, toHex, utf8 } from "./support/bytes.js";
import { startProxy } from "./support/proxy.js";
import { HOST, startRelay } from "./support/relay-process.js";

const SEEDS = { ada: new Uint8Array(32).fill(1), bob: new Uint8Array(32).fill(2) };
const REASON = "per-connection rate limit exceeded";
/** Fast, so that the real waiting is short. */
const FAST = { PINCH_RELAY_RATE_LIMIT: "50", PINCH_RELAY_RATE_BURST: "5" };
const UNLIMITED = { PINCH_RELAY_RATE_LIMIT: "100000", PINCH_RELAY_RATE_BURST: "100000" };

async function connect(
  context: TestContext,
  url: string,
  key: ConnectOptions["key"],
  options: Partial<ConnectOptions> = {},
): Promise<RelayConnection> {
  const connection = await RelayConnection.connect(url, {
    key,
    WebSocket,
    relayHost: HOST,
    onProblem: (problem) => assert.fail(problem),
    ...options,
  });
  context.after(() => connection.close());
  return connection;
}

function secret(text: string): Payload {
  const nothing = new Uint8Array(0);
  return payload(encrypted, { nonce: nothing, ciphertext: utf8(text), senderPublicKey: nothing });
}

function textOf(message: Envelope): string {
  return fromUtf8(readPayload(message, encrypted)?.ciphertext ?? utf8("not encrypted"));
}

/** The texts of the next messages. */
async function take(messages: AsyncIterator<Envelope>, count: number): Promise<string[]> {
  const texts: string[] = [];
  while (texts.length < count) {
    const next = await messages.next();
    if (next.done) throw new Error(`the connection ended after ${texts.length} of ${count}`);
    texts.push(textOf(next.value));
  }
  return texts;
}

/** An event that happens once, and can be awaited. */
function signal(): { give: () => void; wait: Promise<void>; readonly given: boolean } {
  let given = false;
  let resolve = (): void => {};
  const wait = new Promise<void>((done) => (resolve = done));
  const give = (): void => {
    given = true;
    resolve();
  };
  return {
    give,
    wait,
    get given() {
      return given;
    },
  };
}

/** Watches the order in which messages with numbers as ids are sent. */
class Wire {
  /** Messages that were sent although an earlier one was known to be queued. */
  readonly overtaking: number[] = [];
  readonly WebSocket: typeof WebSocket;
  readonly #waiting = new Set<number>();

  constructor() {
    const sent = (data: Uint8Array): void => this.#sent(decodeEnvelope(data).messageId);
    this.WebSocket = class extends WebSocket {
      override send(data: Buffer): void {
        sent(new Uint8Array(data));
        super.send(data);
      }
    };
  }

  denied(messageId: Uint8Array): void {
    this.#waiting.add(Number(fromUtf8(messageId)));
  }

  #sent(messageId: Uint8Array): void {
    const number = Number(fromUtf8(messageId));
    this.#waiting.delete(number);
    for (const earlier of this.#waiting) {
      if (earlier < number) return void this.overtaking.push(number);
    }
  }
}

function numbers(from: number, below: number): string[] {
  return Array.from({ length: below - from }, (_, index) => String(from + index));
}

function byNumber(a: string, b: string): number {
  return Number(a) - Number(b);
}

test("two clients exchange messages", async (context) => {
  const relay = await startRelay(context);
  const pair = (await crypto.subtle.generateKey({ name: "Ed25519" }, false, [
    "sign",
    "verify",
  ])) as Exclude<ConnectOptions["key"], Uint8Array>;
  const ada = await connect(context, relay.url, SEEDS.ada);
  const bob = await connect(context, relay.url, pair);
  assert.match(ada.address, /^pinch:[1-9A-HJ-NP-Za-km-z]+@localhost$/);
  assert.notEqual(ada.address, bob.address);

  const sent = await ada.send({ to: bob.address, payload: secret("hello, Bob") });
  const { value: received } = await bob.messages().next();
  assert.equal(textOf(received), "hello, Bob");
  assert.equal(received.fromAddress, ada.address);
  assert.equal(received.toAddress, bob.address);
  assert.equal(received.messageId.length, 16);
  assert.equal(toHex(received.messageId), toHex(sent.messageId));
  assert.ok(Math.abs(Number(received.timestampMs) - Date.now()) < 60_000);

  await bob.send({ to: ada.address, payload: secret("hello, Ada") });
  const heard = await new Promise<Envelope>((resolve) => ada.onMessage(resolve));
  assert.equal(textOf(heard), "hello, Ada");
});

test("the address of a seed is always the same", async (context) => {
  const relay = await startRelay(context);
  const first = await connect(context, relay.url, SEEDS.ada);
  await first.close();
  const second = await connect(context, relay.url, SEEDS.ada);
  assert.equal(second.address, first.address);
});

test("burst + 1 is denied and logged, and all messages arrive once and in order", async (context) => {
  const relay = await startRelay(context, FAST);
  const log: string[] = [];
  const denial = signal();
  const ada = await connect(context, relay.url, SEEDS.ada, {
    logger: (line) => log.push(line),
    onRateLimited: denial.give,
  });
  const bob = await connect(context, relay.url, SEEDS.bob);
  const messages = bob.messages();
  const send = (text: string) => ada.send({ to: bob.address, payload: secret(text) });

  for (const text of numbers(0, 5)) assert.equal((await send(text)).state, "sent");
  const received = await take(messages, 5);
  // One by one from here, each time until it has arrived or is denied: so nothing is in flight
  // behind a denied message, however slow this machine is.
  let next = 5;
  while (!denial.given) {
    await send(String(next++));
    const arrival = take(messages, 1).then((texts) => received.push(...texts));
    await Promise.race([arrival, denial.wait]);
    // Twenty more, while it backs off.
    if (denial.given) {
      const taken = await Promise.all(numbers(next, next + 20).map(send));
      assert.ok(taken.every(({ state }) => state === "queued"));
    }
    await arrival;
  }
  received.push(...(await take(messages, next + 20 - received.length)));
  assert.deepEqual(received, numbers(0, next + 20));
  const line = new RegExp(`^Rate limited by relay: ${REASON}\\. Retry after [1-9]\\d*ms$`);
  assert.match(log[0] ?? "", line);

  // Nothing arrives twice: what ada sends now is the next that bob gets.
  await ada.flush();
  await send("last");
  assert.deepEqual(await take(messages, 1), ["last"]);
});

test("forty messages at once, eight times the burst, all arrive once", async (context) => {
  const relay = await startRelay(context, FAST);
  let denied = 0;
  const ada = await connect(context, relay.url, SEEDS.ada, {
    logger: () => {},
    onRateLimited: () => denied++,
  });
  const bob = await connect(context, relay.url, SEEDS.bob);
  const messages = bob.messages();
  await Promise.all(
    numbers(0, 40).map((text) => ada.send({ to: bob.address, payload: secret(text) })),
  );
  const received = await take(messages, 40);
  assert.deepEqual(received.toSorted(byNumber), numbers(0, 40));
  assert.ok(denied > 0);
  await ada.flush();
  await ada.send({ to: bob.address, payload: secret("last") });
  assert.deepEqual(await take(messages, 1), ["last"]);
});

test("unsent messages of an ended connection can be passed to the next one", async (context) => {
  const relay = await startRelay(context, { PINCH_RELAY_RATE_LIMIT: "0.001" });
  const denial = signal();
  const first = await connect(context, relay.url, SEEDS.ada, {
    logger: () => {},
    onRateLimited: denial.give,
  });
  const bob = await connect(context, relay.url, SEEDS.bob);
  const messages = bob.messages();
  for (const text of numbers(0, 11)) await first.send({ to: bob.address, payload: secret(text) });
  await denial.wait;
  for (const text of numbers(11, 14)) await first.send({ to: bob.address, payload: secret(text) });
  assert.equal(first.waiting, 4);
  const { unsent, uncertain, error } = await first.close();
  assert.equal(error, undefined);
  assert.deepEqual(unsent.map(textOf), numbers(10, 14));
  assert.deepEqual(uncertain.map(textOf), numbers(0, 10));

  const second = await connect(context, relay.url, SEEDS.ada);
  for (const message of unsent) await second.send(message);
  assert.deepEqual(await take(messages, 14), numbers(0, 14));
});

test("a key pair whose halves do not match is rejected", async (context) => {
  const relay = await startRelay(context);
  const make = async () =>
    (await crypto.subtle.generateKey({ name: "Ed25519" }, false, ["sign", "verify"])) as Exclude<
      ConnectOptions["key"],
      Uint8Array
    >;
  const [mine, yours] = [await make(), await make()];
  const key = { publicKey: yours.publicKey, privateKey: mine.privateKey };
  await assert.rejects(connect(context, relay.url, key), (error) => {
    assert.ok(error instanceof AuthError);
    assert.equal(error.failure, "rejected");
    assert.equal(error.message, "the relay refused: authentication failed");
    return true;
  });
});

test("a relay with another host gets no signature", async (context) => {
  const relay = await startRelay(context);
  await assert.rejects(
    connect(context, relay.url, SEEDS.ada, { relayHost: "relay.example" }),
    (error) => error instanceof AuthError && error.failure === "wrong-host",
  );
});

test("an address connects once at a time", async (context) => {
  const relay = await startRelay(context);
  const first = await connect(context, relay.url, SEEDS.ada);
  await assert.rejects(connect(context, relay.url, SEEDS.ada), (error) => {
    assert.ok(error instanceof AuthError);
    assert.equal(error.failure, "rejected");
    assert.equal(error.message, "the relay refused: address already connected");
    return true;
  });
  // The first one is not affected.
  await first.send({ to: first.address, payload: secret("still here") });
  assert.deepEqual(await take(first.messages(), 1), ["still here"]);
});

test("a killed relay ends the connection, and queued messages are returned", async (context) => {
  const relay = await startRelay(context, { PINCH_RELAY_RATE_LIMIT: "0.001" });
  const denial = signal();
  const ada = await connect(context, relay.url, SEEDS.ada, {
    logger: () => {},
    onRateLimited: denial.give,
  });
  for (const text of numbers(0, 11)) await ada.send({ to: ada.address, payload: secret(text) });
  await denial.wait;
  const closed = new Promise((resolve) => ada.onClose(resolve));
  const texts: string[] = [];
  const reading = (async () => {
    for await (const message of ada) texts.push(textOf(message));
  })();
  await relay.end("SIGKILL");
  const end = await ada.closed;
  assert.equal(await closed, end);
  assert.equal(end.code, 1006);
  assert.ok(end.error instanceof ClosedError);
  assert.deepEqual(end.unsent.map(textOf), ["10"]);
  await reading;
  await assert.rejects(ada.send({ to: ada.address }), ClosedError);
  await assert.rejects(ada.flush(), ClosedError);
  assert.equal(await ada.close(), end);
});

test("a relay that shuts down closes with a reason", async (context) => {
  const relay = await startRelay(context);
  const ada = await connect(context, relay.url, SEEDS.ada);
  await relay.end("SIGTERM");
  const { code, error } = await ada.closed;
  assert.equal(code, 1001);
  assert.ok(error instanceof ClosedError);
});

test("an envelope that the relay would drop is not sent", async (context) => {
  const relay = await startRelay(context, UNLIMITED);
  const ada = await connect(context, relay.url, SEEDS.ada, { envelopeBytesMax: 100_000 });
  const strict = await connect(context, relay.url, SEEDS.bob);
  const large = secret("x".repeat(65_536));
  await assert.rejects(strict.send({ to: ada.address, payload: large }), (error) => {
    assert.ok(error instanceof TooLargeError);
    assert.equal(error.bytesMax, 65_536);
    return true;
  });
  // A larger envelope that is sent all the same is dropped, and the connection stays.
  await ada.send({ to: strict.address, payload: large });
  await ada.send({ to: strict.address, payload: secret("small") });
  assert.deepEqual(await take(strict.messages(), 1), ["small"]);
  // The largest that fits arrives.
  const messageId = new Uint8Array(16).fill(7);
  const filled = {
    toAddress: strict.address,
    fromAddress: ada.address,
    timestampMs: 1n,
    messageId,
  };
  const sized = (length: number) => envelope({ ...filled, payload: secret("x".repeat(length)) });
  const overhead = encodeEnvelope(sized(65_000)).length - 65_000;
  const largest = sized(65_536 - overhead);
  assert.equal(encodeEnvelope(largest).length, 65_536);
  await ada.send(largest);
  assert.equal((await take(strict.messages(), 1))[0]?.length, 65_536 - overhead);
});

test("nothing listens: no connection", async (context) => {
  const relay = await startRelay(context);
  await relay.end("SIGKILL");
  await assert.rejects(connect(context, relay.url, SEEDS.ada), (error) => {
    assert.ok(error instanceof ClosedError);
    assert.match(error.message, /ECONNREFUSED/);
    return true;
  });
});

test("no WebSocket behind the address: no connection", async (context) => {
  const relay = await startRelay(context);
  const url = relay.url.replace(/ws$/, "health");
  await assert.rejects(connect(context, url, SEEDS.ada), (error) => {
    assert.ok(error instanceof RefusedError);
    assert.equal(error.status, 200);
    return true;
  });
});

test("2500 messages at once, far above the burst: all arrive once, and none is sent before its turn", async (context) => {
  const relay = await startRelay(context, {
    PINCH_RELAY_RATE_LIMIT: "500",
    PINCH_RELAY_RATE_BURST: "10",
  });
  const outcomes = new Set<string>();
  const denied = new Set<string>();
  const wire = new Wire();
  const ada = await connect(context, relay.url, SEEDS.ada, {
    WebSocket: wire.WebSocket,
    logger: () => {},
    onRateLimited: ({ outcome, messageId }) => {
      outcomes.add(outcome);
      denied.add(fromUtf8(messageId));
      wire.denied(messageId);
    },
  });
  const bob = await connect(context, relay.url, SEEDS.bob);
  const messages = bob.messages();
  for (const text of numbers(0, 2_500)) {
    const messageId = utf8(text);
    await ada.send(envelope({ toAddress: bob.address, messageId, payload: secret(text) }));
  }
  const received = await take(messages, 2_500);
  assert.deepEqual(received.toSorted(byNumber), numbers(0, 2_500));
  assert.deepEqual([...outcomes], ["queued"]);
  // Messages in flight together may be reordered; queued ones are not, nor those never denied.
  assert.deepEqual(wire.overtaking, []);
  const direct = received.filter((text) => !denied.has(text));
  assert.deepEqual(direct, direct.toSorted(byNumber));
  await ada.flush();
  const last = { toAddress: bob.address, messageId: utf8("2500"), payload: secret("last") };
  await ada.send(envelope(last));
  assert.deepEqual(await take(messages, 1), ["last"]);
});

test("with a round trip of 300 ms a sender uses nine tenths of what the relay grants", async (context) => {
  const [perSecond, burst, count] = [20, 10, 110];
  const relay = await startRelay(context, {
    PINCH_RELAY_RATE_LIMIT: String(perSecond),
    PINCH_RELAY_RATE_BURST: String(burst),
  });
  const far = await startProxy(context, relay.url, { oneWayMs: 150 });
  const bob = await connect(context, relay.url, SEEDS.bob);
  const ada = await connect(context, far, SEEDS.ada, { logger: () => {} });
  const inbox = bob.messages();
  for (const text of numbers(0, count)) await ada.send({ to: bob.address, payload: secret(text) });
  const received = await take(inbox, 1);
  const sinceMs = performance.now();
  received.push(...(await take(inbox, count - 1)));
  const tookMs = performance.now() - sinceMs;
  assert.deepEqual(received, numbers(0, count));
  const share = (((count - burst) / perSecond) * 1_000) / tookMs;
  context.diagnostic(`${share.toFixed(3)} of what the relay grants`);
  assert.ok(share >= 0.9, `${share} of what the relay grants, in ${tookMs} ms`);
});

test("a refused attempt to connect has the wait that the relay's guard requests", async (context) => {
  const relay = await startRelay(context, { PINCH_RELAY_GUARD: "on" });
  const attempt = (): Promise<RelayConnection> =>
    connect(context, relay.url, crypto.getRandomValues(new Uint8Array(32)), { timeoutMs: 900 });
  for (let number = 0; number < 20; number++) await (await attempt()).close();
  await assert.rejects(attempt(), (error) => {
    assert.ok(error instanceof RefusedError, String(error));
    assert.deepEqual([error.code, error.status], ["refused", 429]);
    const waitMs = error.retryAfterMs ?? 0;
    assert.ok(waitMs >= 1_000 && waitMs <= 6_000, `${waitMs} ms`);
    return true;
  });
});

test("a refused attempt is repeated after the wait, and not before", async (context) => {
  const relay = await startRelay(context);
  const refusals = [
    "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nConnection: close\r\n\r\n",
    "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nConnection: close\r\n\r\n",
  ];
  const url = await startProxy(context, relay.url, { refusals });
  const log: string[] = [];
  const sinceMs = performance.now();
  const ada = await connect(context, url, SEEDS.ada, { logger: (line) => log.push(line) });
  assert.ok(performance.now() - sinceMs >= 1_000);
  assert.deepEqual(log, [
    "Rate limited by relay: connection refused. Retry after 1000ms",
    "Rate limited by relay: connection refused. Retry after 0ms",
  ]);
  assert.equal(ada.waiting, 0);
});

test("a refusal without a wait, or with one beyond the time-out, ends the attempt", async (context) => {
  const relay = await startRelay(context);
  for (const [head, status, waitMs] of [
    ["429 Too Many Requests\r\nRetry-After: 60", 429, 60_000],
    ["429 Too Many Requests", 429, undefined],
    ["429 Too Many Requests\r\nRetry-After: soon", 429, undefined],
    ["401 Unauthorized\r\nRetry-After: 1", 401, 1_000],
  ] as const) {
    const refusal = `HTTP/1.1 ${head}\r\nConnection: close\r\n\r\n`;
    const url = await startProxy(context, relay.url, { refusals: [refusal] });
    await assert.rejects(connect(context, url, SEEDS.ada), (error) => {
      assert.ok(error instanceof RefusedError, String(error));
      assert.deepEqual([error.status, error.retryAfterMs], [status, waitMs]);
      return true;
    });
  }
});

test("what is not the address of a client is an error, and nothing is sent", async (context) => {
  const relay = await startRelay(context);
  const ada = await connect(context, relay.url, SEEDS.ada);
  const typo = ada.address.replace(/.@/, (end) => (end === "x@" ? "y@" : "x@"));
  for (const [to, problem] of [
    ["", "pinch:"],
    ["bob", "pinch:"],
    ["pinch:bob", "host"],
    [`${ada.address.split("@")[0]}@`, "host"],
    ["pinch:0OIl@localhost", "base58"],
    ["pinch:abc@localhost", "32 bytes"],
    [`pinch:${"z".repeat(100_000)}@localhost`, "32 bytes"],
    [typo, "typing error"],
  ] as const) {
    await assert.rejects(ada.send({ to, payload: secret("x") }), (error) => {
      assert.ok(error instanceof InvalidError, String(error));
      assert.ok(error.message.includes(problem), error.message);
      return true;
    });
  }
  const inbox = ada.messages();
  await ada.send({ to: ada.address, payload: secret("hello") });
  assert.deepEqual(await take(inbox, 1), ["hello"]);
});
