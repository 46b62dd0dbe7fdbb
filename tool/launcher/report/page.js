// SPDX-License-Identifier: BSD-3-Clause
// Replaces the static drawings by charts that can be read off and zoomed: drag to zoom, double click to see all again.
"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const digits = (v, n) => {
    if (v === null || v === undefined) return "–";
    if (v === 0) return "0";
    if (Number.isInteger(v) && Math.abs(v) < 1e7) return v.toLocaleString("en-US");
    const size = Math.abs(v);
    if (size >= 1e3 && size < 1e7) return Math.round(v).toLocaleString("en-US");
    return size < 1e-4 || size >= 1e7 ? v.toExponential(n - 1).replace("e+", "e").replace(/\.?0+e/, "e") : String(+v.toPrecision(n));
  };
  const bytes = (v) => {
    if (v === null || v === undefined) return "–";
    for (const [unit, power] of [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]])
      if (Math.abs(v) >= power) return digits(v / power, 3) + " " + unit;
    return digits(v, 3) + " B";
  };
  const seconds = (v) => {
    if (v === null || v === undefined) return "–";
    if (v === 0) return "0 s";
    if (Math.abs(v) < 1) return digits(v * 1000, 3) + " ms";
    if (v < 100) return digits(v, 3) + " s";
    const m = Math.floor(Math.round(v) / 60);
    return m >= 60 ? Math.floor(m / 60) + " h " + String(m % 60).padStart(2, "0") + " min"
                   : m + " min " + String(Math.round(v) % 60).padStart(2, "0") + " s";
  };
  const formats = {number: (v) => digits(v, 4), bytes, seconds, share: (v) => (v === null ? "–" : digits(100 * v, 2) + " %")};
  const together = {};
  for (const unit of Object.keys(formats)) together[unit] = uPlot.sync("x-" + unit);
  const height = (width) => (width < 500 ? 190 : 230);

  const marks = (chart) => (u) => {
    const c = u.ctx;
    c.save();
    c.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
    c.lineWidth = devicePixelRatio;
    for (const [x, kind] of chart.marks) {
      const at = u.valToPos(x, "x", true);
      if (at < u.bbox.left || at > u.bbox.left + u.bbox.width) continue;
      c.strokeStyle = css(/lost|ejected|abort|failed/.test(kind) ? "--bad" : /checkpoint|joined/.test(kind) ? "--good" : "--soft");
      c.beginPath();
      c.moveTo(at, u.bbox.top);
      c.lineTo(at, u.bbox.top + u.bbox.height);
      c.stroke();
    }
    c.restore();
  };

  const draw = (figure) => {
    const chart = charts[+figure.dataset.chart];
    const show = formats[chart.unit], showX = formats[chart.xUnit];
    const axis = (more) => Object.assign({stroke: () => css("--soft"), font: "12px system-ui, sans-serif",
      grid: {stroke: () => css("--grid"), width: 1}, ticks: {show: false}}, more);
    const width = () => figure.clientWidth - 28;
    const u = new uPlot({
      width: width(), height: height(width()),
      cursor: {sync: {key: together[chart.xUnit].key, setSeries: false}, points: {size: 6}},
      scales: {x: {time: false, range: (u, low, high) => (low === high || low === null ? chart.x : [low, high])},
               y: chart.log ? {distr: 3, range: chart.y} : {range: chart.y}},
      axes: [axis({values: (u, list) => list.map(showX), grid: {show: false}}),
             axis({values: (u, list) => list.map((v) => (v === null ? "" : show(v))), size: 70})],
      series: [{label: chart.xUnit === "seconds" ? "time" : "round", value: (u, v) => showX(v)}].concat(chart.names.map((name, i) => ({
        label: name, width: 1.8, stroke: () => css("--c" + (i % 8)), spanGaps: chart.span,
        points: {show: (u, s, first, last) => chart.data[0].length < 12, size: 5, fill: () => css("--c" + (i % 8))},
        value: (u, v) => show(v)}))),
      hooks: {draw: [marks(chart)]},
    }, chart.data, figure);
    figure.classList.add("live");
    u.setScale("x", {min: chart.x[0], max: chart.x[1]});
    return () => {
      u.setSize({width: width(), height: height(width())});
    };
  };
  const figures = [...document.querySelectorAll("figure[data-chart]")].map(draw);
  const redraw = () => figures.forEach((f) => f());
  let waiting = 0;
  addEventListener("resize", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(redraw);
  });
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.open = true; }));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
})();
