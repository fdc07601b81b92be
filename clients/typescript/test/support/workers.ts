import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, relative } from "node:path";
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";

import type { KVNamespace } from "@cloudflare/workers-types";

/**
 * The part of miniflare that the tests use; its own types need packages that it does not include.
 */
interface Miniflare {
  readonly ready: Promise<URL>;
  getKVNamespace(binding: string): Promise<KVNamespace>;
  dispose(): Promise<void>;
}

/** A function of the test that simulates another service. */
type Service = (request: Request) => Response | Promise<Response>;

interface WorkerOptions {
  /** The Worker's program: a file in the folder of the built tests, or the text itself. */
  readonly program: string | { readonly text: string };
  readonly variables?: Readonly<Record<string, string | number>>;
  readonly services?: Readonly<Record<string, Service>>;
  /** The handler of the Worker's fetches; default: none are allowed. */
  readonly outbound?: Service;
  /** Durable Objects: the binding of each class. */
  readonly durableObjects?: Readonly<Record<string, string>>;
  /** Whether `RATE_LIMIT_KV` is bound; default: yes. */
  readonly hasStore?: boolean;
}

/** A Worker in the real runtime. */
export interface Worker {
  readonly namespace: KVNamespace;
  /** The next line that the Worker writes to its console, or has written. They come in order. */
  nextLine(): Promise<string>;
  fetch(path: string, request?: RequestInit): Promise<Response>;
}

/** Starts a Worker in workerd with a KV namespace. It ends with the test. */
export async function startWorker(context: TestContext, options: WorkerOptions): Promise<Worker> {
  const { Miniflare } = createRequire(import.meta.url)("miniflare") as {
    Miniflare: new (options: object) => Miniflare;
  };
  const log = new Lines();
  const noFetch: Service = ({ url }) => new Response(`no service at ${url}`, { status: 502 });
  const worker = new Miniflare({
    // Nothing is fetched from the platform.
    cf: false,
    compatibilityDate: "2026-03-01",
    modules: modules(options.program),
    bindings: options.variables ?? {},
    kvNamespaces: options.hasStore === false ? ["OTHER"] : [BINDING],
    durableObjects: options.durableObjects ?? {},
    serviceBindings: options.services ?? {},
    outboundService: options.outbound ?? noFetch,
    handleStructuredLogs: ({ message }: { message: string }) => log.push(message),
  });
  context.after(() => worker.dispose());
  const url = await worker.ready;
  return {
    namespace: await worker.getKVNamespace(options.hasStore === false ? "OTHER" : BINDING),
    nextLine: () => log.next(),
    fetch: (path, request) => fetch(new URL(path, url), request),
  };
}

/** Lines that arrive at any time. */
class Lines {
  readonly #lines: string[] = [];
  readonly #waiting: ((line: string) => void)[] = [];

  push(line: string): void {
    const taker = this.#waiting.shift();
    if (taker === undefined) this.#lines.push(line);
    else taker(line);
  }

  next(): Promise<string> {
    const line = this.#lines.shift();
    if (line !== undefined) return Promise.resolve(line);
    return new Promise((taker) => this.#waiting.push(taker));
  }
}

/** The program and the whole package, under their import names. */
function modules(program: WorkerOptions["program"]): object[] {
  const contents = typeof program === "string" ? builtText(program) : program.text;
  const built = fileURLToPath(new URL("../dist/", BUILT_TESTS));
  const files = readdirSync(built, { recursive: true, encoding: "utf8" });
  const parts = ["core", "kv", "relay"];
  return [
    module("worker.js", contents),
    ...parts.map((part) => module(`tidegate/${part}`, `export * from "../dist/${part}/index.js";`)),
    ...files
      .filter((file) => file.endsWith(".js"))
      .map((file) =>
        module(`dist/${relative(".", file)}`, readFileSync(join(built, file), "utf8")),
      ),
  ];
}

function builtText(file: string): string {
  return readFileSync(fileURLToPath(new URL(file, BUILT_TESTS)), "utf8");
}

function module(path: string, contents: string): object {
  return { type: "ESModule", path, contents };
}

const BINDING = "RATE_LIMIT_KV";
const BUILT_TESTS = new URL("../", import.meta.url);
