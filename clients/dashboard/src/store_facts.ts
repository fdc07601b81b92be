// The store as the overview shows it.

import { h, type Child } from "./dom.ts";
import { bytes, count, micros } from "./format.ts";
import { badge, facts, foreign, notice } from "./parts.ts";
import type { StoreStatus } from "./types.ts";

const KINDS = {
  memory: "in memory",
  file: "on disk",
  redis: "shared server",
} as const;

export function storeFacts(store: StoreStatus): Child {
  const isBad = Boolean(store.failure) || store.available === false;
  const rows: [string, Child][] = [
    [
      "kind",
      [KINDS[store.kind], " ", badge(isBad ? "unavailable" : "ok", isBad ? "denied" : "enforce")],
    ],
  ];
  if (store.folder) rows.push(["folder", foreign(store.folder, "code")]);
  if (store.kind === "redis") {
    rows.push(["server", store.server ? foreign(store.server, "code") : "not connected"]);
    const figures: [string, string | null][] = [
      ["keys in it", store.database_keys == null ? null : count(store.database_keys)],
      [
        "clock known to",
        store.clock_uncertainty_us == null ? null : micros(store.clock_uncertainty_us),
      ],
      ["replicas", store.replicas == null ? null : count(store.replicas)],
      ["replica lag", store.replica_lag_bytes == null ? null : bytes(store.replica_lag_bytes)],
    ];
    for (const [name, value] of figures) if (value !== null) rows.push([name, value]);
    for (const [name, value] of Object.entries(store.counters ?? {}).slice(0, 40)) {
      if (value > 0)
        rows.push([name.replaceAll("_", " "), h("span", { class: "num" }, count(value))]);
    }
  }
  return [
    store.failure && notice("error", foreign(store.failure, "wrap")),
    store.not_durable && notice("warning", foreign(store.not_durable, "wrap")),
    facts(rows),
  ];
}
