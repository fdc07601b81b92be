/**
 * SHA-256 (FIPS 180-4), at once: that of WebCrypto is asynchronous, and messages that are sent one
 * after another would overtake each other while their addresses are checked.
 */

/** The digest of up to 55 bytes, which are one block. */
export function sha256(bytes: Uint8Array): Uint8Array {
  if (bytes.length > ONE_BLOCK_MAX) throw new RangeError(`more than ${ONE_BLOCK_MAX} bytes`);
  const block = new DataView(new ArrayBuffer(64));
  bytes.forEach((byte, index) => block.setUint8(index, byte));
  block.setUint8(bytes.length, 0x80);
  block.setUint32(60, bytes.length * 8);
  const words = new Uint32Array(64);
  for (let index = 0; index < 16; index++) words[index] = block.getUint32(index * 4);
  for (let index = 16; index < 64; index++) {
    const [a, b] = [word(words, index - 15), word(words, index - 2)];
    const first = rotated(a, 7) ^ rotated(a, 18) ^ (a >>> 3);
    const second = rotated(b, 17) ^ rotated(b, 19) ^ (b >>> 10);
    words[index] = word(words, index - 16) + first + word(words, index - 7) + second;
  }
  const sums = Uint32Array.from(INITIAL);
  const state = mixed(words);
  state.forEach((value, index) => (sums[index] = word(sums, index) + value));
  const digest = new DataView(new ArrayBuffer(32));
  sums.forEach((value, index) => digest.setUint32(index * 4, value));
  return new Uint8Array(digest.buffer);
}

function mixed(words: Uint32Array): Uint32Array {
  const state = Uint32Array.from(INITIAL);
  for (let index = 0; index < 64; index++) {
    const [a, b, c, d, e, f, g, h] = state as unknown as Eight;
    const upper = rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25);
    const choice = (e & f) ^ (~e & g);
    const first = (h + upper + choice + word(ROUNDS, index) + word(words, index)) >>> 0;
    const lower = rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22);
    const majority = (a & b) ^ (a & c) ^ (b & c);
    state.set([first + lower + majority, a, b, c, d + first, e, f, g]);
  }
  return state;
}

type Eight = [number, number, number, number, number, number, number, number];

function rotated(value: number, bits: number): number {
  return (value >>> bits) | (value << (32 - bits));
}

function word(words: Uint32Array, index: number): number {
  return words[index] ?? 0;
}

const ONE_BLOCK_MAX = 55;
/** The first 32 bits of the fractional parts of the square roots of the first primes. */
// prettier-ignore
const INITIAL = Uint32Array.of(
  0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
);
/** The same of the cube roots. */
// prettier-ignore
const ROUNDS = Uint32Array.of(
  0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
  0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
  0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
  0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
  0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
  0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
  0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
  0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
);
