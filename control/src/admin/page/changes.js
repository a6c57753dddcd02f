// Changes: a dialog that asks for a reason, and the request.

import { $, focus, say } from "./dom.js";
import { ask } from "./api.js";

let pending;
let afterwards = async () => {};

/** Sets what is done after a change. */
export function onChanged(refresh) {
  afterwards = refresh;
}

const whose = ({ policy, key }) => (key === undefined || key === null ? policy : `${key} under ${policy}`);

export const change = {
  quota: (target) => open({
    target, title: `Change the quota of ${whose(target)}`, submit: "Change", needs: ["quota", "until", "version"],
    effect: target.key === undefined
      ? "On all instances, for all keys without a quota of their own. Spent units stay spent."
      : "On all instances, for this key. Spent units stay spent.",
    send: (body) => ask("overrides", { method: "PUT", body }),
  }),
  end: (target) => open({
    target, title: `End the override of ${whose(target)}`, submit: "End", needs: ["version"],
    effect: "What the code or the file says is in force again.",
    send: (body) => ask("overrides", { method: "DELETE", body }),
  }),
  reset: (target) => open({
    target, title: `Reset ${whose(target)}`, submit: "Reset", needs: [],
    effect: "Forgets what the key has spent, and lifts a block.",
    send: (body) => ask("reset", { method: "POST", body }),
  }),
  block: (target) => open({
    target, title: `Block ${whose(target)}`, submit: "Block", needs: ["until", "version"],
    effect: "Denies all requests of the key under this policy.",
    send: (body) => ask("block", { method: "POST", body }),
  }),
  unblock: (target) => open({
    target, title: `Unblock ${whose(target)}`, submit: "Unblock", needs: [],
    effect: "Lifts a block. The key keeps what it has spent.",
    send: (body) => ask("unblock", { method: "POST", body }),
  }),
  /** Restores what was there before an entry of the audit log, unless another change has followed. */
  undo({ policy, key, action, before, version, reason }) {
    const target = { policy, key, quota: before, version: action === "remove" ? 0 : version, reason: `undo: ${reason}` };
    if (!before) return change.end(target);
    return before === "block" ? change.block(target) : change.quota(target);
  },
};

/** Opens a change of a key that a list shows, with the quota and the version that are in force. */
export async function changeKey(kind, policy, key) {
  try {
    const { standings } = await ask(`keys?key=${encodeURIComponent(key)}`);
    const standing = standings.find((it) => it.policy === policy);
    if (!standing || standing.no_data) throw new Error(standing?.no_data ?? `There is no policy ${policy}`);
    const { quota, override_version: version } = standing;
    const target = { policy, key, version };
    if (kind === "raise") change.quota({ ...target, quota: quota.replace(/^\d+/, (limit) => limit * 2) });
    else change[kind](target);
  } catch (error) {
    say(error.message);
  }
}

function open(action) {
  const opener = document.activeElement?.dataset.id;
  pending = { ...action, opener };
  $("change-title").textContent = action.title;
  $("change-effect").textContent = action.effect;
  $("change-submit").textContent = action.submit;
  $("change-error").textContent = "";
  $("reason").value = action.target.reason ?? "";
  $("quota").value = action.target.quota ?? "";
  $("quota").required = action.needs.includes("quota");
  $("quota-field").hidden = !action.needs.includes("quota");
  $("until-field").hidden = !action.needs.includes("until");
  $("until").value = "1h";
  showTime();
  $("change").showModal();
  (action.needs.includes("quota") ? $("quota") : $("reason")).focus();
}

function showTime() {
  const asks = !$("until-field").hidden && $("until").value === "time";
  $("until-time-field").hidden = !asks;
  $("until-time").required = asks;
}

function until() {
  const choice = $("until").value;
  return choice === "time" ? new Date($("until-time").value).toISOString().replace(/\.\d+/, "") : choice;
}

async function submit(event) {
  event.preventDefault();
  const { target, needs, send } = pending;
  const { policy, key } = target;
  const body = { policy, key: key ?? undefined, reason: $("reason").value };
  if (needs.includes("quota")) body.quota = $("quota").value;
  if (needs.includes("until")) body.until = until();
  // The override that the operator saw: another operator may have changed it meanwhile.
  if (needs.includes("version")) body.version = target.version;
  $("change-submit").disabled = true;
  let isStale = true;
  try {
    const result = await send(body);
    $("change").close();
    say(result.message);
  } catch (error) {
    isStale = error.status === 409;
    $("change-error").textContent = error.message + (isStale ? " Another operator was faster: close this, and look again." : "");
  } finally {
    // Before the lists are read again: the operator may have opened the next change.
    $("change-submit").disabled = false;
  }
  if (isStale) await afterwards();
}

$("change-form").addEventListener("submit", submit);
$("change-cancel").addEventListener("click", () => $("change").close());
$("until").addEventListener("change", showTime);
// The button that has opened the dialog may have been replaced meanwhile.
$("change").addEventListener("close", () => pending?.opener && focus(pending.opener));
