/** Addresses of clients: `pinch:` base58(key ‖ checksum) `@` host. */

import { printable } from "../shared/log.js";
import { InvalidError } from "./errors.js";
import { sha256 } from "./sha256.js";

/** Throws an `InvalidError` for a text that is not the address of a client. */
export function checkAddress(address: string): void {
  const problem = problemOf(address);
  if (problem === undefined) return;
  throw new InvalidError(`\`${printable(address)}\` is not an address: ${problem}`);
}

function problemOf(address: string): string | undefined {
  const at = address.indexOf("@");
  if (!address.startsWith(SCHEME)) return `it does not begin with \`${SCHEME}\``;
  if (at < 0 || at === address.length - 1) return "it has no host after an `@`";
  const bytes = fromBase58(address.slice(SCHEME.length, at));
  if (bytes === undefined) return "it has characters that are not base58";
  if (bytes.length !== KEY_BYTES + CHECKSUM_BYTES) return "its key does not have 32 bytes";
  const checksum = sha256(bytes.subarray(0, KEY_BYTES)).subarray(0, CHECKSUM_BYTES);
  const given = bytes.subarray(KEY_BYTES);
  if (checksum.some((byte, index) => byte !== given[index])) {
    return "its checksum is wrong, so it has a typing error";
  }
  return undefined;
}

/** The bytes of a number in base 58; each leading `1` is a zero byte. */
function fromBase58(text: string): Uint8Array | undefined {
  // More digits than any address has would only take time.
  if (text.length > DIGITS_MAX) return new Uint8Array();
  const bytes: number[] = [];
  for (const digit of text) {
    let carry = ALPHABET.indexOf(digit);
    if (carry < 0) return undefined;
    for (let index = 0; index < bytes.length; index++) {
      carry += (bytes[index] ?? 0) * 58;
      bytes[index] = carry & 0xff;
      carry >>= 8;
    }
    for (; carry > 0; carry >>= 8) bytes.push(carry & 0xff);
  }
  const zeros = /^1*/.exec(text)?.[0].length ?? 0;
  return Uint8Array.from([...new Array<number>(zeros).fill(0), ...bytes.reverse()]);
}

const SCHEME = "pinch:";
const KEY_BYTES = 32;
const CHECKSUM_BYTES = 4;
const DIGITS_MAX = 64;
/** Digits and letters without `0`, `O`, `I` and `l`. */
const ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
