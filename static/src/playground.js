// The page: editor, tabs, panels, and what ties them together. htmx submits and follows runs; this adds what HTML alone cannot do.
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { python } from "@codemirror/lang-python";
import { bracketMatching, indentOnInput, indentUnit } from "@codemirror/language";
import { lintGutter, setDiagnostics } from "@codemirror/lint";
import { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
import { EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, highlightActiveLineGutter, keymap, lineNumbers } from "@codemirror/view";
import htmx from "./htmx.js";
import "htmx-ext-sse";
import { copy } from "./copy.js";
import { Links } from "./links.js";
import { shared, upgradeDrawings, upgradeListings } from "./listings.js";

const find = (id) => document.getElementById(id);
const links = new Links();
let runSource = null;
let submitted = null;

function makeEditor(textarea) {
  const run = () => { htmx.trigger(find("controls"), "submit"); return true; };
  const changed = EditorView.updateListener.of((update) => {
    if (!update.docChanged) return;
    textarea.value = update.state.doc.toString();
    checkStale();
    checkExample(textarea.value);
  });
  const view = new EditorView({
    parent: find("editor"),
    state: EditorState.create({
      doc: textarea.value,
      extensions: [
        ...shared,
        lineNumbers(), lintGutter(), history(), drawSelection(), indentOnInput(), bracketMatching(),
        highlightActiveLine(), highlightActiveLineGutter(), highlightSelectionMatches(),
        EditorState.tabSize.of(4), indentUnit.of("    "), python(), changed,
        EditorView.contentAttributes.of({ "aria-label": "Python source. Escape, then Tab leaves the editor; Control Enter runs.", spellcheck: "false", autocapitalize: "off" }),
        keymap.of([{ key: "Mod-Enter", run }, ...searchKeymap, ...defaultKeymap, ...historyKeymap, indentWithTab]),
      ],
    }),
  });
  textarea.hidden = true;
  return view;
}

function checkStale() {
  const stale = runSource !== null && editor.state.doc.toString() !== runSource;
  find("stale").hidden = !stale;
  links.enable(!stale);
}

const exampleText = (name) => document.querySelector(`template.example[data-name="${CSS.escape(name)}"]`)?.content.textContent;

// An edited example is no longer that example, and can be chosen again.
function checkExample(source) {
  const select = find("example");
  const kept = exampleText(select.value);
  if (kept !== undefined && kept !== source) select.value = "";
}

// A run that could not even be asked for: htmx would say so only in the console.
function sayUnsent(status) {
  const problem = find("problem");
  const message = document.createElement("p");
  message.className = "message";
  message.append(Object.assign(document.createElement("strong"), { textContent: status ? `The server answered ${status} and ran nothing.` : "The server does not answer, so nothing was run." }));
  const hint = Object.assign(document.createElement("p"), { className: "hint", textContent: "The snippet is still here. Press Run again once the server is up." });
  problem.replaceChildren(message, hint);
  for (const name of ["line", "column", "message"]) delete problem.dataset[name];
  problem.setAttribute("role", "alert");
  problem.hidden = false;
  showProblem();
}

function showProblem() {
  const problem = find("problem");
  const line = Number(problem?.dataset.line ?? 0);
  const doc = editor.state.doc;
  const diagnostics = [];
  if (line >= 1 && line <= doc.lines) {
    const place = doc.line(line);
    const from = Math.min(place.from + Number(problem.dataset.column), Math.max(place.from, place.to - 1));
    const start = from === place.from ? from + (place.text.length - place.text.trimStart().length) : from;
    diagnostics.push({ from: Math.min(start, place.to), to: place.to, severity: "error", message: problem.dataset.message });
  }
  for (const [number, reason] of JSON.parse(find("breaks")?.dataset.breaks ?? "[]")) {
    if (number > doc.lines) continue;
    const place = doc.line(number);
    diagnostics.push({ from: place.from + place.text.length - place.text.trimStart().length, to: place.to, severity: "warning", message: reason });
  }
  editor.dispatch(setDiagnostics(editor.state, diagnostics.sort((a, b) => a.from - b.from)));
  const worst = diagnostics.find((item) => item.severity === "error");
  if (worst) editor.dispatch({ effects: EditorView.scrollIntoView(worst.from, { y: "nearest", yMargin: 40 }) });
}

// What was refused stands at its field, and the field says so; the options open for one of theirs.
function showFaults() {
  for (const fault of document.querySelectorAll(".fault")) {
    const field = document.querySelector(`[aria-describedby="${fault.id}"]`);
    if (field) field.setAttribute("aria-invalid", String(!fault.hidden));
    if (!fault.hidden && fault.closest("#options")) find("options").open = true;
  }
}

// How many options differ from what they are by default.
function countOptions() {
  const form = find("controls").elements;
  const usual = { policy: "greedy", mode: "default", dynamic: "" };
  const entries = form.config.value.split("\n").filter((line) => line.split("#")[0].trim()).length;
  const count = Object.entries(usual).filter(([name, value]) => form[name].value !== value).length + form.fullgraph.checked + !form.measure.checked + entries;
  const summary = find("options").querySelector("summary");
  summary.querySelector(".count")?.remove();
  if (count) summary.append(" ", Object.assign(document.createElement("span"), { className: "count", textContent: String(count) }));
}

const current = () => find("panel").dataset;

function address() {
  const query = new URLSearchParams();
  const { tab, region, part } = current();
  if (tab && tab !== "code") query.set("tab", tab);
  if (region && region !== "0") query.set("region", region);
  if (part) query.set("part", part);
  return query.size ? `?${query}` : "";
}

function loadPanel() {
  const run = find("run").dataset.run;
  if (!run) return;
  const { tab, region, part } = current();
  const query = new URLSearchParams({ tab });
  if (region) query.set("region", region);
  if (part) query.set("part", part);
  htmx.ajax("GET", `/runs/${run}/panel?${query}`, { source: "#panel", target: "#panel", swap: "innerHTML" })?.catch(() => {});  // sayUnsent tells it
}

function chooseTab(name, focus) {
  for (const tab of document.querySelectorAll(".tab")) {
    const chosen = tab.dataset.name === name;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    if (chosen) {
      if (focus) tab.focus();
      tab.scrollIntoView({ block: "nearest", inline: "nearest" });
    }
  }
  const panel = find("panel");
  panel.dataset.tab = name;
  panel.setAttribute("aria-labelledby", `tab-${name}`);
  find("tab-field").value = name;
  panel.scrollTop = 0;
  if (find("run").dataset.run) {
    window.history.replaceState(window.history.state, "", location.pathname + address());
    loadPanel();
  }
}

function gotoLine(number) {
  const line = editor.state.doc.line(Math.min(Math.max(number, 1), editor.state.doc.lines));
  editor.dispatch({ selection: { anchor: line.from }, effects: EditorView.scrollIntoView(line.from, { y: "center" }) });
  editor.focus();
}

document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.options[open], details.machine[open], details.against[open]")) if (!menu.contains(event.target)) menu.open = false;
  const hit = (selector) => event.target.closest(selector);
  let element;
  if ((element = hit(".tab"))) chooseTab(element.dataset.name, false);
  else if ((element = hit(".goto-tab"))) { if (find(`tab-${element.dataset.name}`)) chooseTab(element.dataset.name, true); }
  else if ((element = hit(".goto-line"))) { event.stopPropagation(); gotoLine(Number(element.dataset.line)); }
  else if ((element = hit(".copy-link"))) copy(location.origin + element.dataset.path + address(), element);
  else if ((element = hit(".part"))) { current().part = element.dataset.part; keepAddress(); loadPanel(); }
});

function keepAddress() { window.history.replaceState(window.history.state, "", location.pathname + address()); }

document.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && event.target.closest?.("details.options, details.machine, details.against");
  if (menu) { menu.open = false; menu.querySelector("summary").focus(); }
  const tab = event.target.closest?.(".tab");
  if (tab) {
    const tabs = [...document.querySelectorAll(".tab")];
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const next = event.key === "Home" ? tabs[0] : event.key === "End" ? tabs.at(-1) : step && tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length];
    if (next) { event.preventDefault(); chooseTab(next.dataset.name, true); }
  } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.target.closest?.(".cm-editor")) {
    htmx.trigger(find("controls"), "submit");
  }
});

document.addEventListener("change", (event) => {
  if (event.target.closest("#options")) countOptions();
  if (event.target.id === "example") {
    const example = exampleText(event.target.value);
    if (example !== undefined) editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: example } });
  } else if (event.target.matches(".region")) {
    current().region = event.target.value;
    current().part = "";
    keepAddress();
    loadPanel();
  }
});

document.addEventListener("submit", (event) => {
  const field = event.target.querySelector(".tab-field");
  if (field) field.value = current().tab;
});

document.addEventListener("input", (event) => {
  if (!event.target.matches(".filter-box")) return;
  const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const table of event.target.closest(".decisions").querySelectorAll("table")) {
    let shown = 0;
    for (const row of table.tBodies[0].rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    table.hidden = !shown;
  }
});

function dragSplitter() {
  const splitter = find("splitter");
  const bench = splitter.parentElement;
  const set = (percent) => {
    const kept = Math.min(75, Math.max(15, percent));
    bench.style.setProperty("--editor", `${kept}%`);
    splitter.setAttribute("aria-valuenow", String(Math.round(kept)));
  };
  splitter.addEventListener("pointerdown", (down) => {
    splitter.setPointerCapture(down.pointerId);
    const move = (event) => set(((event.clientX - bench.getBoundingClientRect().left) / bench.clientWidth) * 100);
    splitter.addEventListener("pointermove", move);
    splitter.addEventListener("pointerup", () => splitter.removeEventListener("pointermove", move), { once: true });
  });
  splitter.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -2, ArrowRight: 2 }[event.key];
    if (step) { event.preventDefault(); set(Number(splitter.getAttribute("aria-valuenow")) + step); }
  });
}

function panelArrived() {
  links.sweep();
  const pages = document.querySelector("#panel .pages");
  if (pages) {
    current().region = pages.dataset.region;
    current().part = pages.dataset.part;
  }
  upgradeListings(find("panel"), links);
  upgradeDrawings(find("panel"), links);
  showProblem();
}

let editor;
function start() {
  const textarea = find("source");
  if (!textarea) return;
  editor = makeEditor(textarea);
  links.watchEditor(editor);
  if (find("run").dataset.run) runSource = editor.state.doc.toString();
  dragSplitter();
  panelArrived();
  document.querySelector(".strip").scrollLeft = find(`tab-${current().tab}`).offsetLeft - 40;
  document.body.addEventListener("htmx:beforeRequest", (event) => {
    if (event.target.id === "controls") submitted = editor.state.doc.toString();
  });
  const unsent = (event) => {
    if (event.target.id === "controls") sayUnsent(event.detail.xhr.status);
    else if (event.target.id === "panel") find("panel").replaceChildren(Object.assign(document.createElement("p"), { className: "empty", textContent: "The server does not answer: this stage cannot be shown now. Choose it again once the server is up." }));
  };
  document.body.addEventListener("htmx:sendError", unsent);
  document.body.addEventListener("htmx:responseError", unsent);
  document.body.addEventListener("htmx:afterSwap", (event) => {
    if (event.target.id === "run" || event.detail.requestConfig?.verb === "post") {
      runSource = find("run").dataset.run ? submitted : null;
      panelArrived();
      checkStale();
      showFaults();
      find(`tab-${current().tab}`)?.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else if (event.target.id === "panel") panelArrived();
  });
  document.body.addEventListener("htmx:sseMessage", (event) => {
    const { type, data } = event.detail;
    if (type === "states") showProblem();
    if (type !== "stage" || (data !== "*" && data !== current().tab)) return;
    const failed = document.querySelector("#problem:not([hidden]) .goto-tab")?.dataset.name;
    const empty = find(`state-${current().tab}`)?.dataset.state === "missing";
    if (failed && empty && find(`tab-${failed}`)) chooseTab(failed, false);
    else loadPanel();
  });
  document.documentElement.dataset.ready = "yes";
}

start();
