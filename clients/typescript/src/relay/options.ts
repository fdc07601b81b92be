/** What a connection can be told, and its defaults. */

import { systemClock, type Clock } from "../shared/clock.js";
import { consoleLogger, type Logger } from "../shared/log.js";
import { tell } from "../shared/tell.js";
import { InvalidError, type RelayError } from "./errors.js";
import type { RelayKey } from "./handshake.js";
import type { InboxLimits } from "./inbox.js";
import { positiveInteger, sendLimits, type SendLimits } from "./limits.js";
import type { OutgoingMessage, Refusal } from "./rate-limited-handler.js";
import { webSocketConstructor, type WebSocketConstructor } from "./socket.js";

/** How to connect. Only `key` is required, and `WebSocket` where the platform has none. */
export interface ConnectOptions {
  /** Who connects: an Ed25519 key pair of WebCrypto, or the 32 bytes of a secret seed. */
  readonly key: RelayKey;
  /** What makes WebSockets; default: that of the platform. Node has one from version 22 on. */
  readonly WebSocket?: WebSocketConstructor;
  /**
   * The host that the relay must call itself. Give it: a signature is worth something only to the relay
   * that it names. Without it, whatever the relay calls itself is signed.
   */
  readonly relayHost?: string;
  /** Aborting it rejects a connection that is being made, and closes one that is up. */
  readonly signal?: AbortSignal;
  /** For connecting and authenticating together; default: 10 s. */
  readonly timeoutMs?: number;
  /** How far the relay's clock may be from ours; default: 30 s. */
  readonly clockSkewMs?: number;
  /** The largest envelope that the relay takes; default: 65 536 bytes. */
  readonly envelopeBytesMax?: number;
  /** How much the WebSocket may hold that the network has not taken yet; default: 4 MiB. */
  readonly bufferedBytesMax?: number;
  /** How much is kept, and how often a refused message is sent. */
  readonly sendLimits?: Partial<SendLimits>;
  /** How many received messages are kept until they are fetched; default: 1 024 and 4 MiB. */
  readonly inboxLimits?: Partial<InboxLimits>;
  /** Gets one line for each refusal; default: `console.warn`. */
  readonly logger?: Logger;
  readonly clock?: Clock;
  /** Where message ids come from; default: the platform's generator. */
  readonly randomBytes?: (count: number) => Uint8Array;
  /** The relay refused a message. */
  readonly onRateLimited?: (refusal: Refusal) => void;
  /** A message was refused as often as is allowed, and will not be sent again. */
  readonly onGaveUp?: (message: OutgoingMessage) => void;
  /** Something was received that nobody can use, or was lost; default: a line in the log. */
  readonly onProblem?: (problem: RelayError) => void;
}

/** Options with their defaults, checked. */
export interface Settings {
  readonly options: ConnectOptions;
  readonly WebSocket: WebSocketConstructor;
  readonly timeoutMs: number;
  readonly clockSkewMs: number;
  readonly envelopeBytesMax: number;
  readonly bufferedBytesMax: number;
  readonly sendLimits: SendLimits;
  readonly inboxLimits: InboxLimits;
  readonly logger: Logger;
  readonly clock: Clock;
  readonly randomBytes: (count: number) => Uint8Array;
  readonly onProblem: (problem: RelayError) => void;
}

/** Throws an `InvalidError` that names what is wrong. */
export function checkOptions(options: ConnectOptions): Settings {
  const logger = options.logger ?? consoleLogger;
  const clockSkewMs = options.clockSkewMs ?? 30_000;
  if (!Number.isSafeInteger(clockSkewMs) || clockSkewMs < 0) {
    throw new InvalidError(`clockSkewMs is ${clockSkewMs}, not an integer from 0 on`);
  }
  const onProblem = options.onProblem ?? ((problem) => logger(`Relay client: ${problem.message}`));
  const inbox = { messagesMax: 1_024, bytesMax: MIB_4, ...options.inboxLimits };
  return {
    options,
    WebSocket: webSocketConstructor(options.WebSocket),
    timeoutMs: positiveInteger("timeoutMs", options.timeoutMs ?? 10_000),
    clockSkewMs,
    envelopeBytesMax: positiveInteger("envelopeBytesMax", options.envelopeBytesMax ?? 65_536),
    bufferedBytesMax: positiveInteger("bufferedBytesMax", options.bufferedBytesMax ?? MIB_4),
    sendLimits: sendLimits(options.sendLimits),
    inboxLimits: {
      messagesMax: positiveInteger("inboxLimits.messagesMax", inbox.messagesMax),
      bytesMax: positiveInteger("inboxLimits.bytesMax", inbox.bytesMax),
    },
    logger,
    clock: options.clock ?? systemClock,
    randomBytes: options.randomBytes ?? randomBytes,
    onProblem: (problem) => tell(() => onProblem(problem)),
  };
}

function randomBytes(count: number): Uint8Array {
  return crypto.getRandomValues(new Uint8Array(count));
}

const MIB_4 = 4 * 1_024 * 1_024;
