// The store, its breaker, leases, memory and the configuration.

import { $, count, h, show } from "./dom.js";

export function store(status) {
  show($("status"), status, () => facts(status).map(([title, value]) => {
    const missing = value?.no_data;
    return h("div", {}, h("dt", {}, title), h("dd", { class: missing ? "quiet" : undefined }, missing ? `${missing}.` : value));
  }));
}

function facts({ store: it, home, leases, memory, config, overrides }) {
  return [
    ...ofStore(it, ""),
    ...(home ? ofStore(home, " of the home store") : []),
    ["Leases of this process", `${count(leases.units)} units of ${count(leases.keys)} keys`],
    ["Memory of this process", memory.no_data ? memory
      : `${count(memory.keys)} keys, ${count(memory.bytes / 1024)} KiB; ${count(memory.evicted)} evicted`],
    ["Configuration", config.no_data ? config : ofConfig(config)],
    ["Overrides", overrides.error ? warning("not followed", overrides.error) : ofOverrides(overrides)],
  ];
}

function ofStore(it, suffix) {
  const ms = (value) => (value.no_data ? value : `${(value * 1000).toFixed(2)} ms`);
  const breaker = it.breaker.no_data ? it.breaker : pill(it.breaker.state);
  const list = [
    [`Breaker${suffix}`, breaker],
    [`Instances${suffix}`, it.instances.no_data ? it.instances : count(it.instances)],
    [`Response time${suffix}`, ms(it.latency_seconds)],
    [`Scheduling delay${suffix}`, ms(it.scheduling_delay_seconds)],
  ];
  if (it.clock_drift_ppm) list.push([`Clock drift${suffix}`, `${count(it.clock_drift_ppm)} µs a second`]);
  if (it.not_ready) list.push([`Not ready${suffix}`, it.not_ready]);
  return list;
}

const pill = (state) => h("span", { class: state === "closed" ? "pill" : "pill warn" }, state);

function ofConfig({ version, error, needs_restart: needsRestart }) {
  if (error) return warning("refused", `the file has a mistake, version ${version} stays in force`, error.text);
  const text = `version ${version} in force`;
  return needsRestart ? warning("restart", `${text}, but the store or the resilience in the file acts after a restart only`) : text;
}

function ofOverrides({ losses, lost }) {
  if (!losses) return "followed by this process";
  const text = `the store has lost changes ${count(losses)} times: compare the list with what you want`;
  const lines = lost.map(({ policy, key, kind }) => `${policy} ${key ?? "all keys"}: ${kind.quota ?? kind}`);
  return warning("lost", lost.length ? `${text}. Not in force any more:` : text, lines.join("\n"));
}

const warning = (state, text, details) => h("div", {},
  h("span", { class: "pill warn" }, state), ` ${text}`, details && h("pre", { tabindex: "0" }, details));
