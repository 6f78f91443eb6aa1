// The figures of the compare page, and the words that they share with its tables.
(function () {
  "use strict";
  const crlbench = window.crlbench;
  const SIGNS = { better: "▲", equivalent: "■", worse: "▼", undecided: "○", preview: "◇" };
  const SHAPES = {
    better: "triangle-up",
    equivalent: "square",
    worse: "triangle-down",
    undecided: "circle",
    preview: "diamond",
  };
  const DASHES = [
    [1, 0],
    [7, 3],
    [2, 3],
    [9, 3, 2, 3],
    [4, 4],
    [1, 3],
  ];

  const { number, places, span } = crlbench;

  function grouped(value) {
    return Math.round(value).toLocaleString("en");
  }

  function name(side) {
    return side.label;
  }

  function tasksOf(sides) {
    return [...new Set(sides.flatMap((side) => Object.keys(side.tasks)))].sort();
  }

  function effectChart(effects, title, sign, margin) {
    const data = effects.map(({ short, label, pair: { effect } }) => ({
      pair: short,
      value: effect.value,
      call: effect.call,
      low: (effect.interval || [null])[0],
      high: (effect.interval || [null, null])[1],
      inner_low: (effect.inner || [null])[0],
      inner_high: (effect.inner || [null, null])[1],
      text: `${label}: ${number(effect.value, places(effect.interval), true)} ${span(effect.interval, true)}, ${effect.call}`,
    }));
    const calls = Object.keys(SIGNS);
    const y = {
      field: "pair",
      type: "nominal",
      sort: null,
      title: null,
      axis: { ticks: false, domain: false, labelFontWeight: 600, labelLimit: 220 },
    };
    const x = (field) => ({
      field,
      type: "quantitative",
      title: `Difference in ${sign}`,
      axis: { tickCount: 5, labelOverlap: true },
    });
    return {
      title: `Paired differences in ${title.toLowerCase()}`,
      description: data.map((row) => row.text).join(". ") + ".",
      spec: (width, color) => {
        const hue = {
          field: "call",
          type: "nominal",
          scale: {
            domain: calls,
            range: ["better", "equivalent", "worse", "undecided", "undecided"].map((name) =>
              color(`--crl-${name}`),
            ),
          },
          legend: null,
        };
        return {
          // Labels stand left of the plot, at about 7 pixels a letter.
          width: width - 30 - Math.min(220, 7 * Math.max(...data.map((row) => row.pair.length))),
          height: { step: 34 },
          data: { values: data },
          layer: [
            {
              data: { values: [{ low: -margin, high: margin }] },
              mark: { type: "rect", opacity: 0.13, color: color("--crl-equivalent") },
              encoding: { x: x("low"), x2: { field: "high" } },
            },
            {
              data: { values: [{ zero: 0 }] },
              mark: { type: "rule", color: color("--crl-muted") },
              encoding: { x: x("zero") },
            },
            {
              mark: { type: "rule", strokeWidth: 1.6, strokeCap: "round" },
              encoding: { y, x: x("low"), x2: { field: "high" }, color: hue },
            },
            {
              mark: { type: "rule", strokeWidth: 5, strokeCap: "round", opacity: 0.6 },
              encoding: { y, x: x("inner_low"), x2: { field: "inner_high" }, color: hue },
            },
            {
              mark: { type: "point", filled: true, size: 110, opacity: 1 },
              encoding: {
                y,
                x: x("value"),
                color: hue,
                shape: {
                  field: "call",
                  type: "nominal",
                  scale: { domain: calls, range: calls.map((one) => SHAPES[one]) },
                  legend: null,
                },
                tooltip: { field: "text" },
              },
            },
          ],
        };
      },
    };
  }

  /** Columns of a grid of panels, and the width of one. */
  function grid(width, count, least) {
    const fitting = Math.max(1, Math.floor(width / least));
    const columns = Math.ceil(count / Math.ceil(count / fitting));
    return { columns, panel: Math.floor((width - 50 - 20 * (columns - 1)) / columns) };
  }

  function areaChart(sides) {
    const rows = sides.flatMap((side) =>
      Object.entries(side.tasks)
        .filter(([, task]) => task.E !== null)
        .map(([task, found]) => ({
          task,
          side,
          entry: name(side),
          E: found.E,
          H: found.H,
          L: found.L,
        })),
    );
    const values = rows.flatMap(({ task, entry, E, H, L }) => [
      { task, entry, part: "H", from: 0, to: L < 0 ? E : H },
      { task, entry, part: L < 0 ? "lost" : "L", from: H, to: E },
    ]);
    const parts = ["H", "L", "lost"].filter((part) => values.some((row) => row.part === part));
    const hues = { H: "--crl-head", L: "--crl-learned", lost: "--crl-loss" };
    const words = ({ task, side, E, H, L }) =>
      `${task}, ${name(side)}: ${number(E)} = ${number(H)} ${L < 0 ? "−" : "+"} ${number(Math.abs(L))}`;
    return {
      title: "E = H + L by task",
      description: `${rows.map(words).join(". ")}.`,
      table: {
        columns: ["Task", "Entry", "E", "H", "L", "Λ [95 %]"],
        rows: rows.map(({ task, side, E, H, L }) => [
          task,
          name(side),
          number(E),
          number(H),
          number(L, 2, true),
          `${number(side.tasks[task].lambda, places(side.tasks[task].interval))} ${span(side.tasks[task].interval)}`,
        ]),
      },
      spec: (width, color) => {
        const { columns, panel } = grid(width, tasksOf(sides).length, 260);
        return {
          data: { values },
          facet: { field: "task", type: "nominal", title: null, header: { labelAnchor: "start" } },
          columns,
          spec: {
            width: panel,
            height: { step: 24 },
            mark: { type: "bar" },
            encoding: {
              y: {
                field: "entry",
                type: "nominal",
                title: null,
                axis: { ticks: false, domain: false, labelFontWeight: 600 },
              },
              x: { field: "from", type: "quantitative", title: "E", axis: { tickCount: 4 } },
              x2: { field: "to" },
              color: {
                field: "part",
                type: "nominal",
                title: null,
                scale: { domain: parts, range: parts.map((part) => color(hues[part])) },
                legend: { orient: "top" },
              },
            },
          },
        };
      },
    };
  }

  function curveChart(sides, over, words) {
    const seeds = [];
    const means = [];
    const rows = [];
    tasksOf(sides).forEach((task) => {
      sides.forEach((side) => {
        const found = side.tasks[task];
        if (!found) return;
        const entry = name(side);
        found.curves.forEach((curve) => {
          curve.u.forEach((u, t) =>
            seeds.push({ task, entry, seed: curve.seed, x: curve.x[over][t], u }),
          );
        });
        found.mean.u.forEach((u, t) => {
          const x = found.mean.x[over][t];
          means.push({ task, entry, x, u });
          rows.push([task, entry, String(t), grouped(x), number(u)]);
        });
      });
    });
    const last = (side, task) =>
      side.tasks[task].mean.u.slice(-1).map((u) => `${task} ${number(u)}`);
    const ends = sides.map(
      (side) =>
        `${name(side)} ends at ${Object.keys(side.tasks)
          .flatMap((task) => last(side, task))
          .join(", ")}`,
    );
    return {
      title: `Learning curves over ${words}`,
      description: `Mean u over seeds. ${ends.join(". ")}.`,
      table: { columns: ["Task", "Entry", "Evaluation", words, "Mean u"], rows },
      spec: (width, color) => {
        const { columns, panel } = grid(width, tasksOf(sides).length, 320);
        const domain = sides.map(name);
        const hue = {
          field: "entry",
          type: "nominal",
          title: null,
          scale: { domain, range: sides.map((side) => color(`--crl-series-${side.i}`)) },
          legend: { orient: "top", columns: width < 700 ? 1 : 2, labelLimit: width - 60 },
        };
        const x = {
          field: "x",
          type: "quantitative",
          title: words,
          axis: { tickCount: 4, format: "~s" },
        };
        const y = { field: "u", type: "quantitative", title: "u", axis: { tickCount: 5 } };
        return {
          facet: { field: "task", type: "nominal", title: null, header: { labelAnchor: "start" } },
          columns,
          // Tasks differ in what they spend; within a task all entries share the axis.
          resolve: { scale: { x: "independent" } },
          data: {
            values: [
              ...seeds.map((row) => ({ ...row, kind: "seed" })),
              ...means.map((row) => ({ ...row, kind: "mean" })),
            ],
          },
          spec: {
            width: panel,
            height: 200,
            layer: [
              {
                transform: [{ filter: "datum.kind === 'seed'" }],
                mark: { type: "line", strokeWidth: 1, opacity: 0.3 },
                encoding: { x, y, color: hue, detail: { field: "seed" } },
              },
              {
                transform: [{ filter: "datum.kind === 'mean'" }],
                mark: { type: "line", strokeWidth: 2.6 },
                encoding: {
                  x,
                  y,
                  color: hue,
                  strokeDash: {
                    field: "entry",
                    type: "nominal",
                    title: null,
                    scale: { domain, range: sides.map((side) => DASHES[side.i]) },
                  },
                },
              },
            ],
          },
        };
      },
    };
  }

  crlbench.words = { SIGNS, grouped, name, tasksOf };
  crlbench.draw = { effects: effectChart, areas: areaChart, curves: curveChart };
})();
