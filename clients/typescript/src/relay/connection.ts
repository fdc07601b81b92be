/** A connection to a relay. */

import { notify } from "../shared/notify.js";
import { authenticate } from "./authenticate.js";
import {
  decodeEnvelope,
  encodeEnvelope,
  envelope,
  type Envelope,
  type Payload,
} from "./envelope.js";
import { ClosedError, InvalidError, QueueFullError, TooLargeError, WireError } from "./errors.js";
import { loadIdentity } from "./handshake.js";
import { checkAddress } from "./address.js";
import { untilAdmitted } from "./admission.js";
import { Inbox, type MessageListener } from "./inbox.js";
import { MessageType } from "./messages.js";
import { checkOptions, type ConnectOptions, type Settings } from "./options.js";
import { RateLimitedHandler } from "./rate-limited-handler.js";
import { closedError, relayUrl, Socket, type SocketEnd, type WebSocketLike } from "./socket.js";

/** A message to another client. */
export interface NewMessage {
  readonly to: string;
  /** One of `MessageType`; default: `MESSAGE`. */
  readonly type?: number;
  readonly payload?: Payload;
}

/** The result of `send`. */
export interface Sent {
  readonly messageId: Uint8Array;
  /** Whether it was passed to the socket, or is queued. */
  readonly state: "sent" | "queued";
}

/** How a connection ended, and what was not delivered. */
export interface ConnectionEnd {
  /** The close code of the WebSocket; 1006 when there was no close frame. */
  readonly code: number;
  readonly reason: string;
  /** Why, unless `close` was called. */
  readonly error?: ClosedError;
  /** Messages that were denied or never sent, in order. Pass them to `send` of a new connection. */
  readonly unsent: readonly Envelope[];
  /** Messages that were sent recently and not denied so far. Most of them will have arrived. */
  readonly uncertain: readonly Envelope[];
}

/** An authenticated connection to a relay, which backs off by itself when the relay denies. */
export class RelayConnection implements AsyncIterable<Envelope> {
  /** The address of this connection. */
  readonly address: string;
  /** Resolves when the connection has ended, for whatever reason. It never rejects. */
  readonly closed: Promise<ConnectionEnd>;
  readonly #socket: Socket;
  readonly #settings: Settings;
  readonly #handler: RateLimitedHandler;
  readonly #inbox: Inbox;
  #closing = false;
  #end: ConnectionEnd | undefined;
  #resolveClosed: (end: ConnectionEnd) => void = () => {};

  /**
   * Connects to `ws(s)://host/ws` and authenticates.
   *
   * Where the relay refuses the attempt and says how long to wait (429 or 503 with `Retry-After`),
   * it waits as long and tries again, if that is within `timeoutMs`.
   *
   * Rejects with an `AuthError`, a `TimeoutError`, a `RefusedError`, a `ClosedError`, an
   * `InvalidError` for an invalid URL or invalid options, or the reason of the signal.
   */
  static async connect(url: string | URL, options: ConnectOptions): Promise<RelayConnection> {
    const settings = checkOptions(options);
    const address = relayUrl(url);
    options.signal?.throwIfAborted();
    const identity = await loadIdentity(options.key);
    options.signal?.throwIfAborted();
    return untilAdmitted(settings, (timeoutMs) => {
      const socket = new Socket(open(settings, address), settings.clock);
      const made = (assigned: string): RelayConnection =>
        new RelayConnection(assigned, socket, settings);
      return authenticate(socket, identity, settings, made, timeoutMs);
    });
  }

  private constructor(address: string, socket: Socket, settings: Settings) {
    const { options, onProblem } = settings;
    this.address = address;
    this.#socket = socket;
    this.#settings = settings;
    this.closed = new Promise((resolve) => (this.#resolveClosed = resolve));
    this.#inbox = new Inbox(settings.inboxLimits, onProblem);
    this.#handler = new RateLimitedHandler({
      transmit: (bytes) => socket.send(bytes),
      limits: settings.sendLimits,
      logger: settings.logger,
      clock: settings.clock,
      ...(options.onRateLimited && { onRateLimited: options.onRateLimited }),
      ...(options.onGaveUp && { onGaveUp: options.onGaveUp }),
      // The socket is closing, so its end is near. The message is in `unsent`.
      onTransmitError: () => {},
    });
    socket.listener = {
      frame: (bytes) => this.#receive(bytes),
      badFrame: (error) => onProblem(error),
      end: (end) => this.#ended(end),
    };
    options.signal?.addEventListener("abort", this.#abort, { once: true });
  }

  /** How many messages are queued: the relay denied some, or too many were sent recently. */
  get waiting(): number {
    return this.#handler.waiting;
  }

  /** Whether new messages are queued instead of sent at once. */
  get backingOff(): boolean {
    return this.#handler.backingOff;
  }

  /**
   * Sends a message, or queues it while the sender backs off.
   *
   * An id of 16 random bytes, the time and the own address are filled in where they are missing.
   * The relay acknowledges nothing, so this resolves as soon as the message is accepted. Rejects
   * with a `TooLargeError`, a `QueueFullError`, a `ClosedError`, or an `InvalidError` for what the
   * relay would drop silently, and for an id that is in use; then it is not accepted.
   */
  async send(message: NewMessage | Envelope): Promise<Sent> {
    if (this.#closing || this.#end !== undefined) throw this.#closedError();
    const filled = this.#fill("to" in message ? fromNew(message) : message);
    const bytes = encodeEnvelope(filled);
    const { envelopeBytesMax, bufferedBytesMax } = this.#settings;
    if (bytes.length > envelopeBytesMax) throw new TooLargeError(bytes.length, envelopeBytesMax);
    if (this.#socket.bufferedBytes + bytes.length > bufferedBytesMax) {
      const buffered = `${this.#socket.bufferedBytes} bytes are buffered`;
      throw new QueueFullError(`${buffered}, the maximum is ${bufferedBytesMax}`, this.waiting);
    }
    return { messageId: filled.messageId, state: this.#handler.send(filled.messageId, bytes) };
  }

  /**
   * Calls back for every message except the relay's own denials, until the returned function is
   * called. Messages that came before the first listener come first.
   */
  onMessage(listener: MessageListener): () => void {
    return this.#inbox.listen((message) => listener(message));
  }

  /** Calls back when the connection has ended, or at once if it already has. */
  onClose(listener: (end: ConnectionEnd) => void): () => void {
    let listening = true;
    void this.closed.then((end) => {
      if (listening) notify(() => listener(end));
    });
    return () => void (listening = false);
  }

  /** All messages from now on, until the connection ends. */
  messages(): AsyncIterableIterator<Envelope> {
    return this.#inbox.iterate();
  }

  [Symbol.asyncIterator](): AsyncIterator<Envelope> {
    return this.messages();
  }

  /**
   * Resolves as soon as nothing is queued; rejects with a `ClosedError` if the connection ends
   * first. The last sent message may still be denied after it.
   */
  flush(): Promise<void> {
    return this.#handler.idle();
  }

  /** Closes the connection, at once for the sender. May be called any number of times. */
  close(): Promise<ConnectionEnd> {
    this.#closing = true;
    this.#socket.close(1000, "");
    return this.closed;
  }

  #receive(bytes: Uint8Array): void {
    try {
      const received = decodeEnvelope(bytes);
      if (!this.#handler.handle(received)) this.#inbox.deliver(received, bytes.length);
    } catch (error) {
      // Not the end of the connection: the relay forwards what other clients send, and none of them
      // should be able to end this one.
      if (error instanceof WireError) this.#settings.onProblem(error);
      else throw error;
    }
  }

  #fill(message: Envelope): Envelope {
    const { clock, randomBytes } = this.#settings;
    const now = BigInt(Math.trunc(clock.wallMs()));
    const hasId = message.messageId.length > 0;
    if (message.fromAddress !== "" && message.fromAddress !== this.address) {
      throw new InvalidError(
        `the envelope is from ${message.fromAddress}, not from ${this.address}`,
      );
    }
    checkRecipient(message);
    return {
      ...message,
      fromAddress: this.address,
      messageId: hasId ? message.messageId.slice() : randomBytes(MESSAGE_ID_BYTES),
      timestampMs: message.timestampMs === 0n ? now : message.timestampMs,
    };
  }

  readonly #abort = (): void => void this.close();

  #ended(end: SocketEnd): void {
    this.#settings.options.signal?.removeEventListener("abort", this.#abort);
    const { unsent, uncertain } = this.#handler.stop();
    this.#end = {
      code: end.code,
      reason: end.reason,
      ...(!this.#closing && { error: closedError(end) }),
      unsent: unsent.map(({ bytes }) => decodeEnvelope(bytes)),
      uncertain: uncertain.map(({ bytes }) => decodeEnvelope(bytes)),
    };
    this.#inbox.end();
    this.#resolveClosed(this.#end);
  }

  #closedError(): ClosedError {
    return (
      this.#end?.error ?? new ClosedError("the connection has been closed", this.#end?.code ?? 1000)
    );
  }
}

function open({ WebSocket }: Settings, address: string): WebSocketLike {
  try {
    return new WebSocket(address);
  } catch (cause) {
    throw new InvalidError(`the platform cannot open a WebSocket to ${address}`, { cause });
  }
}

/** Throws an `InvalidError` for a recipient that the relay cannot have: it would drop the message. */
function checkRecipient({ toAddress, type }: Envelope): void {
  // Some envelopes are for the relay itself.
  if (toAddress !== "" || type === MessageType.MESSAGE) checkAddress(toAddress);
}

function fromNew({ to, type, payload }: NewMessage): Envelope {
  return envelope({
    toAddress: to,
    type: type ?? MessageType.MESSAGE,
    ...(payload !== undefined && { payload }),
  });
}

const MESSAGE_ID_BYTES = 16;
