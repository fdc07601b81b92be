// Starts the dashboard: session, frame, and the page that the address names.

import "uplot/dist/uPlot.min.css";
import "./styles/base.css";
import "./styles/layout.css";
import "./styles/parts.css";
import "./styles/pages.css";

import { get, request, whenUnauthorized } from "./api.ts";
import { closeDialogs } from "./dialog.ts";
import { fill, h } from "./dom.ts";
import { Live } from "./live.ts";
import type { PageFactory } from "./page.ts";
import { audit } from "./pages/audit.ts";
import { denials } from "./pages/denials.ts";
import { keys } from "./pages/keys.ts";
import { loginPage } from "./pages/login.ts";
import { near } from "./pages/near.ts";
import { overview } from "./pages/overview.ts";
import { policy } from "./pages/policy.ts";
import { rules } from "./pages/rules.ts";
import { notice, problemBox } from "./parts.ts";
import { createShell } from "./shell.ts";
import type { Session } from "./types.ts";

const PAGES: Record<string, PageFactory> = {
  overview,
  rules,
  keys,
  near,
  denials,
  audit,
  policy,
};

let session: Session = {
  login: "needed",
  may_inspect: false,
  may_change: false,
  client: null,
  version: "",
  expires_in_ms: null,
};
let pageAbort = new AbortController();

const live = new Live(async () => {
  const fresh = await get<Session>("session");
  if (fresh.login === "needed") sessionEnded();
  return fresh.login !== "needed";
});
const shell = createShell(live, () => void logout(), new AbortController().signal);

/** The name of the page, its segments and its query. */
function address(): { name: string; path: string[]; query: URLSearchParams } {
  const [path = "", search = ""] = splitOnce(location.hash.replace(/^#\/?/, ""), "?");
  const [name = "", ...rest] = path
    .split("/")
    .filter((part) => part !== "")
    .map(decode);
  return { name: name || "overview", path: rest, query: new URLSearchParams(search) };
}

function splitOnce(text: string, at: string): [string, string] {
  const index = text.indexOf(at);
  return index < 0 ? [text, ""] : [text.slice(0, index), text.slice(index + 1)];
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function showPage(takeFocus: boolean): void {
  pageAbort.abort();
  pageAbort = new AbortController();
  closeDialogs();
  if (session.login === "needed") {
    showLogin();
    return;
  }
  const { name, path, query } = address();
  const context = {
    session,
    path,
    query,
    live,
    signal: pageAbort.signal,
    say: shell.say,
    reload: () => showPage(false),
  };
  const factory = PAGES[name];
  const page = factory
    ? factory(context)
    : { title: "Not found", element: notice("error", "There is no such page.") };
  document.title = `${page.title} · tidegate`;
  const heading = h("h1", { tabindex: -1 }, page.title);
  fill(shell.main, heading, page.element);
  shell.setPage(name);
  if (takeFocus) {
    heading.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }
}

function showLogin(): void {
  document.title = "Log in · tidegate";
  fill(
    shell.main,
    loginPage(async (token) => {
      session = await request<Session>("session", { method: "POST", body: { token } });
      begin(true);
    }),
  );
}

function sessionEnded(): void {
  if (session.login === "needed") return;
  live.stop();
  live.clear();
  session = { ...session, login: "needed", may_change: false, client: null };
  shell.setSession(session);
  showPage(false);
}

async function logout(): Promise<void> {
  try {
    await request("session", { method: "DELETE" });
    sessionEnded();
    shell.say("Logged out.");
  } catch (error) {
    shell.main.prepend(problemBox(error));
  }
}

function begin(takeFocus: boolean): void {
  shell.setSession(session);
  if (session.login !== "needed") live.start();
  showPage(takeFocus);
}

async function start(): Promise<void> {
  try {
    session = await get<Session>("session");
    begin(false);
  } catch (error) {
    fill(shell.main, h("h1", {}, "tidegate"), problemBox(error));
    window.setTimeout(() => void start(), 2000);
  }
}

// What could not be loaded while the daemon was away is loaded when it is back.
let wasGone = false;
live.subscribe(() => {
  const isBack = wasGone && live.connection === "live";
  wasGone = live.connection === "gone" || (wasGone && live.connection !== "live");
  if (isBack && shell.main.querySelector("[data-failed]")) showPage(false);
}, new AbortController().signal);

whenUnauthorized(sessionEnded);
window.addEventListener("hashchange", () => showPage(true));
void start();
