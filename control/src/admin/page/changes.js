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
    target, title: `Change the quota of ${whose(target)}`, submit: "Change", needs: ["quota", "until"],
    effect: target.key === undefined
      ? "On all instances, for all keys without a quota of their own. Spent units stay spent."
      : "On all instances, for this key. Spent units stay spent.",
    send: (body) => ask("overrides", { method: "PUT", body }),
  }),
  end: (target) => open({
    target, title: `End the override of ${whose(target)}`, submit: "End", needs: [],
    effect: "What the code or the file says is in force again.",
    send: ({ policy, key, reason }) => ask("overrides", { method: "DELETE", body: { policy, key: key ?? undefined, reason } }),
  }),
  reset: (target) => open({
    target, title: `Reset ${whose(target)}`, submit: "Reset", needs: [],
    effect: "Forgets what the key has spent, and lifts a block.",
    send: (body) => ask("reset", { method: "POST", body }),
  }),
  block: (target) => open({
    target, title: `Block ${whose(target)}`, submit: "Block", needs: ["until"],
    effect: "Denies all requests of the key under this policy.",
    send: (body) => ask("block", { method: "POST", body }),
  }),
  unblock: (target) => open({
    target, title: `Unblock ${whose(target)}`, submit: "Unblock", needs: [],
    effect: "Lifts a block. The key keeps what it has spent.",
    send: (body) => ask("unblock", { method: "POST", body }),
  }),
};

function open(action) {
  const opener = document.activeElement?.dataset.id;
  pending = { ...action, opener };
  $("change-title").textContent = action.title;
  $("change-effect").textContent = action.effect;
  $("change-submit").textContent = action.submit;
  $("change-error").textContent = "";
  $("reason").value = "";
  $("quota").value = action.target.quota ?? "";
  $("quota").required = action.needs.includes("quota");
  $("quota-field").hidden = !action.needs.includes("quota");
  $("until-field").hidden = !action.needs.includes("until");
  $("until").value = "2h";
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
  const body = { policy, key, reason: $("reason").value };
  if (needs.includes("quota")) body.quota = $("quota").value;
  if (needs.includes("until")) {
    body.until = until();
    // The override that the operator saw: another operator may have changed it meanwhile.
    body.version = target.version;
  }
  $("change-submit").disabled = true;
  try {
    const result = await send(body);
    $("change").close();
    say(result.message);
    await afterwards();
  } catch (error) {
    const again = error.status === 409 ? " Another operator was faster: close this, and look again." : "";
    $("change-error").textContent = error.message + again;
    if (again) await afterwards();
  } finally {
    $("change-submit").disabled = false;
  }
}

$("change-form").addEventListener("submit", submit);
$("change-cancel").addEventListener("click", () => $("change").close());
$("until").addEventListener("change", showTime);
// The button that has opened the dialog may have been replaced meanwhile.
$("change").addEventListener("close", () => pending?.opener && focus(pending.opener));
