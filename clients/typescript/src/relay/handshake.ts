/** Authentication with a relay. */

import { printable } from "../shared/log.js";
import { decodeEnvelope, encodeEnvelope, envelope, payload, readPayload } from "./envelope.js";
import { AuthError, InvalidError, RelayError } from "./errors.js";
import {
  authChallenge,
  authResponse,
  authResult,
  MessageType,
  type AuthChallenge,
} from "./messages.js";
import { concat } from "./wire.js";

/** A key of WebCrypto, under any name of the platform's types. */
export type WebCryptoKey = Parameters<typeof globalThis.crypto.subtle.sign>[1];

/** The client's key: an Ed25519 key pair of WebCrypto, or the 32 bytes of a secret seed. */
export type RelayKey =
  { readonly publicKey: WebCryptoKey; readonly privateKey: WebCryptoKey } | Uint8Array;

/** A loaded key pair. */
export interface Identity {
  /** 32 bytes. */
  readonly publicKey: Uint8Array;
  readonly privateKey: WebCryptoKey;
}

/** The expectations on a challenge. */
export interface Expectations {
  /** The expected host of the relay. */
  readonly relayHost?: string;
  readonly nowMs: number;
  /** The maximum difference of the relay's clock and ours. */
  readonly clockSkewMs: number;
}

/** Throws an `InvalidError` for a seed of another length, or a key of another kind. */
export async function loadIdentity(key: RelayKey): Promise<Identity> {
  try {
    return key instanceof Uint8Array ? await fromSeed(key) : await fromPair(key);
  } catch (cause) {
    if (cause instanceof RelayError) throw cause;
    throw new InvalidError("the key cannot sign with Ed25519", { cause });
  }
}

/**
 * The challenge in the relay's first frame. Throws an `AuthError` for one that must not be signed.
 */
export function readChallenge(frame: Uint8Array, expected: Expectations): AuthChallenge {
  const challenge = read(frame, MessageType.AUTH_CHALLENGE, authChallenge);
  const { version, nonce, issuedAtMs, expiresAtMs, relayHost } = challenge;
  if (version !== VERSION) {
    throw new AuthError("bad-challenge", `the challenge has version ${version}, not ${VERSION}`);
  }
  if (nonce.length !== NONCE_BYTES) {
    throw new AuthError("bad-challenge", `its nonce has ${nonce.length} bytes, not ${NONCE_BYTES}`);
  }
  if (relayHost === "" || relayHost.includes("\0")) {
    throw new AuthError("bad-challenge", "the challenge has no valid relay host");
  }
  if (expected.relayHost !== undefined && relayHost !== expected.relayHost) {
    const names = `\`${printable(relayHost)}\`, not \`${printable(expected.relayHost)}\``;
    throw new AuthError("wrong-host", `the relay's host is ${names}`);
  }
  const nowMs = BigInt(Math.trunc(expected.nowMs));
  const skewMs = BigInt(expected.clockSkewMs);
  if (expiresAtMs <= issuedAtMs || nowMs >= expiresAtMs + skewMs || issuedAtMs > nowMs + skewMs) {
    const span = `valid from ${issuedAtMs} to ${expiresAtMs}, now is ${nowMs}`;
    throw new AuthError("expired", `the challenge is not valid now: ${span} (ms since 1970)`);
  }
  return challenge;
}

/** The frame that responds to a challenge. */
export async function signedResponse(
  challenge: AuthChallenge,
  identity: Identity,
): Promise<Uint8Array> {
  const text = new TextEncoder();
  const signed = concat([
    text.encode(`${CONTEXT}\0`),
    text.encode(`${challenge.relayHost}\0`),
    challenge.nonce,
  ]);
  const signature = await crypto.subtle.sign(ALGORITHM, identity.privateKey, copy(signed));
  const response = {
    version: VERSION,
    publicKey: identity.publicKey,
    signature: new Uint8Array(signature),
    nonce: challenge.nonce,
  };
  return encodeEnvelope(
    envelope({ type: MessageType.AUTH_RESPONSE, payload: payload(authResponse, response) }),
  );
}

/** The assigned address. Throws an `AuthError` with the relay's reason if there is none. */
export function readResult(frame: Uint8Array): string {
  const result = read(frame, MessageType.AUTH_RESULT, authResult);
  if (!result.success) {
    const reason = printable(result.errorMessage) || "no reason given";
    throw new AuthError("rejected", `the relay refused: ${reason}`);
  }
  if (result.assignedAddress === "") {
    throw new AuthError("unexpected", "the relay accepted, but assigned no address");
  }
  return result.assignedAddress;
}

function read<T>(frame: Uint8Array, type: number, kind: Parameters<typeof readPayload<T>>[1]): T {
  try {
    const received = decodeEnvelope(frame);
    const value = readPayload(received, kind);
    if (received.version === VERSION && received.type === type && value !== undefined) return value;
    const what = `version ${received.version}, type ${received.type}`;
    throw new AuthError("unexpected", `unexpected envelope during the handshake: ${what}`);
  } catch (cause) {
    if (cause instanceof AuthError) throw cause;
    throw new AuthError("unexpected", "the relay sent a malformed message", { cause });
  }
}

async function fromSeed(seed: Uint8Array): Promise<Identity> {
  if (seed.length !== SEED_BYTES) {
    throw new InvalidError(`a seed has ${SEED_BYTES} bytes, not ${seed.length}`);
  }
  const pkcs8 = copy(concat([PKCS8_HEAD, seed]));
  const exportable = await crypto.subtle.importKey("pkcs8", pkcs8, ALGORITHM, true, ["sign"]);
  const { x } = await crypto.subtle.exportKey("jwk", exportable);
  const privateKey = await crypto.subtle.importKey("pkcs8", pkcs8, ALGORITHM, false, ["sign"]);
  pkcs8.fill(0);
  return { publicKey: fromBase64Url(x ?? ""), privateKey };
}

async function fromPair(pair: Exclude<RelayKey, Uint8Array>): Promise<Identity> {
  const publicKey = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
  for (const key of [pair.publicKey, pair.privateKey]) {
    const { name } = key.algorithm;
    if (name !== ALGORITHM.name) throw new InvalidError(`the key is for ${name}, not Ed25519`);
  }
  return { publicKey, privateKey: pair.privateKey };
}

function fromBase64Url(text: string): Uint8Array {
  const plain = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(plain, (character) => character.charCodeAt(0));
}

/** WebCrypto's types accept nothing that could be shared memory. */
function copy(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  return new Uint8Array(bytes);
}

const CONTEXT = "pinch-auth-v1";
const VERSION = 1;
const NONCE_BYTES = 32;
const SEED_BYTES = 32;
const ALGORITHM = { name: "Ed25519" };
/** The prefix of the seed in the PKCS #8 form of an Ed25519 key (RFC 8410). */
const PKCS8_HEAD = Uint8Array.of(
  ...[0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06],
  ...[0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20],
);
