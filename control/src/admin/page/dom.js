// Elements are made of texts, never of HTML: a key may be written by an attacker.

export const $ = (id) => document.getElementById(id);

/** Creates an element: `h("td", { class: "number" }, "5")`. */
export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) {
    if (attribute === "onclick") element.addEventListener("click", value);
    else if (value !== undefined && value !== false) element.setAttribute(attribute, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}

/** Creates an element of a picture. */
export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [attribute, value] of Object.entries(attributes)) element.setAttribute(attribute, value);
  element.append(...children);
  return element;
}

const shown = new WeakMap();

/** Shows the children that `make` returns, unless `data` is what is shown already. Keeps the focus, and what is scrolled. */
export function show(parent, data, make) {
  const text = JSON.stringify(data);
  if (shown.get(parent) === text) return;
  shown.set(parent, text);
  const active = document.activeElement;
  const focused = parent.contains(active) ? active.dataset.id : undefined;
  const { scrollLeft = 0, scrollTop = 0 } = parent.querySelector(".scroll") ?? {};
  parent.replaceChildren(...[make(data)].flat());
  if (scrollLeft || scrollTop) parent.querySelector(".scroll")?.scrollTo({ left: scrollLeft, top: scrollTop, behavior: "instant" });
  if (focused) focus(focused);
}

/** Moves the focus to the element of this name, if there is one. The page stays where it is. */
export function focus(id) {
  document.querySelector(`[data-id=${CSS.escape(id)}]`)?.focus({ preventScroll: true });
}

/** Creates a button with a name by which the focus finds it again. */
export function button(text, id, onclick, label) {
  const attributes = { type: "button", class: "plain small", "data-id": id, onclick };
  if (label) attributes["aria-label"] = label;
  return h("button", attributes, text);
}

/**
 * Creates a table in a region that scrolls. A column is `[title, class]`, a row a list of cells. The roles stay
 * when a small screen shows rows as blocks.
 */
export function table(label, columns, rows, style = "") {
  const cell = (content, column) => (column === 0
    ? h("th", { scope: "row", role: "rowheader", class: columns[0][1] }, content)
    : h("td", { role: "cell", class: columns[column][1] }, content));
  const head = columns.map(([title, style]) => h("th", { scope: "col", role: "columnheader", class: style }, title));
  const row = (cells) => h("tr", { role: "row" }, ...cells);
  return h("div", { class: `scroll ${style}`, role: "region", "aria-label": label, tabindex: "0" },
    h("table", { role: "table" },
      h("thead", { role: "rowgroup" }, row(head)),
      h("tbody", { role: "rowgroup" }, ...rows.map((cells) => row(cells.map(cell))))));
}

export const quiet = (text) => h("p", { class: "quiet" }, text);
export const key = (text) => h("code", { class: "key" }, text);

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
export const count = (value) => number.format(value);

/** Writes seconds as people say them. */
export function wait(seconds) {
  if (seconds <= 0) return "now";
  if (seconds < 1) return `${Math.ceil(seconds * 1000)} ms`;
  if (seconds < 100) return `${Math.ceil(seconds)} s`;
  if (seconds < 100 * 60) return `${Math.ceil(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${Math.ceil(seconds / 3600)} h`;
  return `${Math.ceil(seconds / 86400)} days`;
}

/** Writes a time in the zone of the reader: today only the hour. */
export function time(millis) {
  const at = new Date(millis);
  const text = at.toISOString();
  const clock = at.toLocaleTimeString("en-GB");
  const day = at.toLocaleDateString("en-CA");
  return h("time", { datetime: text, title: text }, day === new Date().toLocaleDateString("en-CA") ? clock : `${day} ${clock}`);
}

let timer;

/** Says the result of a change, also to screen readers. */
export function say(text) {
  clearTimeout(timer);
  $("message").textContent = text;
  timer = setTimeout(() => ($("message").textContent = ""), 12_000);
}
