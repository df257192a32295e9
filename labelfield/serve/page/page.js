// The page: documents in, tags out, and corrections back.

import * as api from "./api.js";
import * as dashboard from "./dashboard.js";
import { counted, find, make, percent, say } from "./dom.js";
import { Review } from "./review.js";

const state = { models: [], model: null, items: [], asked: 0, timer: null, view: "tag" };
const OFF = 49;

const facts = () => state.models.find((one) => one.name === state.model);

async function start() {
  try {
    state.models = (await api.models()).models;
  } catch (error) {
    say(error.message, true);
    setTimeout(start, 2000);
    return;
  }
  find("model").replaceChildren(...state.models.map((one) => make("option", { value: one.name }, one.name)));
  choose(state.models[0].name);
}

function showAbout() {
  const own = facts();
  find("about").textContent = `${own.name}, version ${own.version}: ${own.summary}`;
}

function choose(name) {
  state.model = name;
  const own = facts();
  showAbout();
  const isRows = own.kind === "rows";
  find("form").hidden = find("promise").hidden = find("corrections").hidden = isRows;
  say(isRows ? "This model takes rows of numbers: POST them to /tag." : "");
  find("fields").replaceChildren(...(own.fields ?? []).map((field, place, all) =>
    make("label", {}, make("span", { class: "name" }, field),
      place < all.length - 1 ? make("input", { type: "text", name: field }) : make("textarea", { name: field, placeholder: "Paste a document" }))));
  forget();
  refreshCorrections();
  if (state.view === "dashboard") dashboard.show(name);
}

// Answers that are still under way are about documents that are not shown any more.
function forget() {
  state.items = [];
  state.asked += 1;
  find("results").hidden = true;
}

function typed() {
  const fields = Object.fromEntries([...find("fields").querySelectorAll("[name]")].map((one) => [one.name, one.value]));
  return Object.values(fields).some((text) => text.trim()) ? [{ fields }] : [];
}

const precision = () => Number(find("precision").value);

async function run() {
  if (!state.items.length) return;
  const number = ++state.asked;
  const body = { model: state.model, documents: state.items.map((item) => item.fields), k: 8 };
  if (precision() > OFF) body.precision = precision() / 100;
  say(`Tagging ${counted(state.items.length, "document")}…`);
  try {
    const { results } = await api.tag(body);
    if (number === state.asked) showResults(results);
  } catch (error) {
    if (number !== state.asked) return;
    find("guarantee").textContent = body.precision ? error.message : find("guarantee").textContent;
    say(error.message, true);
  }
}

function showResults(results) {
  // What a person should see first comes first.
  const order = results.map((_, place) => place).sort((a, b) => results[b].review - results[a].review || results[b].uncertainty - results[a].uncertainty);
  const reviews = order.map((place) => new Review(state.items[place], results[place], state.model, refreshCorrections));
  const n = results.filter((one) => one.review).length;
  find("results").hidden = false;
  find("results-summary").textContent = results.length > 1 ? `${counted(results.length, "document")}; ${n ? `${n} for a person to see, which come first` : "none that a person has to see"}.` : "";
  find("list").replaceChildren(...reviews.map((one) => one.element));
  find("guarantee").textContent = results[0].guarantee ?? "Off: all likely tags are shown, with their probabilities.";
  say(`${counted(results.length, "document")} tagged.`);
  reviews.slice(0, 3).forEach((one) => one.tags.length && one.explain());
}

async function take(files) {
  const found = [];
  const fields = facts().fields;
  if (!fields) return;
  const last = fields[fields.length - 1];
  const whole = (text, name) => ({ name, fields: { ...Object.fromEntries(fields.map((one) => [one, ""])), [last]: text } });
  for (const file of files) {
    const text = await file.text();
    if (!/\.(jsonl|ndjson|json)$/i.test(file.name)) {
      found.push(whole(text, file.name));
      continue;
    }
    try {
      const parsed = /\.json$/i.test(file.name) ? [JSON.parse(text)].flat() : text.split("\n").filter((line) => line.trim()).map((line) => JSON.parse(line));
      for (const one of parsed) {
        const own = typeof one === "string" ? whole(one) : { id: one.id == null ? null : String(one.id), fields: Object.fromEntries(fields.map((field) => [field, String(one[field] ?? "")])) };
        if (typeof one === "object" && !fields.some((field) => one[field]) && one.text) own.fields[last] = String(one.text);
        found.push(own);
      }
    } catch {
      say(`${file.name} is not JSON.`, true);
      return;
    }
  }
  if (!found.length) return;
  state.items = found;
  await run();
  find("results-title").focus();
}

// Corrections and learning

async function refreshCorrections() {
  if (facts().kind === "rows") return;
  let found, job;
  try {
    [found, job] = await Promise.all([api.corrections(state.model), api.learning(state.model)]);
  } catch (error) {
    find("corrections-summary").textContent = error.message;
    clearTimeout(state.timer);
    if (state.wasRunning) state.timer = setTimeout(refreshCorrections, 1000);
    return;
  }
  const last = job.learning, isRunning = last?.state === "running";
  const hadFocus = find("corrections").contains(document.activeElement);
  find("corrections-summary").textContent = !found.kept
    ? "Corrections are not kept by this server."
    : `${counted(found.new, "correction")} not learned yet, ${found.all.toLocaleString("en")} in all.${last?.state === "failed" ? ` The last learning failed: ${last.message}` : ""}`;
  find("learn").disabled = !found.new || isRunning;
  find("undo-learning").disabled = !job.can_undo;
  find("learning").hidden = !isRunning;
  find("history").hidden = !found.corrections.length;
  if (isRunning) {
    find("progress").value = last.progress;
    find("progress-shown").textContent = percent(last.progress);
  }
  find("corrections-list").replaceChildren(...found.corrections.slice(0, 20).map(correctionRow));
  // What had the focus may be gone or disabled now: the keyboard goes on from here.
  if (hadFocus && (document.activeElement === document.body || document.activeElement.disabled)) find("corrections-title").focus();
  clearTimeout(state.timer);
  if (isRunning) state.timer = setTimeout(refreshCorrections, 1000);
  else if (state.wasRunning) {
    await changed();
    say(last?.state === "done" ? "Learned. New tags come from the new model." : `Learning failed: ${last?.message ?? ""}`, last?.state !== "done");
  }
  state.wasRunning = isRunning;
}

// Another model answers under the same name: say which, and tag what is shown again. Messages come after it.
async function changed() {
  for (const item of state.items) if (item.saved != null) Object.assign(item, { saved: null, said: null }); // it was learned, or is listed below
  state.models = (await api.models()).models;
  showAbout();
  await run();
}

function correctionRow(one) {
  const text = Object.values(one.document).filter(Boolean).join(" – ");
  return make("li", {},
    make("span", {}, text.length > 90 ? `${text.slice(0, 90)}…` : text),
    make("strong", {}, one.labels.join(", ") || "no tags"),
    one.learning == null
      ? make("button", { type: "button", "aria-label": `Undo the correction of ${text.slice(0, 40)}`, onclick: () => act(() => api.removeCorrection(one.number), "The correction is undone.") }, "Undo")
      : make("span", { class: "badge" }, "learned"));
}

async function act(work, message) {
  try {
    await work();
    say(message);
  } catch (error) {
    say(error.message, true);
  }
  refreshCorrections();
}

// Events

find("model").addEventListener("change", (event) => choose(event.target.value));
find("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  state.items = typed();
  if (!state.items.length) say("Paste a document first.", true);
  await run();
});
find("form").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) find("form").requestSubmit();
});
find("clear").addEventListener("click", () => {
  find("form").reset();
  forget();
  find("fields").querySelector("textarea")?.focus();
});
find("files").addEventListener("change", async (event) => {
  await take([...event.target.files]);
  event.target.value = ""; // so that the same file can be opened again
});
find("precision").addEventListener("input", () => {
  find("precision-shown").textContent = precision() > OFF ? `${precision()} %` : "off";
  find("precision").setAttribute("aria-valuetext", precision() > OFF ? `${precision()} percent` : "off");
});
find("precision").addEventListener("change", run);
find("learn").addEventListener("click", () => act(() => api.learn(state.model), "Learning has begun; tagging goes on."));
find("undo-learning").addEventListener("click", () => act(async () => { await api.undoLearning(state.model); await changed(); }, "The model before is back."));
for (const name of ["tag", "dashboard"]) {
  find(`show-${name}`).addEventListener("click", () => {
    state.view = name;
    say("");
    for (const one of ["tag", "dashboard"]) {
      find(`${one}-view`).hidden = one !== name;
      find(`show-${one}`).setAttribute("aria-pressed", String(one === name));
    }
    if (name === "dashboard") dashboard.show(state.model);
  });
}
const target = document.querySelector(".card");
for (const name of ["dragenter", "dragover"]) {
  document.addEventListener(name, (event) => { event.preventDefault(); target.classList.add("over"); });
}
for (const name of ["dragleave", "drop"]) document.addEventListener(name, () => target.classList.remove("over"));
document.addEventListener("drop", (event) => { event.preventDefault(); if (event.dataTransfer?.files.length) take(event.dataTransfer.files); });

start();
