// The share of the units of each policy that was denied, in its card, and a trial of another limit.

import { $, button, count, h, quiet, show, time } from "./dom.js";

const MARKS = {
  too_strict: ["too strict", "more than 5 % are denied"],
  protects_nothing: ["protects from nothing", "less than 0.1 % are denied"],
};

/** The policies by name, and the last hit rates. */
let known = new Map();
let last = { policies: [] };

/** Takes the policies, whose cards are there. */
export function ofPolicies(list) {
  known = new Map(list.map((policy) => [policy.name, policy]));
  for (const name of known.keys()) card(name);
}

/** Shows the hit rates in the cards. */
export function hits(rates) {
  last = rates;
  show($("hit-rates"), rates.is_of_process, () => quiet(`The share of units that is denied: above 5 % a limit is too strict, and below 0.1 % it protects from nothing. ${
    rates.is_of_process ? "This process counts since its start." : "All instances count, for the clock hours of the last days."}`));
  for (const name of known.keys()) card(name);
}

function card(name) {
  const item = document.querySelector(`#policy-list > [data-policy=${CSS.escape(name)}]`);
  if (!item) return;
  let place = item.querySelector(".hits");
  if (!place) {
    place = h("div", { class: "hits" });
    item.querySelector(".buttons")?.before(place);
  }
  const rate = last.policies.find(({ policy }) => policy === name);
  const { quota } = known.get(name);
  show(place, [rate, quota], () => [
    ...(rate ? lines(rate) : [quiet("No hit rate because no unit was counted in the last days.")]),
    h("div", { class: "buttons" }, button("Try another limit", `trial-${name}`, () => offerTrial(name, quota, rate), `Try another limit: ${name}`)),
  ]);
}

function lines({ hour, day, first, never_denies: neverDenies }) {
  const mark = MARKS[day.mark ?? hour.mark];
  return [
    h("p", {}, "Denied since ", time(hour.since), `: ${percent(hour)}. In the last day: ${percent(day)}.`),
    mark && h("p", {}, h("span", { class: "pill warn" }, mark[0]), ` ${mark[1]}`),
    neverDenies ? h("p", {}, h("span", { class: "pill warn" }, "idle"), " never denied anything in 7 days")
      : h("p", { class: "quiet" }, "Counted since ", time(first)),
  ].filter(Boolean);
}

/** A small share that is not 0 is not written as 0. */
function percent({ share, admitted, denied }) {
  if (share === null) return "no data because no unit was counted";
  const text = share > 0 && share < 0.0005 ? "less than 0.1" : count(100 * share);
  return `${text} % of ${count(admitted + denied)} units`;
}

/** Shows the lines of a file that start a trial. A trial belongs to rules, so the API cannot start one. */
function offerTrial(policy, quota, rate) {
  const mark = rate && (rate.day.mark ?? rate.hour.mark);
  const suggested = quota.replace(/^\d+/, (limit) => (mark === "protects_nothing" ? Math.max(1, Math.ceil(limit / 2)) : limit * 2));
  const input = h("input", { id: "trial-quota", autocomplete: "off", spellcheck: "false" });
  input.value = suggested;
  const lines = h("pre", { tabindex: "0", "aria-label": "Lines of the file" });
  const write = () => {
    lines.textContent = `# with the other policies, in [policies]:\n${key(`${policy}-trial`)} = "${input.value.replaceAll(/["\\]/g, "")}"\n\n# in each rule of the policy ${policy}:\ntrials = ["${policy}-trial"]`;
  };
  input.addEventListener("input", write);
  write();
  const close = h("button", { type: "button", onclick: () => dialog.close() }, "Close");
  const dialog = h("dialog", { id: "trial", "aria-labelledby": "trial-title" },
    h("h2", { id: "trial-title" }, `Try another limit for ${policy}`),
    quiet("A trial counts what another limit would do, and denies no request. Add these lines to the limits file. The counts are then below, at Trials."),
    h("div", { class: "field" }, h("label", { for: "trial-quota" }, "Quota on trial"), input),
    lines, h("div", { class: "buttons" }, close));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/** A name with a dot is quoted in TOML. */
const key = (name) => (name.includes(".") ? `"${name}"` : name);
