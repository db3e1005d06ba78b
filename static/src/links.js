// Links lines of the snippet to lines of stages, both ways: hover shows, a click holds and brings the other side into view.
import { RangeSetBuilder, StateEffect, StateField } from "@codemirror/state";
import { Decoration, EditorView, ViewPlugin } from "@codemirror/view";

const setHot = StateEffect.define();
const setTints = StateEffect.define();
const hotLine = Decoration.line({ class: "hot" });
const tintLine = Array.from({ length: 8 }, (_, index) => Decoration.line({ class: `tint tint-${index}` }));

const hotField = StateField.define({
  create: () => Decoration.none,
  update(value, transaction) {
    for (const effect of transaction.effects) {
      if (!effect.is(setHot)) continue;
      const builder = new RangeSetBuilder();
      for (const line of effect.value) if (line <= transaction.state.doc.lines) builder.add(transaction.state.doc.line(line).from, transaction.state.doc.line(line).from, hotLine);
      return builder.finish();
    }
    return value.map(transaction.changes);
  },
  provide: (field) => EditorView.decorations.from(field),
});

// ``tints``: a map from a line of this text to one of eight hues. Only lines on the screen are drawn.
const tintField = StateField.define({
  create: () => new Map(),
  update: (value, transaction) => transaction.effects.reduce((kept, effect) => (effect.is(setTints) ? effect.value : kept), transaction.docChanged ? new Map() : value),
});
const tintPlugin = ViewPlugin.fromClass(
  class {
    constructor(view) { this.decorations = this.draw(view); }
    update(update) {
      if (update.docChanged || update.viewportChanged || update.startState.field(tintField) !== update.state.field(tintField)) this.decorations = this.draw(update.view);
    }
    draw(view) {
      const builder = new RangeSetBuilder();
      const tints = view.state.field(tintField);
      if (!tints.size) return Decoration.none;
      for (const { from, to } of view.visibleRanges) {
        for (let line = view.state.doc.lineAt(from); ; line = view.state.doc.line(line.number + 1)) {
          const hue = tints.get(line.number);
          if (hue !== undefined) builder.add(line.from, line.from, tintLine[hue]);
          if (line.to >= to || line.number === view.state.doc.lines) break;
        }
      }
      return builder.finish();
    }
  },
  { decorations: (plugin) => plugin.decorations },
);
export const linkable = [hotField, tintField, tintPlugin];

function lineAt(view, event) {
  const position = view.posAtCoords({ x: event.clientX, y: event.clientY });
  return position === null ? 0 : view.state.doc.lineAt(position).number;
}

export class Links {
  constructor() {
    this.editor = null;
    this.listings = new Map(); // view -> { marks, lines: Map(source line -> its lines) }
    this.held = null;
    this.enabled = true;
  }

  watchEditor(view) {
    this.editor = view;
    this.listen(view, (line) => [line]);
  }

  add(view, marks) {
    const lines = new Map();
    marks.forEach((places, index) => {
      for (const place of places) lines.has(place) ? lines.get(place).push(index + 1) : lines.set(place, [index + 1]);
    });
    this.listings.set(view, { marks, lines });
    this.listen(view, (line) => marks[line - 1] ?? []);
    this.tint();
  }

  // Forget listings whose panel has gone.
  sweep() {
    for (const view of [...this.listings.keys()]) {
      if (view.dom.isConnected) continue;
      this.listings.delete(view);
      view.destroy();
    }
    this.held = null;
    this.show([]);
    this.tint();
  }

  listen(view, sources) {
    let last = -1;
    view.dom.addEventListener("mousemove", (event) => {
      const line = lineAt(view, event);
      if (line === last) return;
      last = line;
      if (!this.held) this.show(line ? sources(line) : []);
    });
    view.dom.addEventListener("mouseleave", () => {
      last = -1;
      if (!this.held) this.show([]);
    });
    view.dom.addEventListener("click", (event) => {
      const line = lineAt(view, event);
      this.hold(line ? sources(line) : [], view);
    });
    view.dom.addEventListener("keyup", () => {
      if (view === this.editor) this.hold(sources(view.state.doc.lineAt(view.state.selection.main.head).number), view);
    });
  }

  watchElement(element, lines) {
    element.addEventListener("mouseenter", () => this.held || this.show(lines));
    element.addEventListener("mouseleave", () => this.held || this.show([]));
    element.addEventListener("click", () => this.hold(lines, element));
  }

  hold(lines, from) {
    const same = this.held && this.held.join() === lines.join();
    this.held = lines.length && !(same && from !== this.editor) ? lines : null;
    this.show(this.held ?? [], from);
  }

  // ``from`` is what was clicked: the other side scrolls to its first line that matches.
  show(lines, from) {
    if (!this.enabled) lines = [];
    const wanted = new Set(lines);
    const editorLines = [...wanted].sort((a, b) => a - b);
    if (this.editor) {
      this.editor.dispatch({ effects: setHot.of(editorLines) });
      if (from && from !== this.editor && editorLines.length) this.reveal(this.editor, editorLines[0]);
    }
    let revealed = Boolean(from) && from !== this.editor;
    for (const [view, { lines: index }] of this.listings) {
      const own = [...new Set(editorLines.flatMap((line) => index.get(line) ?? []))].sort((a, b) => a - b);
      view.dispatch({ effects: setHot.of(own) });
      if (from && !revealed && own.length) {
        this.reveal(view, own[0]);
        revealed = true;
      }
    }
    for (const element of document.querySelectorAll("#panel [data-lines]")) {
      element.classList.toggle("hot", JSON.parse(element.dataset.lines).some((line) => wanted.has(line)));
    }
  }

  reveal(view, line) {
    const block = view.lineBlockAt(view.state.doc.line(Math.min(line, view.state.doc.lines)).from);
    const box = view.scrollDOM.getBoundingClientRect();
    const panel = document.getElementById("panel").getBoundingClientRect();
    const top = view.documentTop + block.top;
    const low = view === this.editor ? box : { top: Math.max(box.top, panel.top), bottom: Math.min(box.bottom, panel.bottom) };
    if (top < low.top || top + block.height > low.bottom) view.dispatch({ effects: EditorView.scrollIntoView(block.from, { y: "center" }) });
  }

  // A line of the snippet and all that comes from it bear the same hue.
  tint() {
    const sources = new Set();
    for (const { lines } of this.listings.values()) for (const line of lines.keys()) sources.add(line);
    const hues = new Map([...sources].sort((a, b) => a - b).map((line, index) => [line, index % 8]));
    if (!this.enabled) hues.clear();
    this.editor?.dispatch({ effects: setTints.of(hues) });
    for (const [view, { marks }] of this.listings) {
      const own = new Map();
      marks.forEach((places, index) => places.length && hues.has(places[0]) && own.set(index + 1, hues.get(places[0])));
      view.dispatch({ effects: setTints.of(own) });
    }
  }

  enable(enabled) {
    if (this.enabled === enabled) return;
    this.enabled = enabled;
    this.held = null;
    this.show([]);
    this.tint();
  }
}
