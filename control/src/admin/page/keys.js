// The standing of a key under every policy.

import { $, button, count, h, key as keyText, quiet, show, table, wait } from "./dom.js";
import { ask } from "./api.js";
import { change } from "./changes.js";

let looked = "";

/** Looks a key up, and moves to the result. */
export async function lookUp(text, mayWrite) {
  $("key").value = text;
  looked = text;
  await refreshKey(mayWrite);
}

/** Updates the standing of the key that was looked up, if one was. */
export async function refreshKey(mayWrite) {
  if (!looked) return;
  const of = looked;
  try {
    const { key, standings } = await ask(`keys?key=${encodeURIComponent(of)}`);
    if (of === looked) show($("standings"), { key, standings, mayWrite }, render);
  } catch (error) {
    show($("standings"), error.message, () => h("p", { class: "error", role: "alert" }, error.message));
    if (error.status === 401) throw error;
  }
}

export function forgetKey() {
  looked = "";
  show($("standings"), "", () => []);
}

function render({ key, standings, mayWrite }) {
  if (!standings.length) return quiet("No data because no policy is registered.");
  const rows = standings.map((standing) => row(key, standing, mayWrite));
  const columns = [["Policy"], ["State"], ["Left", "number"], ["Full again in", "number wide"], ["Quota", "wide"], ...(mayWrite ? [["Action"]] : [])];
  return [h("p", {}, "Key ", keyText(key)), table(`Standings of ${key}`, columns, rows, "stack")];
}

function row(key, standing, mayWrite) {
  const { policy } = standing;
  if (standing.no_data) {
    const cells = [policy, h("span", { class: "quiet" }, `${standing.no_data}.`), "", "", ""];
    return mayWrite ? [...cells, ""] : cells;
  }
  const retry = standing.retry_after;
  const state = standing.admitted
    ? h("span", { class: "pill" }, "admitted")
    : h("span", { class: "pill warn" }, retry === null ? "denied" : `denied for ${wait(retry)}`);
  const quota = h("span", {}, h("code", {}, standing.quota), standing.is_own_quota ? " of its own" : "",
    standing.source === "fallback" ? "; the store does not answer, so this instance decides alone" : "");
  const target = { policy, key, version: standing.override_version };
  const act = (text, action, id) => button(text, `${id}-${policy}`, action, `${text}: ${key} under ${policy}`);
  const buttons = () => h("div", { class: "buttons" },
    act("Quota", () => change.quota({ ...target, quota: standing.quota }), "key-quota"),
    act("Reset", () => change.reset(target), "key-reset"),
    act("Block", () => change.block(target), "key-block"),
    act("Unblock", () => change.unblock(target), "key-unblock"));
  return [policy, state, `${count(standing.remaining)} of ${count(standing.limit)}`, wait(standing.reset_after), quota, ...(mayWrite ? [buttons()] : [])];
}
