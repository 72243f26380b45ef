"use strict";
// Every text goes in as text, never as markup: names and messages are written by tenants.
const PAUSE = 2000;
const at = (id) => document.getElementById(id);
let last = null;

function node(tag, text, kind) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function fill(list, items, make) {
  at(list).replaceChildren(...items.map(make));
}

function ago(time, now) {
  const seconds = Math.max(0, Math.round((new Date(now) - new Date(time)) / 1000));
  if (seconds < 90) return `${seconds} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h ago` : `${Math.round(seconds / 86400)} d ago`;
}

function repaired(drift) {
  return drift.repairedMs === null ? "not put right" : `put right after ${drift.repairedMs} ms`;
}

function badges(data) {
  const all = [node("span", data.leading ? "leading" : "following", data.leading ? "badge good" : "badge")];
  all.push(data.waiting ? node("span", data.waiting, "badge bad") : node("span", "ready", "badge good"));
  if (data.dryRun) all.push(node("span", "dry run", "badge warn"));
  at("badges").replaceChildren(...all);
}

function connection(item) {
  const line = node("li");
  line.append(node("strong", item.up ? "✓ " : "✗ ", item.up ? "good" : "bad"), node("span", `${item.name}: ${item.state}`));
  return line;
}

function pool(item) {
  const total = item.used + item.free;
  const share = total > 0 ? item.used / total : 0;
  const line = node("li", `${item.name} ${item.family}: ${item.used} used, ${item.free} free`);
  const bar = node("progress", undefined, share >= 0.9 ? "bad" : share >= 0.75 ? "warn" : "");
  bar.max = total > 0 ? total : 1;
  bar.value = item.used;
  bar.setAttribute("aria-label", `${Math.round(share * 100)} % of ${item.name} ${item.family} used`);
  line.append(bar);
  return line;
}

function services(data) {
  const wanted = at("filter").value.trim().toLowerCase();
  const fits = (item) => !wanted || `${item.name} ${item.addresses.join(" ")}`.toLowerCase().includes(wanted);
  const drifts = new Map();
  for (const drift of data.drifts) if (!drifts.has(drift.service)) drifts.set(drift.service, drift);
  fill("services", data.services.shown.filter(fits), (item) => {
    const line = node("tr");
    const state = node("td");
    state.append(node("span", item.served ? "✓ " : "✗ ", item.served ? "good" : "bad"), node("span", item.reason));
    if (item.message) state.append(node("div", item.message, "quiet"));
    const drift = drifts.get(item.name);
    const words = drift ? `${drift.what} by ${drift.cause}, ${ago(drift.at, data.at)}, ${repaired(drift)}` : "";
    line.append(node("td", item.name), node("td", item.addresses.join(", ") || "none"), state, node("td", words, "quiet"));
    return line;
  });
  at("counts").textContent = `${data.services.served} of ${data.services.total} served`;
  const more = data.services.total - data.services.shown.length;
  at("cut").hidden = more <= 0;
  at("cut").textContent = `${more} more are not shown; those in trouble come first.`;
}

function show(data) {
  last = data;
  document.title = `groundcrew ${data.controller}`;
  at("controller").textContent = data.controller;
  badges(data);
  at("connections-section").hidden = data.connections.length === 0;
  fill("connections", data.connections, connection);
  at("pools-section").hidden = data.pools.length === 0;
  fill("pools", data.pools, pool);
  at("services-section").hidden = !data.services;
  if (data.services) services(data);
  at("no-drifts").hidden = data.drifts.length > 0;
  fill("drifts", data.drifts, (drift) => {
    const line = node("li", `${drift.service}: ${drift.what}`);
    line.append(node("div", `by ${drift.cause}, ${ago(drift.at, data.at)}, ${repaired(drift)}`, "quiet"));
    return line;
  });
  at("no-plans").hidden = data.plans.length > 0;
  fill("plans", data.plans, (plan) => {
    const line = node("li", plan.about);
    line.append(node("span", ` ${ago(plan.at, data.at)}`, "quiet"), node("pre", plan.lines.join("\n")));
    return line;
  });
  at("footer").textContent = `version ${data.version}, as of ${new Date(data.at).toLocaleTimeString()}`;
}

async function look() {
  try {
    const answer = await fetch("data.json", { cache: "no-store", signal: AbortSignal.timeout(5000) });
    if (!answer.ok) throw new Error(answer.statusText);
    show(await answer.json());
    at("lost").hidden = true;
  } catch {
    at("lost").hidden = false;
  }
  setTimeout(look, PAUSE);
}

at("filter").addEventListener("input", () => { if (last && last.services) services(last); });
look();
