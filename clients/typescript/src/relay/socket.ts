/** The WebSocket of a connection: bytes in, bytes out, and one end. */

import type { Clock } from "../shared/clock.js";
import { printable } from "../shared/log.js";
import { ClosedError, InvalidError, RefusedError, WireError } from "./errors.js";

/**
 * The part of a WebSocket that this client uses: that of browsers, and that of the package `ws`.
 */
export interface WebSocketLike {
  binaryType: string;
  readonly readyState: number;
  readonly bufferedAmount: number;
  send(data: ArrayBuffer): void;
  close(code?: number, reason?: string): void;
  addEventListener(type: "message", listener: (event: { readonly data: unknown }) => void): void;
  addEventListener(
    type: "close",
    listener: (event: { readonly code: number; readonly reason: string }) => void,
  ): void;
  addEventListener(type: "error", listener: (event: object) => void): void;
}

/** Creates a WebSocket that connects to the address at once. */
export type WebSocketConstructor = new (url: string) => WebSocketLike;

/** How a connection ended. */
export interface SocketEnd {
  /** The close code; 1006 when there was no close frame. */
  readonly code: number;
  readonly reason: string;
  /** The error that the WebSocket reported before it ended, if any. */
  readonly error?: unknown;
  /** The relay's response to the upgrade, if it was not accepted and the platform shows it. */
  readonly refusal?: Refusal;
}

/** A response to the upgrade other than an acceptance. */
export interface Refusal {
  readonly status: number;
  readonly retryAfterMs: number | undefined;
}

/** The listener of a socket. */
export interface SocketListener {
  /** A binary frame. */
  frame(bytes: Uint8Array): void;
  /** A frame that is not binary, or too large. */
  badFrame(error: WireError): void;
  /** The end. Nothing is called after it. */
  end(end: SocketEnd): void;
}

/** A WebSocket with exactly one end, even if the peer never replies to a close. */
export class Socket {
  listener: SocketListener | undefined;
  readonly #webSocket: WebSocketLike;
  readonly #clock: Clock;
  #closing: (() => void) | undefined;
  #error: unknown;
  #refusal: Refusal | undefined;
  #ended = false;

  constructor(webSocket: WebSocketLike, clock: Clock) {
    this.#webSocket = webSocket;
    this.#clock = clock;
    webSocket.binaryType = "arraybuffer";
    onUnexpectedResponse(webSocket, (status, header) => {
      this.#refusal = { status, retryAfterMs: retryAfterMs(header, clock.wallMs()) };
    });
    webSocket.addEventListener("message", (event) => this.#message(event.data));
    webSocket.addEventListener("error", (event) => (this.#error ??= errorOf(event)));
    webSocket.addEventListener("close", ({ code, reason }) => this.#end(code, reason));
  }

  /** Bytes that the WebSocket has not passed to the network yet. */
  get bufferedBytes(): number {
    return this.#webSocket.bufferedAmount;
  }

  /** Throws a `ClosedError` unless the WebSocket is open: a closed one would lose them silently. */
  send(bytes: Uint8Array): void {
    if (this.#ended || this.#webSocket.readyState !== OPEN) {
      throw new ClosedError("the connection is closed", ABNORMAL);
    }
    this.#webSocket.send(new Uint8Array(bytes).buffer);
  }

  /** Begins to close; the end comes within two seconds. */
  close(code: number, reason: string): void {
    if (this.#ended || this.#closing !== undefined) return;
    this.#closing = this.#clock.after(CLOSE_MS_MAX, () => {
      terminate(this.#webSocket);
      this.#end(ABNORMAL, "the peer did not reply to the close");
    });
    this.#webSocket.close(code, reason);
  }

  #message(data: unknown): void {
    if (this.#ended) return;
    if (!(data instanceof ArrayBuffer)) {
      this.listener?.badFrame(new WireError("a frame is not binary", 0));
    } else if (data.byteLength > FRAME_BYTES_MAX) {
      const message = `a frame has ${data.byteLength} bytes, the maximum is ${FRAME_BYTES_MAX}`;
      this.listener?.badFrame(new WireError(message, FRAME_BYTES_MAX));
    } else {
      this.listener?.frame(new Uint8Array(data));
    }
  }

  #end(code: number, reason: string): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#closing?.();
    this.listener?.end({
      code,
      reason,
      ...(this.#error !== undefined && { error: this.#error }),
      ...(this.#refusal !== undefined && { refusal: this.#refusal }),
    });
  }
}

/** The given constructor, or that of the platform. */
export function webSocketConstructor(
  given: WebSocketConstructor | undefined,
): WebSocketConstructor {
  const found: WebSocketConstructor | undefined = given ?? globalThis.WebSocket;
  if (found === undefined) {
    throw new InvalidError(
      "this platform has no WebSocket: pass one as `WebSocket`, e.g. that of the package `ws`",
    );
  }
  return found;
}

/** The address of a relay's WebSocket: `ws://host` means `ws://host/ws`. */
export function relayUrl(given: string | URL): string {
  let url: URL;
  try {
    url = new URL(given);
  } catch {
    throw new InvalidError(`\`${printable(String(given))}\` is not a URL`);
  }
  if (url.protocol !== "ws:" && url.protocol !== "wss:") {
    throw new InvalidError(`a relay's URL begins with ws: or wss:, not ${printable(url.protocol)}`);
  }
  if (url.pathname === "/") url.pathname = "/ws";
  url.hash = "";
  return url.href;
}

/** The error of a connection that could not be made. */
export function connectError(end: SocketEnd): RefusedError | ClosedError {
  const { refusal } = end;
  return refusal ? new RefusedError(refusal.status, refusal.retryAfterMs) : closedError(end);
}

/** The milliseconds in a `Retry-After`: seconds, or a date. Rounded up, and never negative. */
export function retryAfterMs(header: string | undefined, nowMs: number): number | undefined {
  const text = header?.trim() ?? "";
  if (/^[0-9]{1,15}$/.test(text)) return Number(text) * 1_000;
  // Anything that begins with a digit would be read as a date, such as `1.5`.
  const atMs = /^[A-Z]/.test(text) ? Date.parse(text) : NaN;
  return Number.isNaN(atMs) ? undefined : Math.max(0, Math.ceil(atMs - nowMs));
}

/** The error of an unexpected end. */
export function closedError(end: SocketEnd): ClosedError {
  const reason = end.reason === "" ? "" : `: ${printable(end.reason)}`;
  const cause = end.error instanceof Error ? ` (${printable(end.error.message)})` : "";
  const message = `the connection is closed, code ${end.code}${reason}${cause}`;
  return new ClosedError(message, end.code, { cause: end.error });
}

/** The package `ws` puts the error into the event; browsers hide it. */
function errorOf(event: object): unknown {
  return "error" in event ? event.error : event;
}

/** The package `ws` has an event for it, and leaves the connection to its listener. */
function onUnexpectedResponse(
  webSocket: WebSocketLike,
  listener: (status: number, retryAfter: string | undefined) => void,
): void {
  if (!("on" in webSocket) || typeof webSocket.on !== "function") return;
  webSocket.on("unexpected-response", (_request: unknown, response: IncomingResponse) => {
    const header = response.headers["retry-after"];
    listener(response.statusCode ?? 0, typeof header === "string" ? header : undefined);
    terminate(webSocket);
  });
}

/** The part of Node's response that is used. */
interface IncomingResponse {
  readonly statusCode?: number;
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
}

function terminate(webSocket: WebSocketLike): void {
  // Only the package `ws` has it. Browsers abandon a close by themselves.
  if ("terminate" in webSocket && typeof webSocket.terminate === "function") webSocket.terminate();
}

const OPEN = 1;
const ABNORMAL = 1006;
const CLOSE_MS_MAX = 2_000;
/** The maximum that a relay accepts from a socket, and so the most that it can forward. */
const FRAME_BYTES_MAX = 131_072;
