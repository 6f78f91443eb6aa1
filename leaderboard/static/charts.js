// Draws a Vega-Lite specification with the colours of the page, again whenever they or the width
// change, and puts the same numbers as a table beneath it. Nothing moves, so that there is no motion
// to reduce.
(function () {
  "use strict";
  const crlbench = (window.crlbench = window.crlbench || {});
  const drawn = new Map();
  let serial = 0;

  /** A CSS variable as a colour that an SVG attribute may hold. */
  function color(name) {
    const probe = document.createElement("span");
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  }

  /** The colours of entries by their place, as in the figures that come with the pages. */
  function series() {
    return [0, 1, 2, 3, 4, 5].map((place) => color(`--crl-series-${place}`));
  }

  function config() {
    const [ink, muted, grid] = ["--crl-ink", "--crl-muted", "--crl-grid"].map(color);
    const font = getComputedStyle(document.body).fontFamily;
    return {
      background: null,
      font,
      view: { stroke: null },
      axis: {
        labelColor: muted,
        titleColor: muted,
        gridColor: grid,
        domainColor: muted,
        tickColor: grid,
        labelFontSize: 12,
        titleFontSize: 12,
        titleFontWeight: "normal",
      },
      legend: {
        labelColor: ink,
        titleColor: muted,
        labelFontSize: 12,
        symbolOpacity: 1,
        symbolSize: 500,
        symbolStrokeWidth: 2.5,
      },
      header: { labelColor: ink, titleColor: muted, labelFontSize: 13, labelFontWeight: 600 },
      title: { color: ink },
      range: { category: series() },
    };
  }

  /**
   * Fills a figure.
   * @param figure an empty <figure>
   * @param chart {title, description, spec(width, color), table: {columns, rows}}: spec gives the
   *   Vega-Lite specification for a width in pixels.
   */
  crlbench.chart = function (figure, chart) {
    const room = document.createElement("div");
    room.className = "chart";
    figure.replaceChildren(room, ...(chart.table ? [table(chart)] : []));
    drawn.set(figure, { chart, room, width: 0, view: null });
    widths.observe(figure);
    draw(figure);
  };

  function draw(figure) {
    const own = drawn.get(figure);
    const width = Math.floor(own.room.clientWidth);
    if (width === 0) return;
    own.width = width;
    if (own.view) own.view.finalize();
    const settings = config();
    const compiled = vegaLite.compile(own.chart.spec(width, color), { config: settings }).spec;
    const runtime = vega.parse(compiled, undefined, { ast: true });
    own.view = new vega.View(runtime, {
      expr: vegaInterpreter.expressionInterpreter,
      renderer: "svg",
      container: own.room,
      hover: false,
    });
    own.view.run();
    name(own.room.querySelector("svg"), own.chart);
  }

  /** Title and description for those who cannot see the figure. */
  function name(svg, chart) {
    serial += 1;
    const parts = ["title", "desc"].map((tag) => {
      const part = document.createElementNS("http://www.w3.org/2000/svg", tag);
      part.id = `chart-${serial}-${tag}`;
      part.textContent = tag === "title" ? chart.title : chart.description;
      return part;
    });
    svg.prepend(...parts);
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-labelledby", parts.map((part) => part.id).join(" "));
    svg.querySelectorAll("[role^=graphics]").forEach((part) => {
      ["role", "aria-label", "aria-roledescription"].forEach((key) => part.removeAttribute(key));
    });
    const room = svg.parentElement;
    ["role", "aria-label", "aria-roledescription"].forEach((key) => room.removeAttribute(key));
  }

  /** The numbers of a chart behind a summary. */
  function table(chart) {
    const details = element("details");
    details.append(element("summary", `The same as a table: ${chart.title}`));
    details.append(crlbench.table(chart.title, chart.table.columns, chart.table.rows));
    return details;
  }

  function element(tag, text) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  /**
   * A table that scrolls inside its own room, and on a phone is cards; first cells of rows are
   * their headings. Roles stand there because cards are laid out as no table.
   */
  crlbench.table = function (caption, columns, rows) {
    const room = element("div");
    room.className = "scroll";
    room.tabIndex = 0;
    room.setAttribute("role", "region");
    room.setAttribute("aria-label", caption);
    const made = element("table");
    made.className = "cards parts";
    made.setAttribute("role", "table");
    made.append(element("caption", caption));
    const head = made.createTHead().insertRow();
    columns.forEach((column) => {
      const cell = element("th", column);
      cell.scope = "col";
      cell.setAttribute("role", "columnheader");
      head.append(cell);
    });
    const body = made.createTBody();
    rows.forEach((row) => {
      const line = body.insertRow();
      row.forEach((content, i) => {
        const cell = element(i === 0 ? "th" : "td");
        if (i === 0) cell.scope = "row";
        else cell.dataset.label = columns[i];
        cell.setAttribute("role", i === 0 ? "rowheader" : "cell");
        cell.append(content instanceof Node ? content : String(content));
        line.append(cell);
      });
    });
    made.querySelectorAll("thead, tbody").forEach((part) => part.setAttribute("role", "rowgroup"));
    made.querySelectorAll("tr").forEach((line) => line.setAttribute("role", "row"));
    room.append(made);
    return room;
  };

  function redraw() {
    for (const figure of drawn.keys()) {
      if (figure.isConnected) draw(figure);
      else drawn.delete(figure);
    }
  }

  const widths = new ResizeObserver((entries) => {
    entries.forEach(({ target }) => {
      const own = drawn.get(target);
      if (own && target.isConnected && Math.floor(own.room.clientWidth) !== own.width) draw(target);
    });
  });
  new MutationObserver(redraw).observe(document.documentElement, {
    attributes: true,
    attributeFilter: ["data-theme"],
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
})();
