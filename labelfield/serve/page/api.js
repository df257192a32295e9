// Requests to the server that this page comes from.

async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    throw new Error("The server does not answer.");
  }
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(found.error || `The server says ${answer.status}.`);
  return found;
}

const post = (path, body) => ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
const of = (path, model, more = {}) => ask(`${path}?${new URLSearchParams({ model, ...more })}`);

export const models = () => ask("models");
export const tag = (body) => post("tag", body);
export const labels = (model, q) => of("labels", model, { q, n: "12" });
export const corrections = (model) => of("corrections", model);
export const correct = (body) => post("corrections", body);
export const removeCorrection = (number) => ask(`corrections/${number}`, { method: "DELETE" });
export const learning = (model) => of("learn", model);
export const learn = (model) => post("learn", { model });
export const undoLearning = (model) => post("learn/undo", { model });
export const dashboard = (model) => of("dashboard", model);
