// Instances, offenders, overrides, trials and the audit log.

import { $, button, count, h, key as keyText, quiet, show, table, time, wait } from "./dom.js";
import { change, changeKey } from "./changes.js";

/** More rows would make a browser slow. */
const MAX_ROWS = 200;

export function instances(fleet) {
  show($("instance-list"), fleet, () => {
    const list = fleet.instances;
    const rows = list.slice(0, MAX_ROWS).map((it) => {
      const seen = (fleet.time - it.last_seen) / 1000;
      return [
        h("span", {}, h("code", {}, it.id), it.is_this ? " this one" : ""), it.version, time(it.since),
        seen > 0 ? `${wait(seen)} ago` : "now", count(it.admitted_per_second), count(it.denied_per_second),
      ];
    });
    const more = list.length > MAX_ROWS ? [quiet(`The first ${MAX_ROWS} of ${count(list.length)}.`)] : [];
    const error = fleet.error ? [h("p", { class: "error" }, `${fleet.error}.`)] : [];
    return [...error, ...more, table("Instances, oldest first", [["Instance"], ["Version"], ["Since", "nowrap"], ["Last seen", "nowrap"],
      ["Admitted a second", "number wide"], ["Denied a second", "number wide"]], rows)];
  });
}

export function offenders(list, lookUp, mayWrite) {
  show($("offender-list"), { list, mayWrite }, () => {
    if (!list.length) return quiet("No data because no key was denied or charged in the last minutes.");
    const rows = list.map(({ policy, key, denied, spent }) => {
      const act = (text, action) => button(text, `${text}-${policy}-${key}`, action, `${text}: ${key} under ${policy}`);
      const of = (kind) => () => changeKey(kind, policy, key);
      const acts = mayWrite ? [act("Block", of("block")), act("Raise", of("raise")), act("Reset", of("reset"))] : [];
      return [policy, keyText(key), count(denied), count(spent), isDigest(key)
        ? quiet("A digest: see show_keys")
        : h("div", { class: "buttons" }, act("Look up", () => lookUp(key)), ...acts)];
    });
    return table("Keys that are denied or charged most",
      [["Policy"], ["Key"], ["Denied", "number"], ["Units spent (about)", "number wide"], ["Action"]], rows, "stack");
  });
}

/** A key that is shown as a digest cannot be looked up or charged. */
const isDigest = (key) => /^#[0-9a-f]{8}$/.test(key);

export function overrides(list, mayWrite) {
  show($("override-list"), { list, mayWrite }, () => {
    if (!list.length) return quiet("No data because no override is in force.");
    const rows = list.slice(0, MAX_ROWS).map((it) => [
      it.policy, it.key ? keyText(it.key) : "all keys", h("code", {}, it.kind.quota ?? it.kind),
      it.until ? time(it.until) : "removed", it.by, it.reason,
      ...(mayWrite ? [button("End", `end-${it.policy}-${it.key ?? ""}`, () => change.end(it),
        `End the override of ${it.key ?? "all keys"} under ${it.policy}`)] : []),
    ]);
    const more = list.length > MAX_ROWS ? [quiet(`The first ${MAX_ROWS} of ${count(list.length)}.`)] : [];
    return [...more, table("Overrides in force",
      [["Policy"], ["Key"], ["In force"], ["Until", "nowrap"], ["By", "wide"], ["Reason", "text wide"], ...(mayWrite ? [["Action"]] : [])], rows)];
  });
}

export function trials(list) {
  show($("trial-list"), list, () => {
    if (!list.length) return quiet("No data because no policy is on trial, or no request was charged to one yet.");
    const rows = list.map((it) => [
      it.policy, h("code", {}, it.quota), count(it.allowed_by_both), count(it.allowed_by_trial_only),
      count(it.allowed_by_live_only), count(it.denied_by_both),
    ]);
    return table("Trials so far", [["Policy"], ["Quota"], ["Admitted by both", "number"], ["Only by the trial", "number"],
      ["Only by the live limit", "number"], ["Denied by both", "number"]], rows);
  });
}

export function audit(list, mayWrite) {
  show($("audit-list"), { list, mayWrite }, () => {
    if (!list.length) return quiet("No data because nothing was changed yet, or because Redis has lost its data.");
    const rows = list.map((it) => [
      time(it.time), it.by, it.action, it.policy, it.key ? keyText(it.key) : "all keys",
      it.before || it.after ? `${it.before || "none"} → ${it.after || "none"}` : "", it.reason,
      ...(mayWrite ? [canUndo(it) ? button("Undo", `undo-${it.time}`, () => change.undo(it),
        `Undo: ${it.action} ${it.key ?? "all keys"} under ${it.policy}, ${it.reason}`) : ""] : []),
    ]);
    return table("Audit log, newest first", [["Time", "nowrap"], ["By"], ["Change"], ["Policy"], ["Key"], ["Before → after", "text"],
      ["Reason", "text"], ...(mayWrite ? [["Action"]] : [])], rows);
  });
}

/** Overrides are undone. The end of one needs no key in the clear, and setting one does. */
const canUndo = ({ action, key, before }) => ["set", "remove"].includes(action) && !(before && isDigest(key ?? ""));

export function failed(parent, error) {
  show($(parent), error.message, () => h("p", { class: "error" }, error.message));
}
