
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const number = new Intl.NumberFormat("en").format;
  const percent = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(1)} %` : "");
  const time = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");
  const text = (value) => value.replace("T", " ").replace("Z", "");
  const seconds = (value) => Date.parse(value) / 1000;

  // All texts are set as text: names of keys come from clients.
  const element = (name, attributes = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const svg = (name, attributes = {}, ...children) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const into = (id, ...children) => document.getElementById(id).append(...children);
  const none = (what) => element("p", { class: "none" }, what);
  const keyText = (key) => {
    const parts = Object.entries(key);
    if (parts.length === 0) return "all requests";
    return parts.map(([name, value]) => (value === null ? `${name} is missing` : `${name}=${value}`)).join(", ");
  };
  const duration = (s) => {
    const units = [[604800, "week"], [86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];
    const [length, name] = units.find(([length]) => s % length === 0);
    const count = s / length;
    return count === 1 ? name : `${count} ${name}s`;
  };
  // On a narrow screen a region scrolls, also by keyboard.
  const scrolling = (label, child) =>
    element("div", { class: "scrolling", tabindex: "0", role: "group", "aria-label": label }, child);
  const table = (caption, heads, rows) => scrolling(caption, element("table", {}, element("caption", {}, caption),
    element("thead", {}, element("tr", {}, ...heads.map(([head, kind]) =>
      element("th", { scope: "col", class: kind ?? "" }, head)))),
    element("tbody", {}, ...rows.map((cells) => element("tr", {}, ...cells.map((cell, index) =>
      element("td", { class: heads[index][1] ?? "" }, ...[cell].flat())))))));

  const about = () => {
    const span = data.first ? `, ${text(data.first)} to ${text(data.last)} UTC` : "";
    into("about", `Domain ${data.domain}${span}`);
    document.title = `tidegate replay: ${number(data.denied)} of ${number(data.requests)} requests denied`;
  };

  const sums = () => {
    const estimate = data.keys_are_estimates ? "about " : "";
    const tile = (name, value, note) => element("div", {}, element("dt", {}, name),
      element("dd", {}, value, element("small", {}, note || "\u00a0")));
    into("sums", tile("Requests", number(data.requests)),
      tile("Denied", number(data.denied), percent(data.denied, data.requests)),
      tile("Keys", estimate + number(data.keys)),
      tile("Keys denied", estimate + number(data.keys_denied), percent(data.keys_denied, data.keys)));
    if (data.shadow_denied > 0 || data.rules.some((rule) => rule.mode === "shadow")) {
      into("sums", tile("Shadow denied", number(data.shadow_denied), percent(data.shadow_denied, data.requests)));
    }
    if (data.unreadable > 0) into("sums", tile("Unreadable lines", number(data.unreadable)));
    if (data.late > 0) into("sums", tile("Late lines", number(data.late)));
  };

  // Fewer and wider buckets, so that each is wide enough to be seen.
  const folded = (values, by) => {
    const sums = [];
    values.forEach((value, index) => {
      const at = Math.floor(index / by);
      sums[at] = (sums[at] ?? 0) + value;
    });
    return sums;
  };
  const round = (most) => {
    const unit = 10 ** Math.floor(Math.log10(Math.max(most, 1)));
    return [1, 2, 4, 5, 6, 8, 10].map((it) => it * unit).find((it) => it >= most);
  };
  const axis = (start, width, count, x) => {
    const ticks = Math.min(6, count);
    return Array.from({ length: ticks }, (_, tick) => {
      const at = Math.round((tick * count) / ticks);
      return [x(at), time(start + at * width)];
    });
  };

  const traffic = () => {
    const { width_s, denied: all } = data.over_time;
    if (all.length === 0) return into("traffic", none("There are no requests."));
    const by = Math.max(1, Math.ceil(all.length / 180));
    const [allowed, denied, shadow] =
      ["allowed", "denied", "shadow_denied"].map((name) => folded(data.over_time[name], by));
    const [width, start, count] = [width_s * by, seconds(data.over_time.start), denied.length];
    const [left, top, inner, height] = [52, 8, 900, 200];
    const most = round(Math.max(...allowed.map((it, index) => it + denied[index]), ...shadow));
    const x = (index) => left + (index * inner) / count;
    const y = (value) => top + height - (value * height) / most;
    const total = `${number(data.requests)} requests, ${number(data.denied)} of them denied`;
    const chart = svg("svg", { viewBox: `0 0 ${left + inner + 8} ${top + height + 24}`, role: "img",
      "aria-label": `Requests per ${duration(width)}: ${total}` });
    for (const share of [0, 0.5, 1]) {
      const at = y(most * share);
      chart.append(svg("line", { class: "grid", x1: left, x2: left + inner, y1: at, y2: at }),
        svg("text", { x: left - 8, y: at + 4, "text-anchor": "end" }, number(most * share)));
    }
    const gap = count > 120 ? 0 : 1;
    for (let index = 0; index < count; index += 1) {
      const [ok, no] = [allowed[index], denied[index]];
      const note = `${time(start + index * width)}: ${number(ok)} allowed, ${number(no)} denied` +
        (shadow[index] ? `, ${number(shadow[index])} in shadow mode` : "");
      const bar = (kind, from, to) => svg("rect", { class: kind, x: x(index), y: y(to),
        width: Math.max(inner / count - gap, 0.5), height: y(from) - y(to) });
      chart.append(svg("g", {}, svg("title", {}, note), bar("allowed", 0, ok), bar("denied", ok, ok + no)));
    }
    if (shadow.some((it) => it > 0)) {
      const points = shadow.map((it, index) => `${x(index + 0.5)},${y(it)}`);
      chart.append(svg("polyline", { class: "shadow-line", points: points.join(" ") }));
    }
    for (const [at, label] of axis(start, width, count, x)) {
      chart.append(svg("text", { x: at, y: top + height + 18 }, label));
    }
    const legend = (name, colour) => element("span", { style: `--swatch: var(--${colour})` }, name);
    into("traffic", element("p", { class: "legend" }, legend("allowed", "allowed"), legend("denied", "denied"),
      ...(data.shadow_denied > 0 ? [legend("denied in shadow mode", "shadow")] : []),
      `requests per ${duration(width)}`), scrolling("Traffic over time", chart));
  };

  const heat = () => {
    const keys = data.top_denied.filter((key) => key.over_time.length > 0).slice(0, 25);
    if (keys.length === 0) return into("heat", none("No key is denied."));
    const { width_s, denied } = data.over_time;
    const by = Math.max(1, Math.ceil(denied.length / 72));
    const [width, start] = [width_s * by, seconds(data.over_time.start)];
    const count = Math.ceil(denied.length / by);
    const [left, row, inner] = [250, 20, 702];
    const x = (index) => left + (index * inner) / count;
    const rows = keys.map((key) => {
      const cells = new Array(count).fill(0);
      for (const [at, many] of key.over_time) cells[Math.floor((at - start) / width)] += many;
      return cells;
    });
    const most = Math.max(...rows.flat());
    const chart = svg("svg", { viewBox: `0 0 ${left + inner + 8} ${keys.length * row + 28}`, role: "img",
      "aria-label": `Denials of the ${keys.length} most denied keys per ${duration(width)}; the table below has the sums` });
    keys.forEach((key, index) => {
      const [name, top] = [keyText(key.key), index * row];
      const label = name.length > 36 ? `${name.slice(0, 35)}\u2026` : name;
      chart.append(svg("text", { class: "mark", x: left - 10, y: top + 14, "text-anchor": "end" },
        svg("title", {}, `${name} (${key.rule})`), label));
      chart.append(svg("rect", { class: "empty-cell", x: left, y: top + 1, width: inner, height: row - 2 }));
      rows[index].forEach((many, column) => {
        if (many === 0) return;
        const note = `${name}, ${time(start + column * width)}: ${number(many)} denied`;
        chart.append(svg("rect", { class: key.mode === "shadow" ? "shadow-cell" : "cell", x: x(column), y: top + 1, height: row - 2,
          width: Math.max(inner / count - 0.5, 1), opacity: 0.25 + 0.75 * Math.sqrt(many / most) },
        svg("title", {}, note)));
      });
    });
    for (const [at, label] of axis(start, width, count, x).slice(0, 5)) {
      chart.append(svg("text", { x: at, y: keys.length * row + 18 }, label));
    }
    into("heat", element("p", { class: "legend" },
      `denials per ${duration(width)}; the strongest colour is ${number(most)}`), scrolling("When keys are denied", chart));
  };

  const keys = () => {
    if (data.top_denied.length === 0) return into("keys", none("No key is denied."));
    const most = data.top_denied[0].denied;
    const rows = data.top_denied.map((key) => {
      const kind = key.mode === "shadow" ? "bar shadow" : "bar";
      const bar = element("span", { class: kind, style: `width: ${(100 * key.denied) / most}%` });
      const rule = key.mode === "shadow" ? `${key.rule} (shadow)` : key.rule;
      const requests = key.requests === null ? "?" : number(key.requests);
      const share = key.requests === null ? "" : percent(key.denied, key.requests);
      return [keyText(key.key), rule, number(key.denied), requests, share, bar];
    });
    into("keys", table("The share is that of the requests of the key.", [["Key", "key"], ["Rule"], ["Denied", "number"],
      ["Requests", "number"], ["Share", "number"], ["Compared"]], rows));
  };

  const rules = () => {
    if (data.rules.length === 0) return into("rules", none("The domain has no rules."));
    const rows = data.rules.map((rule) => [rule.left_out ? `${rule.name} (left out)` : rule.name, rule.mode,
      number(rule.denied), `${number(rule.keys_denied)} of ${number(rule.keys)}`]);
    into("rules", table("Denials of a rule in shadow mode are not enforced.",
      [["Rule"], ["Mode"], ["Denied", "number"], ["Keys denied", "number"]], rows));
  };

  const minutes = () => {
    if (data.worst_minutes.length === 0) return into("minutes", none("Nothing is denied."));
    const rows = data.worst_minutes.map((it) => [text(it.minute).slice(0, 16), number(it.denied),
      number(it.shadow_denied), number(it.allowed)]);
    into("minutes", table("Times are in UTC.", [["Minute", "time"], ["Denied", "number"], ["Shadow", "number"],
      ["Allowed", "number"]], rows));
  };

  const denials = () => {
    if (data.first_denials.length === 0) return into("denials", none("Nothing is denied."));
    for (const it of data.first_denials) {
      const rule = (of) => {
        if (!of.applies) return `${of.rule}: ${of.why}`;
        const wait = of.retry_after_ms === null ? `retry ${of.retry}` : `retry after ${of.retry_after_ms / 1000} s`;
        const verdict = of.allowed ? "allows it" : of.denies ? `denies it; ${wait}` : `would deny it; ${wait}`;
        return `${of.rule}: ${verdict}; key ${keyText(of.key)}; ${number(of.remaining)} of ${number(of.limit)} remaining, cost ${number(of.cost)}`;
      };
      const place = `${it.input}:${it.line}`;
      const head = `${text(it.time)} ${keyText(it.attributes)}: denied by ${it.rule ?? "no rule"}`;
      into("denials", element("details", {}, element("summary", { class: "key" }, head),
        element("ul", {}, ...it.rules.map((of) => element("li", {}, rule(of))), element("li", {}, place))));
    }
  };

  const inputs = () => {
    const rows = data.inputs.map((it) => [it.name, it.format ?? "", number(it.lines), it.cut_short ?? "all"]);
    into("inputs", table(`${number(data.unreadable)} lines could not be read, ${number(data.late)} were late.`,
      [["Log", "key"], ["Format"], ["Lines", "number"], ["Read"]], rows));
    for (const it of data.first_unreadable) {
      into("inputs", element("p", { class: "none key" }, `${it.input}:${it.line}: ${it.reason}`));
    }
  };

  for (const part of [about, sums, traffic, heat, keys, rules, minutes, denials, inputs]) part();
})();
