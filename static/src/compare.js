// The comparison page: a line of the snippet and all that comes from it light up together in every column. htmx does the rest.
import "./htmx.js";
import "htmx-ext-sse";
import { copy } from "./copy.js";

let index = null; // key of a snippet's line -> the elements that come from it
let hot = [];
let held = null;

const keysOf = (element) => element?.dataset.l?.split(" ") ?? [];

function elements(keys) {
  if (!index) {
    index = new Map();
    for (const element of document.querySelectorAll("[data-l]")) for (const key of keysOf(element)) index.has(key) ? index.get(key).push(element) : index.set(key, [element]);
  }
  return keys.flatMap((key) => index.get(key) ?? []);
}

function show(keys) {
  for (const element of hot) element.classList.remove("hot");
  hot = elements(keys);
  for (const element of hot) element.classList.add("hot");
}

document.addEventListener("mouseover", (event) => {
  if (!held) show(keysOf(event.target.closest?.("[data-l]")));
});

document.addEventListener("click", (event) => {
  const button = event.target.closest(".copy-link");
  if (button) copy(location.href, button);
  const line = event.target.closest("[data-l]");
  const keys = keysOf(line);
  const same = held && held.join() === keys.join();
  held = keys.length && !same ? keys : null;
  show(held ?? []);
  if (held && line.closest(".snippet")) hot.find((element) => element.closest("#shown"))?.scrollIntoView({ block: "nearest", behavior: "smooth" });
});

document.addEventListener("change", (event) => {
  const form = event.target.closest("form.pick");
  if (form) form.requestSubmit();
});

document.addEventListener("htmx:afterSwap", () => {
  index = null;
  show(held ?? []);
});

document.documentElement.dataset.ready = "yes";
