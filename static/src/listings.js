// Turns the plain texts of a panel into read-only views that draw only the lines on the screen, and drawings into pictures.
import { syntaxHighlighting } from "@codemirror/language";
import { search, searchKeymap } from "@codemirror/search";
import { EditorState } from "@codemirror/state";
import { EditorView, keymap, lineNumbers } from "@codemirror/view";
import { classHighlighter } from "@lezer/highlight";
import { copy } from "./copy.js";
import { language } from "./languages.js";
import { linkable } from "./links.js";

const nonce = document.querySelector('meta[name="style-nonce"]').content;
export const shared = [EditorView.cspNonce.of(nonce), syntaxHighlighting(classHighlighter), ...linkable];

export function upgradeListings(root, links) {
  for (const section of root.querySelectorAll(".listing")) {
    const pre = section.querySelector("pre");
    if (!pre) continue;
    const title = section.querySelector("h3 span").textContent;
    const view = new EditorView({
      state: EditorState.create({
        doc: pre.textContent,
        extensions: [
          ...shared,
          lineNumbers(),
          EditorState.readOnly.of(true),
          EditorView.editable.of(false),
          EditorView.contentAttributes.of({ tabindex: "0", "aria-label": title, role: "textbox", "aria-readonly": "true", "aria-multiline": "true" }),
          search({ top: true }),
          keymap.of(searchKeymap),
          language(section.dataset.language),
        ],
      }),
    });
    pre.replaceWith(view.dom);
    section.querySelector(".copy-text").addEventListener("click", (event) => copy(view.state.doc.toString(), event.currentTarget));
    links.add(view, section.dataset.marks ? JSON.parse(section.dataset.marks) : []);
  }
  for (const element of root.querySelectorAll("tr[data-lines]")) links.watchElement(element, JSON.parse(element.dataset.lines));
}

let worker = null;
let serial = 0;
const waiting = new Map();

// Lays out in a worker that is ended when it takes too long: the page never freezes on a large graph.
function layout(dot) {
  if (!worker) {
    worker = new Worker(new URL("./layout.js", import.meta.url).pathname + new URL(import.meta.url).search);
    worker.onmessage = ({ data }) => {
      waiting.get(data.id)?.(data);
      waiting.delete(data.id);
    };
  }
  const id = ++serial;
  return new Promise((resolve) => {
    const timer = setTimeout(() => {
      worker?.terminate();
      worker = null;
      waiting.delete(id);
      resolve({ error: "took longer than 10 s to lay out" });
    }, 10_000);
    waiting.set(id, (answer) => { clearTimeout(timer); resolve(answer); });
    worker.postMessage({ id, dot });
  });
}

function safeSvg(text) {
  const svg = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  if (svg.localName !== "svg") return null;
  for (const element of [...svg.querySelectorAll("script, foreignObject, image, use, style, a")]) element.remove();
  for (const element of [svg, ...svg.querySelectorAll("*")]) {
    for (const { name } of [...element.attributes]) if (/^on|href$|^style$/i.test(name)) element.removeAttribute(name);
  }
  for (const title of [...svg.querySelectorAll("title")]) title.remove();
  return document.importNode(svg, true);
}

export function upgradeDrawings(root, links) {
  for (const figure of root.querySelectorAll(".drawing[data-dot]")) {
    const canvas = figure.querySelector(".canvas");
    const lines = JSON.parse(figure.dataset.nodes);
    layout(figure.dataset.dot).then((answer) => {
      const svg = answer.svg && safeSvg(answer.svg);
      if (!svg) {
        canvas.textContent = `The graph could not be drawn: ${answer.error ?? "no picture"}`;
        return;
      }
      canvas.replaceChildren(svg);
      zoomable(figure, canvas, svg);
      lines.forEach((own, index) => {
        const node = svg.querySelector(`#node-${index}`);
        if (!node || !own.length) return;
        node.dataset.lines = JSON.stringify(own);
        links.watchElement(node, own);
      });
    });
  }
}

function zoomable(figure, canvas, svg) {
  const natural = parseFloat(svg.getAttribute("width")) * (96 / 72);
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  svg.removeAttribute("width");
  svg.removeAttribute("height");
  let zoom = Math.min(1, (canvas.clientWidth - 16) / natural || 1, Math.max(0.45, (460 / height) * (width / natural)));
  const apply = () => { svg.style.width = `${Math.round(natural * zoom)}px`; };
  apply();
  const controls = document.createElement("span");
  controls.className = "zoom";
  for (const [label, title, change] of [["−", "Smaller", 0.8], ["+", "Larger", 1.25]]) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "quiet";
    button.textContent = label;
    button.title = title;
    button.setAttribute("aria-label", title);
    button.addEventListener("click", () => { zoom = Math.min(4, Math.max(0.1, zoom * change)); apply(); });
    controls.append(button);
  }
  figure.querySelector("figcaption").append(controls);
}
