// The policies: one card each, which is kept while its numbers change.

import { $, button, h, quiet, show } from "./dom.js";
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

function newCard(name) {
  const card = { head: h("div", { class: "head" }), facts: h("div"), buttons: h("div", { class: "buttons" }) };
  card.item = h("li", { "data-policy": name }, card.head, card.facts, card.buttons);
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
