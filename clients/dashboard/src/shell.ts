// The frame around every page: navigation, state of the connection, theme, login.

import { button, fill, h, setText } from "./dom.ts";
import type { Live } from "./live.ts";
import { currentTheme, setTheme, type Theme } from "./theme.ts";
import type { Session } from "./types.ts";

export const NAVIGATION: readonly (readonly [string, string])[] = [
  ["overview", "Overview"],
  ["rules", "Rules"],
  ["keys", "Keys"],
  ["near", "Near the limit"],
  ["denials", "Denials"],
  ["audit", "Audit"],
  ["policy", "Policy"],
];

const SAID_MS = 6000;

const BANNERS = {
  gone: "The daemon does not respond. What is shown is from before; reconnecting…",
  refused: "The daemon sends no live numbers; too many dashboards may be open. Trying again…",
};

export interface Shell {
  readonly main: HTMLElement;
  say(text: string): void;
  setSession(session: Session): void;
  setPage(name: string): void;
}

export function createShell(live: Live, logout: () => void, signal: AbortSignal): Shell {
  const main = h("main", { id: "main", tabindex: -1 });
  const status = h("div", { class: "toast", role: "status", "aria-live": "polite" });
  const banner = h("div", { class: "banner", role: "alert" });
  const client = h("div", { class: "client" });
  const connection = h("span", { class: "connection" });
  const nav = h("nav", { "aria-label": "Pages", id: "nav" });
  const list = h("ul");
  nav.append(list);
  const menu = h(
    "button",
    { type: "button", class: "button menu", "aria-expanded": "false", "aria-controls": "nav" },
    "Menu",
  );
  const openMenu = (isOpen: boolean): void => {
    menu.setAttribute("aria-expanded", String(isOpen));
    side.classList.toggle("open", isOpen);
  };
  menu.addEventListener("click", () => openMenu(menu.getAttribute("aria-expanded") !== "true"));
  const version = h("span", { class: "muted version" });
  const skip = h("a", { class: "skip", href: "#main" }, "Skip to the content");
  skip.addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  const side = h(
    "header",
    { class: "side" },
    h(
      "div",
      { class: "brand" },
      h("a", { href: "#/overview", class: "logo" }, h("span", { class: "logo-mark" }), "tidegate"),
      version,
      menu,
    ),
    nav,
    h("div", { class: "side-foot" }, connection, client, themePicker()),
  );
  document.body.replaceChildren(skip, side, h("div", { class: "content" }, banner, main), status);

  const showConnection = (): void => {
    const state = live.connection;
    const text = {
      connecting: "connecting",
      live: "live",
      refused: "no live data",
      gone: "no connection",
    }[state];
    connection.className = `connection ${state}`;
    setText(connection, text);
    const isShown = state === "gone" || state === "refused";
    setText(banner, isShown ? BANNERS[state] : "");
    banner.hidden = !isShown;
  };
  live.subscribe(showConnection, signal);
  showConnection();

  let said: number | undefined;
  return {
    main,
    say(text) {
      window.clearTimeout(said);
      setText(status, text);
      status.classList.add("shown");
      said = window.setTimeout(() => {
        status.classList.remove("shown");
        setText(status, "");
      }, SAID_MS);
    },
    setSession(session) {
      setText(version, session.version);
      const isOut = session.login === "needed";
      nav.hidden = isOut;
      menu.hidden = isOut;
      connection.hidden = isOut;
      fill(
        client,
        session.login === "done" && [
          h("span", { class: "client-name" }, session.client),
          button("Log out", logout, "small"),
        ],
      );
    },
    setPage(name) {
      openMenu(false);
      fill(
        list,
        NAVIGATION.map(([id, label]) =>
          h(
            "li",
            {},
            h("a", { href: `#/${id}`, "aria-current": id === name ? "page" : undefined }, label),
          ),
        ),
      );
    },
  };
}

function themePicker(): HTMLElement {
  const select = h(
    "select",
    {
      class: "theme",
      "aria-label": "Colours",
      on: { change: () => setTheme(select.value as Theme) },
    },
    h("option", { value: "system" }, "System colours"),
    h("option", { value: "light" }, "Light"),
    h("option", { value: "dark" }, "Dark"),
  );
  select.value = currentTheme();
  return select;
}
