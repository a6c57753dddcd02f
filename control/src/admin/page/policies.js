// The policies: one card each, which is kept while its numbers change.

import { $, button, count, h, quiet, show } from "./dom.js";
import { chart, keep } from "./charts.js";
import { change } from "./changes.js";

const cards = new Map();

export function policies(list, mayWrite) {
  const names = new Set(list.map(({ name }) => name));
  for (const [name, card] of cards) {
    if (!names.has(name)) {
      card.item.remove();
      cards.delete(name);
    }
  }
  for (const policy of list) {
    if (!cards.has(policy.name)) cards.set(policy.name, newCard(policy.name));
    update(cards.get(policy.name), policy, mayWrite);
  }
  if (!list.length) show($("policy-list"), "none", () => h("li", {}, quiet("No data because no policy is registered.")));
  offerPolicies(list);
}

/** Shows the rates of all instances in the cards. */
export function rates(fleet) {
  keep(fleet, [...cards.keys()]);
  const units = new Map(fleet.policies.map((it) => [it.policy, it]));
  const of = fleet.error ? "of this instance alone" : `of ${count(fleet.instances.length)} instance${fleet.instances.length === 1 ? "" : "s"}`;
  for (const [name, card] of cards) {
    const { admitted_per_second: admitted = 0, denied_per_second: denied = 0 } = units.get(name) ?? {};
    const share = denied > 0 ? `, which is ${count(100 * denied / (admitted + denied))} %` : "";
    show(card.rates, [admitted, denied, of], () => quiet(`${count(admitted)} units a second admitted, ${count(denied)} denied${share}: ${of}`));
    show(card.chart, fleet.time, () => chart(name));
  }
}

function newCard(name) {
  const card = { head: h("div", { class: "head" }), facts: h("div"), rates: h("div"), chart: h("div"), buttons: h("div", { class: "buttons" }) };
  card.item = h("li", { "data-policy": name }, card.head, card.facts, card.rates, card.chart, card.buttons);
  const next = [...$("policy-list").children].find((item) => item.dataset.policy > name);
  $("policy-list").insertBefore(card.item, next ?? null);
  return card;
}

function update(card, policy, mayWrite) {
  const { name, quota } = policy;
  show(card.head, [name, quota], () => [h("h3", {}, name), h("code", {}, quota)]);
  const facts = [policy.source, policy.configured, policy.overridden, policy.enabled, policy.keys, policy.key_overrides];
  show(card.facts, facts, () => describe(policy));
  const version = policy.override_version;
  show(card.buttons, [quota, mayWrite, version], () => (mayWrite ? [
    button("Change quota", `quota-${name}`, () => change.quota({ policy: name, quota, version }), `Change quota of ${name}`),
  ] : []));
}

function describe({ source, configured, overridden, enabled, keys, key_overrides: own }) {
  const from = overridden
    ? h("p", {}, h("span", { class: "pill warn" }, "override"), ` instead of ${configured.quota} from ${configured.source}`)
    : quiet(`from ${source}`);
  const off = enabled ? undefined : h("p", {}, h("span", { class: "pill warn" }, "off"), " limits nothing");
  const quotas = own ? `, ${own} with a quota of ${own === 1 ? "its" : "their"} own` : "";
  return [from, off, quiet(`A key is ${keys}${quotas}`)].filter(Boolean);
}

/** Lists the policies of which the keys that are denied most can be seen. */
function offerPolicies(list) {
  const select = $("offenders-policy");
  const chosen = select.value;
  const names = list.map(({ name }) => name);
  show(select, names, () => [h("option", { value: "" }, "all policies"), ...names.map((name) => h("option", { value: name }, name))]);
  if (names.includes(chosen)) select.value = chosen;
}
