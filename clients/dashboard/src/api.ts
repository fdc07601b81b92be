// Requests to the admin listener.

import type { Problem } from "./types.ts";

/** A response that is not a success, or none at all (`status` 0). */
export class ApiError extends Error {
  readonly status: number;
  readonly problem: Problem;

  constructor(problem: Problem) {
    super(problem.detail || problem.title);
    this.status = problem.status;
    this.problem = problem;
  }
}

export interface RequestOptions {
  method?: string;
  /** Sent as JSON; a text is sent as TOML. */
  body?: unknown;
  signal?: AbortSignal | undefined;
}

let onUnauthorized: () => void = () => undefined;

/** Sets what happens when a session has ended. */
export function whenUnauthorized(act: () => void): void {
  onUnauthorized = act;
}

async function problemOf(response: Response): Promise<Problem> {
  const fallback: Problem = {
    title: response.statusText || "Error",
    status: response.status,
    detail: `The daemon responded with ${response.status}.`,
  };
  try {
    const body = (await response.json()) as Partial<Problem>;
    return { ...fallback, ...body, status: response.status };
  } catch {
    return fallback;
  }
}

/** Sends a request to `/admin/v1/…`. */
export async function request<T>(path: string, options: RequestOptions = {}): Promise<T> {
  const { method = "GET", body, signal } = options;
  const init: RequestInit = { method, cache: "no-store", credentials: "same-origin" };
  if (signal) init.signal = signal;
  if (body !== undefined) {
    const isText = typeof body === "string";
    init.body = isText ? body : JSON.stringify(body);
    init.headers = { "Content-Type": isText ? "application/toml" : "application/json" };
  }
  let response: Response;
  try {
    response = await fetch(`/admin/v1/${path}`, init);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError({ title: "No response", status: 0, detail: "" });
  }
  if (!response.ok) {
    const problem = await problemOf(response);
    if (response.status === 401 && path !== "session") onUnauthorized();
    throw new ApiError(problem);
  }
  return (await response.json().catch(() => ({}))) as T;
}

export const get = <T>(path: string, signal?: AbortSignal): Promise<T> =>
  request<T>(path, { signal });
export const post = <T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> =>
  request<T>(path, { method: "POST", body, signal });

/** A path with encoded segments. */
export const segments = (...parts: readonly string[]): string =>
  parts.map((part) => encodeURIComponent(part)).join("/");

/** A query of what is not empty. */
export function query(values: Record<string, string | number | null | undefined>): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== null && value !== undefined && value !== "") search.set(name, String(value));
  }
  // A plus sign is a space in forms only.
  const text = search.toString().replaceAll("+", "%20");
  return text ? `?${text}` : "";
}

export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}
