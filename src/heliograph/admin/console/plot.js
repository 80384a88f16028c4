// Rates over the last two minutes, as two lines.
import { h, rate, set } from "./dom.js";

const SPAN = 120;
const WIDTH = 600;
const HEIGHT = 150;

// Turns counters into rates: what came since the last time, by how long that was.
export class Rates {
  constructor(...names) { this.names = names; this.last = null; this.series = Object.fromEntries(names.map((name) => [name, []])); this.now = {}; }

  add(figures, at = performance.now() / 1000) {
    const last = this.last;
    this.last = { at, figures: Object.fromEntries(this.names.map((name) => [name, figures[name]])) };
    if (last === null) return false;
    const passed = at - last.at;
    if (passed < 0.2) { this.last = last; return false; }
    for (const name of this.names) {
      const came = Math.max(0, figures[name] - last.figures[name]) / passed;
      this.now[name] = came;
      this.series[name].push(came);
      if (this.series[name].length > SPAN) this.series[name].shift();
    }
    return true;
  }
}

export class Plot {
  constructor(rates, lines) {
    this.rates = rates;
    this.lines = lines; // [series, colour, words]
    this.paths = lines.map(([, colour]) => [h("path", { class: `area ${colour}` }), h("path", { class: `line ${colour}` })]);
    this.svg = h("svg", { class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": "Rates of the last two minutes" },
      [0.25, 0.5, 0.75, 1].map((part) => h("line", { class: "axis", x1: 0, x2: WIDTH, y1: HEIGHT * part - 0.5, y2: HEIGHT * part - 0.5 })),
      this.paths);
    this.values = lines.map(() => h("b", {}, "–"));
    this.top = h("span", {}, "");
    this.element = h("div", {}, this.svg, h("div", { className: "legend" },
      lines.map(([, colour, words], at) => h("span", {}, h("i", { className: `key ${colour}` }), words, " ", this.values[at], " /s")), this.top));
  }

  draw() {
    const all = this.lines.flatMap(([name]) => this.rates.series[name]);
    const most = Math.max(1, ...all) * 1.1;
    this.lines.forEach(([name], at) => {
      const values = this.rates.series[name];
      const wide = Math.max(SPAN / 4, values.length);
      const start = wide - values.length;
      const points = values.map((value, index) => `${(((start + index) / (wide - 1)) * WIDTH).toFixed(1)},${(HEIGHT - (value / most) * HEIGHT).toFixed(1)}`);
      const [area, line] = this.paths[at];
      line.setAttribute("d", points.length ? `M${points.join("L")}` : "");
      area.setAttribute("d", points.length ? `M${points[0].split(",")[0]},${HEIGHT}L${points.join("L")}L${WIDTH},${HEIGHT}Z` : "");
      set(this.values[at], rate(this.rates.now[name]));
    });
    set(this.top, `top of the plot: ${rate(most)} /s`);
  }
}
