// A worker that lays out DOT text with Graphviz: text in, SVG text or an error out.
import { instance } from "@viz-js/viz";

const graphviz = instance();
self.onmessage = async ({ data }) => {
  try {
    const viz = await graphviz;
    self.postMessage({ id: data.id, svg: viz.renderString(data.dot, { format: "svg" }) });
  } catch (error) {
    self.postMessage({ id: data.id, error: String(error) });
  }
};
