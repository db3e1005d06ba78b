// Colours for the texts that stages show: Python by its grammar, the others by a small scanner each.
import { StreamLanguage } from "@codemirror/language";
import { python } from "@codemirror/lang-python";
import { RangeSetBuilder } from "@codemirror/state";
import { Decoration, ViewPlugin } from "@codemirror/view";

function scanner(rules, block) {
  return StreamLanguage.define({
    startState: () => ({ inside: false }),
    copyState: (state) => ({ ...state }),
    token(stream, state) {
      if (state.inside) {
        state.inside = !stream.match(/^.*?\*\//);
        if (state.inside) stream.skipToEnd();
        return "comment";
      }
      if (stream.eatSpace()) return null;
      if (block && stream.match("/*")) {
        state.inside = true;
        return "comment";
      }
      for (const [pattern, kind] of rules) if (stream.match(pattern)) return kind;
      stream.next();
      return null;
    },
  });
}

const string = [/^"(?:[^"\\]|\\.)*"?/, "string"];
const number = [/^-?(?:0[xX][0-9a-fA-F]+|\d+\.?\d*(?:[eE][-+]?\d+)?)[fFuUlL]*\b/, "number"];

const cpp = scanner([
  [/^\/\/.*/, "comment"],
  string,
  [/^'(?:[^'\\]|\\.)+'/, "string"],
  [/^#\s*\w+.*/, "meta"],
  [/^(?:if|else|for|while|do|return|break|continue|switch|case|default|template|typename|struct|class|namespace|using|static|inline|extern|const|constexpr|auto|void|new|delete|sizeof|static_cast|reinterpret_cast|const_cast|true|false|nullptr|public|private|operator|__restrict__)\b/, "keyword"],
  [/^(?:int|long|short|char|bool|float|double|unsigned|signed|(?:u?int(?:8|16|32|64)|size|ptrdiff)_t)\b/, "typeName"],
  number,
  [/^[A-Za-z_]\w*(?=\s*\()/, "variableName.function"],
  [/^[A-Za-z_]\w*/, "variableName"],
], true);

const mlir = scanner([
  [/^\/\/.*/, "comment"],
  string,
  [/^#[\w.$]+/, "meta"],
  [/^loc\(/, "comment"],
  [/^%[\w.$#:-]+/, "variableName"],
  [/^@[\w.$-]+/, "variableName.function"],
  [/^![\w.$]+|^(?:tensor|memref|vector)\b|^(?:[sui]?i\d+|f16|bf16|f32|f64|f8\w*|index)\b/, "typeName"],
  [/^[a-z_]+\.[\w.]+/, "keyword"],
  [/^(?:module|attributes|func|return|to|step|iter_args|loc|dense|true|false|unit)\b/, "keyword"],
  number,
  [/^[A-Za-z_][\w.$]*/, null],
]);

const llvm = scanner([
  [/^;.*/, "comment"],
  string,
  [/^![\w.]*/, "meta"],
  [/^#\d+/, "meta"],
  [/^%[\w.$-]+/, "variableName"],
  [/^@[\w.$-]+/, "variableName.function"],
  [/^[\w.$-]+:(?=\s|$)/, "labelName"],
  [/^(?:i\d+|float|double|half|bfloat|void|ptr|label|metadata)\b/, "typeName"],
  number,
  [/^(?:define|declare|ret|br|switch|call|tail|load|store|add|sub|mul|sdiv|udiv|fadd|fsub|fmul|fdiv|fneg|icmp|fcmp|select|phi|getelementptr|inbounds|bitcast|zext|sext|trunc|fptrunc|fpext|sitofp|uitofp|fptosi|ptrtoint|inttoptr|insertvalue|extractvalue|insertelement|extractelement|shl|lshr|ashr|and|or|xor|asm|sideeffect|attributes|target|source_filename|alloca|unreachable)\b/, "keyword"],
  [/^[A-Za-z_][\w.]*/, null],
]);

const ptx = scanner([
  [/^\/\/.*/, "comment"],
  string,
  [/^%[\w.]+/, "variableName"],
  [/^\$?[A-Za-z_$][\w$]*:/, "labelName"],
  [/^@!?%\w+/, "meta"],
  [/^\.(?:[busf]\d+|pred|f16x2|v\d)\b/, "typeName"],
  [/^\.[A-Za-z_]\w*/, "meta"],
  number,
  [/^[a-z][\w]*(?:\.[\w:]+)*/, "keyword"],
], true);

const sass = scanner([
  [/^\/\/.*/, "comment"],
  [/^\/\*[^*]*\*\//, "comment"],
  [/^(?:#|;).*/, "comment"],
  string,
  [/^\.[\w.]+:?/, "labelName"],
  [/^@!?U?P\w+/, "meta"],
  [/^(?:U?R\d+|RZ|URZ|U?P\d|PT|UPT|SR_[\w.]+|v\d+|s\d+|v\[\d+:\d+\]|s\[\d+:\d+\])\b/, "variableName"],
  [/^%\w+/, "variableName"],
  [/^[xyz]mm\d+|^r(?:[a-ds]x|[sb]p|[sd]i|\d+)[dwb]?\b|^e[a-ds]x\b/, "variableName"],
  [/^(?:PTR|DWORD|QWORD|YMMWORD|XMMWORD)\b/, "typeName"],
  number,
  [/^[A-Za-z][\w]*(?:\.[\w]+)*/, "keyword"],
]);

// A difference is coloured by whole lines.
const kinds = { "+": Decoration.line({ class: "come" }), "-": Decoration.line({ class: "gone" }), "@": Decoration.line({ class: "hunk" }) };
const diff = ViewPlugin.fromClass(
  class {
    constructor(view) { this.draw(view); }
    update(update) { if (update.viewportChanged) this.draw(update.view); }
    draw(view) {
      const builder = new RangeSetBuilder();
      for (const { from, to } of view.visibleRanges) {
        for (let line = view.state.doc.lineAt(from); ; line = view.state.doc.line(line.number + 1)) {
          const kind = line.number < 3 && /^(---|\+\+\+) /.test(line.text) ? kinds["@"] : kinds[line.text[0]];
          if (kind) builder.add(line.from, line.from, kind);
          if (line.to >= to || line.number === view.state.doc.lines) break;
        }
      }
      this.decorations = builder.finish();
    }
  },
  { decorations: (plugin) => plugin.decorations },
);

const json = scanner([[/^"(?:[^"\\]|\\.)*"(?=\s*:)/, "propertyName"], string, number, [/^(?:true|false|null)\b/, "keyword"]]);
const known = { python: python(), cpp, mlir, llvm, ptx, sass, asm: sass, json, diff };

export const language = (name) => known[name] ?? [];
