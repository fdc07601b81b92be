import {
  authChallenge,
  authResult,
  decodeEnvelope,
  encodeEnvelope,
  envelope,
  MessageType,
  payload,
  type AuthChallenge,
  type AuthResult,
  type Envelope,
  type WebSocketConstructor,
  type WebSocketLike,
} from "tidegate/relay";

type Listener = (event: never) => void;

/** A WebSocket whose peer is the test. */
export class FakeWebSocket implements WebSocketLike {
  binaryType = "blob";
  readyState = 1;
  bufferedAmount = 0;
  readonly url: string;
  readonly sent: Uint8Array[] = [];
  closes = 0;
  terminated = false;
  /** Called with every frame that the client sends. */
  onSend: (bytes: Uint8Array) => void = () => {};
  /** Whether a close gets its reply. */
  repliesToClose = true;
  readonly #listeners: [string, Listener][] = [];

  constructor(url: string) {
    this.url = url;
  }

  addEventListener(type: string, listener: Listener): void {
    this.#listeners.push([type, listener]);
  }

  send(data: ArrayBuffer): void {
    const bytes = new Uint8Array(data);
    this.sent.push(bytes);
    this.onSend(bytes);
  }

  close(): void {
    this.closes++;
    this.readyState = 2;
    if (this.repliesToClose) queueMicrotask(() => this.end(1000, ""));
  }

  terminate(): void {
    this.terminated = true;
  }

  receive(frame: Envelope | Uint8Array | string): void {
    if (typeof frame === "string") return this.#emit("message", { data: frame });
    const bytes = frame instanceof Uint8Array ? frame : encodeEnvelope(frame);
    this.#emit("message", { data: new Uint8Array(bytes).buffer });
  }

  end(code: number, reason: string): void {
    this.readyState = 3;
    this.#emit("close", { code, reason });
  }

  fail(error: Error): void {
    this.#emit("error", { error });
  }

  #emit(type: string, event: object): void {
    for (const [wanted, listener] of this.#listeners) {
      if (wanted === type) listener(event as never);
    }
  }
}

/** A constructor of sockets, and the socket that it creates. */
export function fakeWebSocket(): { WebSocket: WebSocketConstructor; made: Promise<FakeWebSocket> } {
  let resolve: (socket: FakeWebSocket) => void = () => {};
  const made = new Promise<FakeWebSocket>((done) => (resolve = done));
  class WebSocket extends FakeWebSocket {
    constructor(url: string) {
      super(url);
      // Not before the client has added its listeners.
      queueMicrotask(() => resolve(this));
    }
  }
  return { WebSocket, made };
}

/** The time of the fake clock's start. */
export const NOW_MS = 1_700_000_000_000n;

/** A valid challenge, with the given fields. */
export function challenge(given: Partial<AuthChallenge> = {}): Envelope {
  const value = {
    version: 1,
    nonce: new Uint8Array(32).fill(9),
    issuedAtMs: NOW_MS,
    expiresAtMs: NOW_MS + 10_000n,
    relayHost: "relay.example",
    ...given,
  };
  return envelope({ type: MessageType.AUTH_CHALLENGE, payload: payload(authChallenge, value) });
}

/** A successful result, with the given fields. */
export function result(given: Partial<AuthResult> = {}): Envelope {
  const value = { success: true, errorMessage: "", assignedAddress: "pinch:me@h", ...given };
  return envelope({ type: MessageType.AUTH_RESULT, payload: payload(authResult, value) });
}

/** The next frame that the client sends. */
export function nextSent(socket: FakeWebSocket): Promise<Envelope> {
  return new Promise((resolve) => {
    socket.onSend = (bytes) => resolve(decodeEnvelope(bytes));
  });
}
