// One document with its tags: what carried them, and what a person says about them.

import * as api from "./api.js";
import { make, percent, say } from "./dom.js";

let numbered = 0;

export class Review {
  constructor(item, result, model, onSaved) {
    Object.assign(this, { item, result, model, onSaved, shown: 0, explanation: null });
    // What a person has said stays when the document is tagged again.
    item.said ??= new Map();
    this.number = ++numbered;
    this.suggested = result.tags.filter((tag) => result.guarantee || tag.probability >= 0.5);
    this.decisions = new Map(this.suggested.map((tag) => [tag.label, true]));
    // Unlikely tags would only be in the way; the first three are always shown.
    this.tags = result.tags.filter((tag, place) => place < 3 || tag.probability >= 0.02).map((tag) => ({ ...tag }));
    for (const [label, isYes] of item.said) this.note(label, isYes);
    this.element = make("li");
    this.render();
  }

  // A decision, or none any more.
  note(label, isYes) {
    this.item.said.set(label, isYes);
    if (isYes == null) this.decisions.delete(label);
    else this.decisions.set(label, isYes);
    if (isYes && !this.tags.some((tag) => tag.label === label)) this.tags.push({ label, probability: null });
  }

  get name() {
    const texts = Object.values(this.item.fields).filter(Boolean);
    const first = (this.item.name || texts[0] || "An empty document").trim();
    return first.length > 110 ? `${first.slice(0, 110)}…` : first;
  }

  render() {
    const focused = this.element.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    const id = `document-${this.number}`;
    this.text = make("p", { class: "text", tabindex: "0", role: "region", "aria-label": "Text" });
    this.list = make("ul", { class: "tags" }, ...this.tags.map((tag, place) => this.tagRow(tag, place)));
    this.element.replaceChildren(
      make("article", { class: "card document", "aria-labelledby": id },
        make("div", { class: "head" },
          make("h3", { id }, this.name),
          this.result.review ? make("span", { class: "badge look" }, "Please look") : null,
          make("span", { class: "badge" }, `uncertainty ${percent(this.result.uncertainty)}`),
          this.item.saved != null ? make("span", { class: "badge saved" }, "✓ stored") : null),
        make("div", {}, this.text, make("p", { class: "muted", "data-why": "" })),
        make("div", {},
          this.tags.length ? this.list : make("p", { class: "muted" }, "No tag is sure enough. Add the right ones."),
          this.adder(),
          make("div", { class: "row" },
            make("button", { type: "button", class: "primary", "data-key": "save", onclick: () => this.save() }, this.item.saved == null ? "Store as correction" : "Store again"),
            this.item.saved != null ? make("button", { type: "button", "data-key": "undo", onclick: () => this.undo() }, "Undo") : null))));
    this.showText();
    // A button that is gone, such as that which undid, leaves the focus to the one beside it.
    if (focused) (this.element.querySelector(`[data-key="${CSS.escape(focused)}"]`) ?? this.element.querySelector("[data-key=save]")).focus();
  }

  tagRow(tag, place) {
    const decision = this.decisions.get(tag.label);
    const fill = make("span", { class: "fill" });
    fill.style.width = `${100 * (tag.probability ?? 0)}%`;
    const button = (isYes) => make("button", {
      type: "button", class: isYes ? "yes" : "no", "data-key": `${isYes ? "yes" : "no"} ${place}`,
      "aria-pressed": String(decision === isYes), "aria-label": `${isYes ? "Accept" : "Reject"} ${tag.label}`, title: isYes ? "Accept" : "Reject",
      onclick: () => this.decide(tag.label, isYes),
    }, isYes ? "✓" : "✗");
    return make("li", { class: decision === true ? "chosen" : decision === false ? "rejected" : "" },
      make("button", { type: "button", class: "label", "data-key": `label ${place}`, "aria-pressed": String(this.shown === place), title: "Show the words that carried it", onclick: () => this.show(place) }, tag.label),
      make("div", { class: "decide" }, button(true), button(false)),
      make("div", { class: "meter" },
        make("span", { class: "track", "aria-hidden": "true" }, fill),
        make("span", {}, tag.probability == null ? "added" : percent(tag.probability))));
  }

  adder() {
    const id = `labels-${this.number}`;
    const options = make("datalist", { id });
    const input = make("input", { type: "text", list: id, "aria-label": "Add a tag", placeholder: "Add a tag", "data-key": "add", autocomplete: "off" });
    input.addEventListener("input", async () => {
      const asked = input.value;
      const { labels } = await api.labels(this.model, asked).catch(() => ({ labels: [] }));
      if (asked === input.value) options.replaceChildren(...labels.map((label) => make("option", { value: label })));
    });
    const add = () => {
      const label = input.value.trim();
      if (!label) return;
      this.note(label, true);
      this.render();
    };
    input.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); add(); } });
    return make("div", { class: "add" }, input, options, make("button", { type: "button", "data-key": "add it", onclick: add }, "Add"));
  }

  decide(label, isYes) {
    this.note(label, this.decisions.get(label) === isYes ? null : isYes);
    this.render();
  }

  async show(place) {
    this.shown = place;
    this.render();
    await this.explain();
  }

  async explain() {
    if (this.explanation) return;
    try {
      const found = await api.tag({ model: this.model, documents: [this.item.fields], k: Math.max(1, this.result.tags.length), explain: 8 });
      this.explanation = found.results[0].explanation;
      this.showText();
    } catch (error) {
      say(error.message, true);
    }
  }

  showText() {
    const tag = this.tags[this.shown];
    const found = this.explanation?.find((one) => one.label === tag?.label);
    const why = this.element.querySelector("[data-why]");
    if (!found) {
      this.text.textContent = Object.values(this.item.fields).filter(Boolean).join("\n") || "(no text)";
      why.textContent = this.explanation && tag ? `Nothing is known about what speaks for ${tag.label}.` : "";
      return;
    }
    const marked = found.words.flatMap((word) => word.places.map((place) => [...place, word.effect])).sort((a, b) => a[0] - b[0]);
    const pieces = [];
    let at = 0;
    // Places count code points, as the server does.
    const letters = Array.from(found.text);
    for (const [start, end, effect] of marked) {
      if (start < at) continue;
      pieces.push(letters.slice(at, start).join(""), make("mark", { class: effect < 0 ? "against" : "for", title: `${effect > 0 ? "+" : "−"}${Math.abs(effect).toFixed(2)}` }, letters.slice(start, end).join("")));
      at = end;
    }
    pieces.push(letters.slice(at).join(""));
    this.text.replaceChildren(...pieces);
    const named = (sign) => found.words.filter((word) => sign * word.effect > 0).map((word) => word.word).join(", ");
    const best = named(1) ? `Words for ${found.label}: ${named(1)}.` : `No word of the text speaks for ${found.label}.`;
    why.textContent = named(-1) ? `${best} Against it: ${named(-1)}.` : best;
  }

  async save() {
    const labels = this.tags.map((tag) => tag.label).filter((label) => this.decisions.get(label) === true);
    const predicted = this.suggested.map(({ label, probability }) => ({ label, probability }));
    try {
      const body = { model: this.model, document: this.item.fields, predicted, labels };
      if (this.item.id) body.id = this.item.id;
      const before = this.item.saved;
      this.item.saved = (await api.correct(body)).correction;
      if (before != null) await api.removeCorrection(before).catch(() => {}); // one of the same id is gone already
      say("The correction is stored.");
    } catch (error) {
      say(error.message, true);
    }
    this.render();
    this.onSaved();
  }

  async undo() {
    try {
      await api.removeCorrection(this.item.saved);
      this.item.saved = null;
      say("The correction is undone.");
    } catch (error) {
      say(error.message, true);
    }
    this.render();
    this.onSaved();
  }
}
