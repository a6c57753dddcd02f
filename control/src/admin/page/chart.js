// A small chart of the requests under a policy: what was denied is drawn above what was admitted.

import { count, h } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [240, 64];
/** The first chart of a process is as wide as these samples would be. */
const MIN_SAMPLES = 24;

export function chart() {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "chart");
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  for (const style of ["denied", "admitted", "would-deny"]) {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("class", style);
    svg.append(path);
  }
  // The description of the picture has what the axes say.
  const axis = (style) => h("p", { class: style, "aria-hidden": "true" }, h("span"), h("span"));
  return h("div", { class: "plot" }, axis("y"), svg, axis("x"));
}

/** Draws the rates, and describes them for those who do not see them. */
export function draw(plot, rates) {
  const [y, svg, x] = plot.children;
  const seconds = rates.seconds_per_sample;
  // The last sample is not over, and would look like a drop.
  const [allowed, denied, wouldDeny] = [rates.allowed, rates.denied, rates.would_deny]
    .map((values) => (values.length > 1 ? values.slice(0, -1) : values));
  const total = allowed.map((value, place) => value + denied[place]);
  const most = Math.max(1, ...total, ...wouldDeny);
  const [top, bottom, line] = svg.children;
  top.setAttribute("d", area(total, most));
  bottom.setAttribute("d", area(allowed, most));
  line.setAttribute("d", wouldDeny.some((value) => value > 0) ? steps(wouldDeny, most) : "");
  label(y, `${count(most / seconds)}/s`, "0");
  label(x, clock(Date.now() - Math.max(allowed.length, MIN_SAMPLES) * seconds * 1000), clock(Date.now()));
  const peak = (values) => (Math.max(0, ...values) / seconds).toFixed(1);
  svg.setAttribute("aria-label",
    `Last ${describe(allowed.length * seconds)}: at most ${peak(allowed)} requests a second admitted, ${peak(denied)} denied`);
}

const clock = (millis) => new Date(millis).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });

/** Writes both ends of an axis. */
function label(axis, ...texts) {
  texts.forEach((text, place) => axis.children[place].textContent !== text && (axis.children[place].textContent = text));
}

/** Returns the rate of the last sample that has ended, or of the current sample if it is the first. */
export function latest(values, seconds) {
  return values.length > 1 ? values.at(-2) / seconds : values.at(-1) / seconds;
}

const describe = (seconds) => (seconds < 120 ? `${seconds} seconds` : `${Math.round(seconds / 60)} minutes`);

function steps(values, most) {
  const samples = Math.max(values.length, MIN_SAMPLES);
  const start = samples - values.length;
  return values.map((value, place) => {
    const x = ((start + place) * WIDTH) / samples;
    const y = HEIGHT - (value / most) * (HEIGHT - 2);
    return `${place ? "L" : "M"}${x.toFixed(2)} ${y.toFixed(2)}H${(x + WIDTH / samples).toFixed(2)}`;
  }).join("");
}

function area(values, most) {
  const samples = Math.max(values.length, MIN_SAMPLES);
  const start = ((samples - values.length) * WIDTH) / samples;
  return `${steps(values, most)}V${HEIGHT}H${start.toFixed(2)}Z`;
}
