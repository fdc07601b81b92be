// What a page gets, and what it is.

import type { Live } from "./live.ts";
import type { Session } from "./types.ts";

export interface Context {
  readonly session: Session;
  /** The decoded segments after the name of the page. */
  readonly path: readonly string[];
  readonly query: URLSearchParams;
  readonly live: Live;
  /** Aborted when another page is shown. */
  readonly signal: AbortSignal;
  /** Reports a success, also to screen readers. */
  readonly say: (text: string) => void;
  /** Shows this page again, with fresh data. */
  readonly reload: () => void;
}

export interface Page {
  readonly title: string;
  readonly element: HTMLElement;
}

export type PageFactory = (context: Context) => Page;

export const go = (hash: string): void => void (location.hash = hash);
