// Signs in, and asks the API again and again while the page is visible.

import { $ } from "./dom.js";
import { ask, setToken } from "./api.js";
import { onChanged } from "./changes.js";
import { hits, ofPolicies } from "./hits.js";
import { forgetKey, lookUp, refreshKey } from "./keys.js";
import { policies, rates } from "./policies.js";
import { store } from "./store.js";
import { audit, failed, instances, offenders, overrides, trials } from "./tables.js";

const EVERY_MS = 2_000;
/** The audit log is read less often: once in so many times. */
const AUDIT_EVERY = 5;
/** Hit rates are of hours. */
const HITS_EVERY = 15;

let operator = null;
let turn = 0;
let timer;

const mayWrite = () => operator?.role === "write";

async function start() {
  let session;
  try {
    session = await ask("session");
  } catch (error) {
    connection(error);
    timer = setTimeout(start, EVERY_MS);
    return;
  }
  operator = session.operator;
  if (!operator) return askForToken(session.tokens ? "" : "The application does not know you. Sign in there first.");
  $("sign-in").hidden = true;
  $("content").hidden = $("sections").hidden = $("connection").hidden = false;
  $("sign-out").hidden = !session.tokens;
  await refresh();
}

function askForToken(error) {
  clearTimeout(timer);
  operator = null;
  $("content").hidden = $("sections").hidden = $("sign-out").hidden = $("connection").hidden = true;
  $("instance").textContent = "";
  $("sign-in").hidden = false;
  $("sign-in-error").textContent = error;
  $("token").value = "";
  $("token").focus();
}

/** Asks for each part, so that one that fails does not hide the others. */
async function refresh() {
  clearTimeout(timer);
  if (!operator) return;
  try {
    await part("policy-list", "policies", (list) => {
      policies(list, mayWrite());
      ofPolicies(list);
    });
    const policy = $("offenders-policy").value;
    const of = new URLSearchParams({ by: $("offenders-by").value, ...(policy && { policy }) });
    await Promise.all([
      part("status", "status", (status) => {
        $("instance").textContent = `${status.instance}, as ${operator.name}${mayWrite() ? "" : " (may change nothing)"}`;
        store(status);
      }),
      part("instance-list", "fleet", (fleet) => {
        instances(fleet);
        rates(fleet);
      }),
      part("offender-list", `offenders?${of}`, (list) => offenders(list, show, mayWrite())),
      part("override-list", "overrides", (list) => overrides(list, mayWrite())),
      part("trial-list", "trials", trials),
      turn % HITS_EVERY === 0 && part("hit-rates", "hits", hits),
      turn % AUDIT_EVERY === 0 && part("audit-list", "audit", (list) => audit(list, mayWrite())),
      refreshKey(mayWrite()),
    ]);
    connection();
  } catch (error) {
    if (error.status === 401) return askForToken("The token is no longer known.");
    connection(error);
  }
  turn += 1;
  timer = setTimeout(() => (document.hidden ? (turn = 0) : refresh()), EVERY_MS);
}

/** Shows a part, or why there is no data. Returns the error. */
async function part(parent, path, render) {
  try {
    render(await ask(path));
  } catch (error) {
    // The page cannot go on without a server, or without a token.
    if (!error.status || error.status === 401) throw error;
    failed(parent, error);
    return error;
  }
}

function connection(error) {
  const pill = $("connection");
  pill.hidden = false;
  pill.classList.toggle("warn", Boolean(error));
  const text = error ? "no answer" : "live";
  if (pill.textContent !== text) pill.textContent = text;
  pill.title = error?.message ?? "";
}

/** Looks a key up, and moves the reader there. */
async function show(key) {
  await lookUp(key, mayWrite());
  $("keys").scrollIntoView({ block: "start" });
  $("key").focus({ preventScroll: true });
}

$("sign-in").addEventListener("submit", async (event) => {
  event.preventDefault();
  setToken($("token").value.trim());
  await start();
  if (operator) $("main").focus();
  else {
    setToken("");
    $("sign-in-error").textContent = "This token is not known.";
  }
});
$("sign-out").addEventListener("click", () => {
  setToken("");
  forgetKey();
  askForToken("");
});
$("look-up").addEventListener("submit", (event) => {
  event.preventDefault();
  void lookUp($("key").value.trim(), mayWrite()).catch(connection);
});
for (const id of ["offenders-policy", "offenders-by"]) $(id).addEventListener("change", () => void refresh());
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) void refresh();
});
onChanged(async () => {
  turn = 0;
  await refresh();
});

await start();
