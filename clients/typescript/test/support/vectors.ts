import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import type { Decision } from "tidegate/core";

/** One case of the test vectors that the Rust core writes. */
export interface Case {
  readonly name: string;
  readonly limit: Given;
  readonly steps: readonly VectorStep[];
}

/** Numbers as strings of digits. */
export type Given = Readonly<Record<string, string | boolean>>;

export interface VectorStep {
  readonly at_ns: string;
  readonly op:
    "check" | "check_postpaid" | "peek" | "hold" | "commit" | "cancel" | "refund" | "edit";
  readonly cost?: string;
  readonly units?: string;
  readonly actual?: string;
  readonly limit?: Given;
  readonly expect?: Readonly<Record<string, string | boolean | null>>;
}

/** All cases of one kind of limit. */
export function vectors(kind: string): readonly Case[] {
  // A copy, so that the package can be tested alone. A test of the Rust core compares them.
  const path = `../../test/vectors/${kind}.json`;
  const text = readFileSync(fileURLToPath(new URL(path, import.meta.url)), "utf8");
  return JSON.parse(text) as Case[];
}

/** A required field. */
export function amount(given: object, name: string): bigint {
  const value = (given as Record<string, unknown>)[name];
  if (typeof value !== "string") throw new Error(`no ${name} in ${JSON.stringify(given)}`);
  return BigInt(value);
}

/** A decision in the form of the vectors. */
export function spelled({ allowed, remaining, wait, resetNs }: Decision): object {
  return {
    allowed,
    remaining: remaining.toString(),
    wait: typeof wait === "bigint" ? `${wait}ns` : wait,
    reset_ns: resetNs === null ? null : resetNs.toString(),
  };
}
