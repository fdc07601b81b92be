/** A client of the message relay. */

export { systemClock, type Clock } from "../shared/clock.js";
export { RelayConnection, type ConnectionEnd, type NewMessage, type Sent } from "./connection.js";
export {
  decodeEnvelope,
  encodeEnvelope,
  envelope,
  payload,
  readPayload,
  type Envelope,
  type Payload,
} from "./envelope.js";
export {
  AuthError,
  ClosedError,
  InboxFullError,
  InvalidError,
  QueueFullError,
  RefusedError,
  RelayError,
  TimeoutError,
  TooLargeError,
  WireError,
  type AuthFailure,
  type RelayErrorCode,
} from "./errors.js";
export type { RelayKey, WebCryptoKey } from "./handshake.js";
export type { InboxLimits, MessageListener } from "./inbox.js";
export { defaultSendLimits, type SendLimits } from "./limits.js";
export type { Logger } from "../shared/log.js";
export {
  authChallenge,
  authResponse,
  authResult,
  encrypted,
  MessageType,
  PayloadField,
  rateLimited,
  type AuthChallenge,
  type AuthResponse,
  type AuthResult,
  type EncryptedPayload,
  type PayloadKind,
  type RateLimited,
} from "./messages.js";
export type { ConnectOptions } from "./options.js";
export {
  RateLimitedHandler,
  type Leftovers,
  type OutgoingMessage,
  type RateLimitedHandlerOptions,
  type Denial,
  type DenialOutcome,
} from "./rate-limited-handler.js";
export type { WebSocketConstructor, WebSocketLike } from "./socket.js";
