// Elements are only ever made of text: nothing that a document or a label says becomes markup.

export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value != null) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

export const find = (id) => document.getElementById(id);

export function say(message, isProblem = false) {
  const status = find("status");
  status.textContent = message;
  status.classList.toggle("problem", isProblem);
}

export function percent(share) {
  if (share < 0.001) return share > 0 ? "< 0.1 %" : "0 %";
  if (share > 0.999) return share < 1 ? "> 99.9 %" : "100 %";
  return `${(100 * share).toFixed(share >= 0.1 && share <= 0.99 ? 0 : 1)} %`;
}

export const counted = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;
