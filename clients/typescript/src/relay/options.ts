/** The options of a connection, and their defaults. */

import { systemClock, type Clock } from "../shared/clock.js";
import { consoleLogger, type Logger } from "../shared/log.js";
import { notify } from "../shared/notify.js";
import { InvalidError, type RelayError } from "./errors.js";
import type { RelayKey } from "./handshake.js";
import type { InboxLimits } from "./inbox.js";
import { positiveInteger, sendLimits, type SendLimits } from "./limits.js";
import type { OutgoingMessage, Denial } from "./rate-limited-handler.js";
import { webSocketConstructor, type WebSocketConstructor } from "./socket.js";

/** How to connect. Only `key` is required, and `WebSocket` where the platform has none. */
export interface ConnectOptions {
  /** The client's key: an Ed25519 key pair of WebCrypto, or the 32 bytes of a secret seed. */
  readonly key: RelayKey;
  /** The WebSocket constructor; default: that of the platform. Node has one from version 22 on. */
  readonly WebSocket?: WebSocketConstructor;
  /**
   * The expected host of the relay. Set it: a signature is valid only for the relay whose host it
   * contains. Without it, any host that the relay states is signed.
   */
  readonly relayHost?: string;
  /** Aborting it rejects a connection in progress, and closes an open one. */
  readonly signal?: AbortSignal;
  /** For connecting and authenticating in total; default: 10 s. */
  readonly timeoutMs?: number;
  /** The maximum difference of the relay's clock and ours; default: 30 s. */
  readonly clockSkewMs?: number;
  /** The largest envelope that the relay accepts; default: 65 536 bytes. */
  readonly envelopeBytesMax?: number;
  /** The maximum that the WebSocket may buffer; default: 4 MiB. */
  readonly bufferedBytesMax?: number;
  /** How much is stored, and how often a denied message is sent. */
  readonly sendLimits?: Partial<SendLimits>;
  /** How many received messages are stored until they are read; default: 1 024 and 4 MiB. */
  readonly inboxLimits?: Partial<InboxLimits>;
  /** Gets one line for each denial; default: `console.warn`. */
  readonly logger?: Logger;
  readonly clock?: Clock;
  /** The source of message ids; default: the platform's generator. */
  readonly randomBytes?: (count: number) => Uint8Array;
  /** The relay denied a message. */
  readonly onRateLimited?: (denial: Denial) => void;
  /** A message was denied as often as allowed, and will not be sent again. */
  readonly onGaveUp?: (message: OutgoingMessage) => void;
  /** A received message is invalid or was lost; default: a log line. */
  readonly onProblem?: (problem: RelayError) => void;
}

/** Validated options with their defaults. */
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

/** Throws an `InvalidError` that names an invalid option. */
export function checkOptions(options: ConnectOptions): Settings {
  const logger = options.logger ?? consoleLogger;
  const clockSkewMs = options.clockSkewMs ?? 30_000;
  if (!Number.isSafeInteger(clockSkewMs) || clockSkewMs < 0) {
    throw new InvalidError(`clockSkewMs is ${clockSkewMs}, not an integer of at least 0`);
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
    onProblem: (problem) => notify(() => onProblem(problem)),
  };
}

function randomBytes(count: number): Uint8Array {
  return crypto.getRandomValues(new Uint8Array(count));
}

const MIB_4 = 4 * 1_024 * 1_024;
