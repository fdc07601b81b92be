/**
 * The errors of the relay client. Every one of them is a `RelayError` with a `code` to switch on;
 * an abort is the exception: it is the reason of the caller's signal.
 */

/** The kind of error, for programs. The message is for people and may change. */
export type RelayErrorCode =
  | "malformed"
  | "invalid"
  | "too-large"
  | "queue-full"
  | "inbox-full"
  | "auth"
  | "timeout"
  | "refused"
  | "closed";

/** The base of all errors of this client. */
export abstract class RelayError extends Error {
  abstract readonly code: RelayErrorCode;

  constructor(message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** Malformed bytes from outside. */
export class WireError extends RelayError {
  readonly code = "malformed";
  /** The offset at which it was detected. */
  readonly offset: number;

  constructor(message: string, offset: number) {
    super(`${message} (at byte ${offset})`);
    this.offset = offset;
  }
}

/** An invalid value from the caller: a key, an address, a number. */
export class InvalidError extends RelayError {
  readonly code = "invalid";
}

/** An envelope that the relay would charge and then drop. It has not been sent. */
export class TooLargeError extends RelayError {
  readonly code = "too-large";
  readonly bytes: number;
  readonly bytesMax: number;

  constructor(bytes: number, bytesMax: number) {
    super(`the envelope has ${bytes} bytes, the relay accepts ${bytesMax}`);
    this.bytes = bytes;
    this.bytesMax = bytesMax;
  }
}

/** Too much is queued. This message was not accepted. */
export class QueueFullError extends RelayError {
  readonly code = "queue-full";
  /** How many messages are queued. */
  readonly waiting: number;

  constructor(message: string, waiting: number) {
    super(message);
    this.waiting = waiting;
  }
}

/** A received message that was not read in time. It is lost. */
export class InboxFullError extends RelayError {
  readonly code = "inbox-full";
}

/** Why the handshake failed. */
export type AuthFailure =
  /** The relay sent something other than a challenge or a result. */
  | "unexpected"
  /** The challenge has an unknown version, a nonce of another length, or no host. */
  | "bad-challenge"
  /** The challenge is over, or not yet valid. */
  | "expired"
  /** The challenge has another host than expected: it was not signed. */
  | "wrong-host"
  /** The relay rejected the client; the message has its reason. */
  | "rejected";

/** A failed handshake. */
export class AuthError extends RelayError {
  readonly code = "auth";
  readonly failure: AuthFailure;

  constructor(failure: AuthFailure, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.failure = failure;
  }
}

/** The relay did not respond in time. */
export class TimeoutError extends RelayError {
  readonly code = "timeout";
}

/**
 * The relay responded to the attempt to connect with an HTTP status, such as 429: too many attempts
 * of this address. Only WebSockets that show the response have it; those of browsers do not.
 */
export class RefusedError extends RelayError {
  readonly code = "refused";
  readonly status: number;
  /** How long the relay says to wait before the next attempt, if it says so. */
  readonly retryAfterMs: number | undefined;

  constructor(status: number, retryAfterMs: number | undefined) {
    const wait = retryAfterMs === undefined ? "" : `; retry after ${retryAfterMs} ms`;
    super(`the relay refused the connection with status ${status}${wait}`);
    this.status = status;
    this.retryAfterMs = retryAfterMs;
  }
}

/** The connection is closed, or could not be opened. */
export class ClosedError extends RelayError {
  readonly code = "closed";
  /** The close code of the WebSocket; 1006 when there was no close frame. */
  readonly closeCode: number;

  constructor(message: string, closeCode: number, options?: { cause?: unknown }) {
    super(message, options);
    this.closeCode = closeCode;
  }
}
