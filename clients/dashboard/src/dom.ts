// Elements without a framework. Text becomes text nodes only: nothing here parses HTML.

export type Child = Node | string | number | null | undefined | false | readonly Child[];

type Handler<E extends Event> = (event: E) => void;

export interface Props {
  readonly class?: string | undefined;
  readonly on?: {
    readonly [K in keyof HTMLElementEventMap]?: Handler<HTMLElementEventMap[K]>;
  };
  readonly [attribute: string]: unknown;
}

/** An element with attributes, listeners and children. `true` is an attribute without a value. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false || name === "on") continue;
    element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const [type, handler] of Object.entries(props.on ?? {})) {
    element.addEventListener(type, handler as EventListener);
  }
  append(element, children);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** An element of a drawing. */
export function svg(tag: string, attributes: Record<string, string | number>): SVGElement {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  return element;
}

export function append(parent: Element, children: readonly Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(parent, child as readonly Child[]);
    else parent.append(typeof child === "number" ? String(child) : (child as Node | string));
  }
}

/** Replaces all children. */
export function fill(parent: Element, ...children: readonly Child[]): void {
  parent.replaceChildren();
  append(parent, children);
}

/** Sets the text only if it differs, so that a selection survives. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

let ids = 0;

/** An id that no other element has. */
export function newId(prefix: string): string {
  ids += 1;
  return `${prefix}-${ids}`;
}

/** A label over a control. */
export function field(label: string, control: HTMLElement, hint?: string): HTMLElement {
  const id = control.id || newId("field");
  control.id = id;
  const note = hint ? h("span", { class: "hint", id: `${id}-hint` }, hint) : null;
  if (note) control.setAttribute("aria-describedby", note.id);
  return h("div", { class: "field" }, h("label", { for: id }, label), control, note);
}

export function button(label: Child, act: () => void, kind = ""): HTMLButtonElement {
  return h("button", { type: "button", class: `button ${kind}`.trim(), on: { click: act } }, label);
}
