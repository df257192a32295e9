// How the server and a model are doing.

import * as api from "./api.js";
import { counted, find, make, percent, say } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";

function chart(values, label) {
  const top = Math.max(1, ...values);
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${values.length * 10} 100`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("class", "chart");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", label);
  const line = document.createElementNS(SVG, "line");
  for (const [name, value] of Object.entries({ x1: 0, x2: values.length * 10, y1: 99.5, y2: 99.5, class: "axis" })) line.setAttribute(name, value);
  svg.append(line);
  values.forEach((value, place) => {
    const bar = document.createElementNS(SVG, "rect");
    const height = (98 * value) / top;
    for (const [name, number] of Object.entries({ x: place * 10 + 1, y: 99 - height, width: 8, height })) bar.setAttribute(name, number);
    svg.append(bar);
  });
  return svg;
}

const tile = (name, value) => make("div", { class: "tile" }, make("dt", {}, name), make("dd", {}, value));
function ms(value) {
  if (value == null) return "–";
  if (value >= 1000) return `${(value / 1000).toFixed(1)} s`;
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
}

function table(head, rows) {
  return make("table", {},
    head.some(Boolean) ? make("thead", {}, make("tr", {}, ...head.map((name) => make("th", { scope: "col" }, name)))) : null,
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell, place) => make(place ? "td" : "th", place ? {} : { scope: "row" }, cell))))));
}

function drift(found) {
  const card = make("section", { class: "card" }, make("h2", {}, "Are documents still as in training?"));
  if (!found) {
    card.append(make("p", { class: "muted" }, "Nothing can be said yet: too few documents since the server started, or a model that cannot compare."));
    return card;
  }
  card.append(make("p", {}, found.message));
  if (found.rows?.length) card.append(table(["", ...found.columns], found.rows));
  return card;
}

export async function show(model) {
  let found;
  try {
    found = await api.dashboard(model);
  } catch (error) {
    say(error.message, true);
    return;
  }
  const hour = found.last_hour;
  const minutes = hour.by_minute.map((one) => one.requests);
  const months = found.precision_by_month;
  find("dashboard-view").replaceChildren(
    make("dl", { class: "tiles" },
      tile("Requests / hour", hour.requests.toLocaleString("en")),
      tile("Documents", hour.documents.toLocaleString("en")),
      tile("Median latency", ms(hour.p50_ms)),
      tile("99th percentile", ms(hour.p99_ms)),
      tile("Refused", hour.refused.toLocaleString("en")),
      tile("Failed", hour.errors.toLocaleString("en")),
      tile("Waiting", `${found.queue.waiting} / ${found.queue.capacity}`)),
    make("div", { class: "two" },
      make("section", { class: "card" }, make("h2", {}, "Requests per minute"),
        chart(minutes, `Requests per minute in the last hour; ${counted(hour.requests, "request")} together, at most ${Math.max(...minutes)} in a minute`),
        make("p", { class: "muted" }, `The last hour${found.workers > 1 ? ", of one of the workers" : ""}; at most ${Math.max(...minutes)} in a minute.`)),
      make("section", { class: "card" }, make("h2", {}, "Precision by month"),
        months.length
          ? table(["Month", "Documents", "Tags", "Right"], months.map((one) => [one.month, String(one.documents), String(one.tags), percent(one.precision)]))
          : make("p", { class: "muted" }, "No suggested tags were corrected yet: store some corrections, and this shows how many suggested tags were right.")),
      drift(found.drift),
      make("section", { class: "card" }, make("h2", {}, "The model"),
        table(["", ""], [["Name", found.model.name], ["Version", found.model.version], ["Labels", found.model.labels.toLocaleString("en")], ["Saved", found.model.modified.replace("T", " ").replace("+00:00", " UTC")], ["Kind", found.model.summary]]))));
}
