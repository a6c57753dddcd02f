// Charts of the units a second, of all instances. They begin when the page is opened.

import { count, svg } from "./dom.js";

/** The time that a chart shows. */
const SPAN_MS = 5 * 60_000;
/** Points that are further apart are not connected: the page was hidden, or there was no answer. */
const GAP_MS = 7_000;
const MAX_POINTS = 400;

/** The place of the axes, in units of the picture. */
const WIDTH = 340, LEFT = 40, RIGHT = 332, TOP = 24, BOTTOM = 116, HEIGHT = 156;

const compact = new Intl.NumberFormat("en", { notation: "compact" });
const history = new Map();
let now = 0;

/** Keeps the rates of these policies. Rates of this instance alone are no point of the fleet. */
export function keep({ time, error, policies }, names) {
  now = time;
  const rates = new Map(policies.map((it) => [it.policy, it]));
  for (const name of history.keys()) if (!names.includes(name)) history.delete(name);
  for (const name of names) {
    const points = (history.get(name) ?? []).filter((it) => it.time > time - SPAN_MS && it.time <= time).slice(-MAX_POINTS);
    const { admitted_per_second: admitted = 0, denied_per_second: denied = 0 } = rates.get(name) ?? {};
    if (!error && time > (points.at(-1)?.time ?? 0)) points.push({ time, admitted, denied });
    history.set(name, points);
  }
}

/** Draws the last minutes of a policy. */
export function chart(name) {
  const points = history.get(name) ?? [];
  const highest = Math.max(...points.map((it) => Math.max(it.admitted, it.denied)), 0);
  const top = round(highest);
  const x = (time) => LEFT + (RIGHT - LEFT) * (1 - (now - time) / SPAN_MS);
  const y = (rate) => BOTTOM - (BOTTOM - TOP) * (rate / top);
  const last = points.at(-1);
  const label = last
    ? `Units a second under ${name}, of all instances: now ${count(last.admitted)} admitted and ${count(last.denied)} denied, in the last 5 minutes at most ${count(highest)}`
    : `Units a second under ${name}: no data yet`;
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, class: "chart" },
    svg("text", { x: 2, y: 13 }, "units a second"),
    ...[0, top / 2, top].flatMap((rate) => [
      svg("path", { class: rate ? "grid" : "axis", d: `M${LEFT} ${y(rate)}H${RIGHT}` }),
      svg("text", { x: LEFT - 5, y: y(rate) + 4, class: "end" }, compact.format(rate)),
    ]),
    svg("path", { class: "axis", d: `M${LEFT} ${TOP}V${BOTTOM}` }),
    ...minutes().flatMap((minute) => [
      svg("path", { class: "axis", d: `M${x(minute)} ${BOTTOM}v4` }),
      svg("text", { x: x(minute), y: BOTTOM + 16, class: "middle" }, clock(minute)),
    ]),
    svg("path", { class: "line admitted", d: line(points, "admitted", x, y) }),
    svg("path", { class: "line denied", d: line(points, "denied", x, y) }),
    svg("path", { class: "line admitted", d: `M${LEFT} ${HEIGHT - 10}h16` }),
    svg("text", { x: LEFT + 21, y: HEIGHT - 6 }, "admitted"),
    svg("path", { class: "line denied", d: `M${LEFT + 90} ${HEIGHT - 10}h16` }),
    svg("text", { x: LEFT + 111, y: HEIGHT - 6 }, "denied"));
}

/** Rounds up to 1, 2 or 5 times a power of ten, so that the axis has round numbers. */
function round(rate) {
  const power = 10 ** Math.floor(Math.log10(Math.max(rate, 1)));
  return [1, 2, 5, 10].map((it) => it * power).find((it) => it >= rate);
}

/** Returns the full minutes in the chart. A label of the first seconds would leave the picture. */
function minutes() {
  const first = Math.ceil((now - SPAN_MS) / 60_000) * 60_000;
  const all = Array.from({ length: 5 }, (_, minute) => first + minute * 60_000);
  return all.filter((minute) => minute <= now - 10_000);
}

const clock = (time) => new Date(time).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });

/** Returns the path of a line. A point alone is a short line. */
function line(points, field, x, y) {
  return points.map((point, index) => {
    const joins = index > 0 && point.time - points[index - 1].time < GAP_MS;
    const at = `${x(point.time).toFixed(1)} ${y(point[field]).toFixed(1)}`;
    return joins ? `L${at}` : `M${at}h.1`;
  }).join("");
}
