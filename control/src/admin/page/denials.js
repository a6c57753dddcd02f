// The stream of denials. `EventSource` cannot send a token, so this reads the events by itself.

import { $, count, key as keyText, quiet, show, table, time, wait } from "./dom.js";
import { headers, url } from "./api.js";

const SHOWN = 50;
const AGAIN_MS = 3_000;

let [recent, paused, stop] = [[], false, undefined];

/** Reads the stream until {@link close} is called. */
export async function watch() {
  if (stop) return;
  const { signal } = (stop = new AbortController());
  render();
  while (!signal.aborted) {
    try {
      const response = await fetch(url("denials"), { headers: headers(), signal });
      if (!response.ok) throw new Error((await response.json()).detail);
      // The stream begins with the recent ones.
      recent = [];
      state("");
      await read(response.body.pipeThrough(new TextDecoderStream()).getReader());
      throw new Error("The stream has ended");
    } catch (error) {
      if (signal.aborted) break;
      state(`${error.message}. Trying again.`);
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }
}

/** Ends the stream. What was received stays. */
export function close() {
  stop?.abort();
  stop = undefined;
}

/** Ends the stream, and forgets what was received. */
export function forget() {
  close();
  recent = [];
}

async function read(reader) {
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (text + value).split("\n\n");
    text = events.pop();
    for (const event of events) receive(event);
    if (!paused) render();
  }
}

function receive(event) {
  const data = event.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5)).join("\n");
  if (!data) return;
  recent.unshift(JSON.parse(data));
  recent.length = Math.min(recent.length, SHOWN);
}

function render() {
  show($("denial-list"), recent, () => {
    if (!recent.length) return quiet("No data because no request was denied by this process yet.");
    const rows = recent.map((it) => [
      time(it.time), it.policy, keyText(it.key), count(it.limit),
      it.retry_after === null ? "never" : wait(it.retry_after), it.suppressed ? `${count(it.suppressed)} more before it` : "",
    ]);
    return table("The last denials", [["Time", "nowrap"], ["Policy"], ["Key"], ["Limit", "number wide"], ["Wait", "number"], ["Others", "wide"]], rows);
  });
}

function state(text) {
  if ($("denials-state").textContent !== text) $("denials-state").textContent = text;
}

$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", String(paused));
  $("pause").textContent = paused ? "Continue" : "Pause";
  if (!paused) render();
});
