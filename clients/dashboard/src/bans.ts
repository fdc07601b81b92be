// Bans: the list, and dialogs that set and remove them.

import { request } from "./api.ts";
import { openDialog } from "./dialog.ts";
import { button, field, h } from "./dom.ts";
import type { Context } from "./page.ts";
import { foreign, keyChips, timeOf } from "./parts.ts";
import { exactMatch, matchChips } from "./patterns.ts";
import { table } from "./table.ts";
import type { Ban } from "./types.ts";

export function banTable(context: Context, bans: readonly Ban[]): HTMLElement {
  return table({
    caption: "Bans in force",
    rows: bans,
    empty: "None.",
    step: 20,
    columns: [
      { head: "Domain", cell: (ban) => foreign(ban.domain, "name") },
      { head: "Denies", cell: (ban) => matchChips(ban.match) },
      { head: "Until", cell: (ban) => (ban.until ? timeOf(ban.until) : "no end") },
      { head: "Reason", cell: (ban) => foreign(ban.reason ?? "", "wrap") },
      {
        head: "Action",
        cell: (ban) =>
          context.session.may_change && button("Unban", () => unban(context, ban), "small"),
      },
    ],
  });
}

export function unban(context: Context, { domain, match }: Ban): void {
  openDialog({
    title: "Remove the ban",
    body: h("p", {}, "Requests are decided by the rules again: ", matchChips(match)),
    action: "Unban",
    act: async () => {
      await request("bans", { method: "DELETE", body: { domain, match } });
      context.say("The ban is removed.");
      context.reload();
    },
  });
}

const BAN_TIMES = ["10m", "1h", "24h", "168h", ""];
const BAN_LABELS = ["10 minutes", "1 hour", "1 day", "7 days", "until it is removed"];

/** A dialog that denies all requests with some of these attributes. */
export function ban(context: Context, domain: string, attributes: Record<string, string>): void {
  const boxes = Object.entries(attributes).map(([name, value]) => {
    const box = h("input", { type: "checkbox", name });
    box.checked = Object.keys(attributes).length === 1;
    return { name, value, box };
  });
  const time = h(
    "select",
    { name: "for" },
    BAN_TIMES.map((value, index) => h("option", { value }, BAN_LABELS[index])),
  );
  time.value = "1h";
  const reason = h("input", { type: "text", name: "reason", autocomplete: "off", maxlength: 500 });
  openDialog({
    title: "Ban",
    body: [
      h(
        "p",
        {},
        "All requests of domain ",
        foreign(domain, "name"),
        " with these attributes are denied:",
      ),
      h(
        "div",
        { class: "checks" },
        boxes.map(({ name, value, box }) =>
          h("label", { class: "check" }, box, keyChips({ [name]: value })),
        ),
      ),
      h("div", { class: "fields" }, field("For", time), field("Reason", reason, "clients get it")),
    ],
    action: "Ban",
    isDanger: true,
    act: async () => {
      const chosen = boxes.filter(({ box }) => box.checked);
      if (chosen.length === 0) throw new Error("Choose at least one attribute.");
      const match = exactMatch(Object.fromEntries(chosen.map(({ name, value }) => [name, value])));
      await request("bans", {
        method: "POST",
        body: {
          domain,
          match,
          ...(time.value ? { for: time.value } : {}),
          ...(reason.value ? { reason: reason.value } : {}),
        },
      });
      context.say("The ban is in force.");
      context.reload();
    },
  });
}
