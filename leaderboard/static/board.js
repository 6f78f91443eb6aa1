// The standings: order, filters, columns and ticks, for all tables of the page alike. The whole
// state stands in the address, so that a link shows what its sender saw.
(function () {
  "use strict";
  const form = document.querySelector("[data-controls]");
  const FIRST = "tier";
  const FEW = window.matchMedia("(max-width: 44rem)").matches ? 8 : 60;
  const crlbench = window.crlbench;
  const tables = [...document.querySelectorAll("[data-sortable]")].map(read);
  const count = form.querySelector("[data-count]");
  const search = form.elements.q;
  const orders = form.elements.sort;
  const filters = [...form.querySelectorAll("select[data-filter]")];
  const columns = [...form.querySelectorAll("input[name=column]")];
  const fold = form.querySelector("[data-fold]");
  const range = crlbench.sizeRange(form);
  const elsewhere = form.querySelector("[data-models]");
  const points = [...document.querySelectorAll("[data-point]")];

  // What the page says, read once ----------------------------------------------------------------

  function read(table) {
    const heads = crlbench.headsOf(table);
    const groups = [...table.tBodies].map((body) => {
      const rows = [...body.querySelectorAll("tr[data-name]")].map((row) => ({
        row,
        name: row.dataset.name,
        cells: [...row.querySelectorAll(":scope > *")],
      }));
      return { body, rows, title: body.querySelector("tr.group"), drawn: rows.map(({ row }) => row) };
    });
    const more = crlbench.moreButton(table.parentNode, () => {
      view.everything = true;
      changed();
    });
    return { heads, groups, more };
  }

  // Rows say their places in the filters once, in the first table.
  const facets = new Map();
  tables[0].groups.forEach((group) =>
    group.rows.forEach(({ row, name }) => {
      const text = `${row.querySelector("th").textContent} ${name}`.toLowerCase();
      facets.set(name, { ...row.dataset, text });
    })
  );

  // Order, filters, columns ----------------------------------------------------------------------

  /** Names of the entries that the filters leave. */
  function kept() {
    const part = search.value.trim().toLowerCase();
    const wanted = filters.filter((select) => select.value);
    const fits = (own) => wanted.every((select) => own[select.name] === select.value);
    return new Set([...facets.keys()].filter((name) => {
      const own = facets.get(name);
      return fits(own) && range.fits(Number(own.size)) && own.text.includes(part);
    }));
  }

  /** Puts the rows of a table in place; a long table begins with its first rows alone. */
  function draw(table, names, name, down) {
    const head = table.heads.get(name) || table.heads.get(FIRST);
    const tier = table.heads.get(FIRST).index;
    let room = view.everything ? Infinity : FEW;
    let all = 0;
    table.groups.forEach((group) => {
      const left = crlbench.sorted(group.rows, head.index, down).filter((one) => names.has(one.name));
      const shown = left.slice(0, room);
      shown.forEach(({ row, cells }, place) => {
        const above = place ? shown[place - 1].cells[tier].dataset.value : undefined;
        row.classList.toggle("next", view.order === FIRST && place > 0 && above !== cells[tier].dataset.value);
      });
      all += left.length;
      room -= shown.length;
      const rows = shown.map(({ row }) => row);
      if (rows.length !== group.drawn.length || rows.some((row, i) => row !== group.drawn[i])) {
        group.body.replaceChildren(...(group.title && rows.length ? [group.title] : []), ...rows);
        group.drawn = rows;
      }
    });
    table.heads.forEach(({ cell }) => cell.removeAttribute("aria-sort"));
    head.cell.setAttribute("aria-sort", down ? "descending" : "ascending");
    table.more.hidden = room > 0 || all <= FEW;
    table.more.textContent = `Show all ${all} ${count.dataset.rows}`;
  }

  function say(some) {
    const all = facets.size;
    const { row, rows } = count.dataset;
    const left =
      some === all
        ? `${all} ${all === 1 ? row : rows}`
        : !some
          ? `No ${row} matches.`
          : `${some} of ${all} ${rows}; tiers and ranks are those of the whole board`;
    count.textContent = [range.fault(), left].filter(Boolean).join(" ");
    elsewhere.hidden = some > 0;
    elsewhere.href = `${elsewhere.dataset.models}?q=${encodeURIComponent(search.value.trim())}`;
    const set = filters.filter((select) => select.value).length + range.count();
    fold.textContent = set ? `Filters (${set})` : "Filters";
  }

  const visible = new Map(columns.map((box) => [box.value, box.checked]));

  function showColumns() {
    columns.forEach((box) => {
      if (visible.get(box.value) === box.checked) return;
      visible.set(box.value, box.checked);
      tables.forEach(({ heads, groups }) => {
        const head = heads.get(box.value);
        if (!head) return;
        const rows = groups.flatMap((group) => group.rows);
        const label = head.cell.textContent.trim(); // a phone writes it before the value
        rows.forEach(({ cells }) => { cells[head.index].dataset.label = label; });
        [head.cell, ...rows.map(({ cells }) => cells[head.index])].forEach((cell) => {
          cell.hidden = !box.checked;
        });
      });
    });
  }

  // State and address ----------------------------------------------------------------------------

  const usual = columns.filter((box) => box.defaultChecked).map((box) => box.value).join();

  function write() {
    const state = new URLSearchParams();
    if (view.order !== FIRST) state.set("sort", view.order);
    if (search.value.trim()) state.set("q", search.value.trim());
    filters.forEach((select) => select.value && state.set(select.name, select.value));
    range.write(state);
    const chosen = columns.filter((box) => box.checked).map((box) => box.value).join();
    if (chosen !== usual) state.set("columns", chosen);
    if (view.everything) state.set("all", "1");
    if (ticked.length) state.set("compare", ticked.join());
    crlbench.writeState(state);
  }

  function restore() {
    const state = crlbench.readState();
    view.order = known(state.get("sort"));
    view.everything = state.has("all");
    search.value = state.get("q") || "";
    range.restore(state);
    const wanted = new Set((state.get("compare") || "").split(","));
    ticked = [...wanted].filter((key) => boxes.has(key)).slice(0, MOST);
    filters.forEach((select) => choose(select, state.get(select.name) || ""));
    const chosen = state.has("columns") ? state.get("columns") : usual;
    columns.forEach((box) => {
      box.checked = chosen.split(",").includes(box.value);
    });
    apply();
  }

  /** What an address asks for and the page does not have is the first choice. */
  function choose(select, wanted) {
    const there = [...select.options].some((option) => option.value === wanted);
    select.value = there ? wanted : select.options[0].value;
  }

  function known(wanted) {
    const key = (wanted || "").replace(/^-/, "");
    return tables.some(({ heads }) => heads.has(key)) ? wanted : FIRST;
  }

  function apply() {
    const { order } = view;
    const down = order.startsWith("-");
    const names = kept();
    tables.forEach((table) => draw(table, names, down ? order.slice(1) : order, down));
    say(names.size);
    showColumns();
    orders.value = order;
    points.forEach((point) => {
      point.toggleAttribute("hidden", !names.has(point.dataset.point));
    });
    showTicks();
  }

  // Ticks ----------------------------------------------------------------------------------------

  const MOST = 6;
  const bar = document.querySelector("[data-ticked]");
  const go = bar.querySelector("[data-go]");
  const boxes = new Map(); // of the entries, in every table
  const shownAs = new Map();
  const nameOf = (row) => row.querySelector("th a").textContent;
  let ticked = []; // in the order of the ticks
  tables.forEach(({ groups }) =>
    groups.forEach(({ rows }) =>
      rows.forEach(({ row }) => {
        const key = row.dataset.entry ?? row.dataset.name;
        if (!key) return; // a mean over checkpoints
        const label = document.createElement("label");
        label.className = "tick";
        const box = document.createElement("input");
        box.type = "checkbox";
        box.setAttribute("aria-label", `Compare ${nameOf(row)}`);
        label.append(box);
        row.cells[0].prepend(label);
        boxes.set(key, [...(boxes.get(key) || []), box]);
        shownAs.set(key, nameOf(row));
        box.addEventListener("change", () => {
          ticked = box.checked ? [...ticked, key] : ticked.filter((other) => other !== key);
          showTicks();
          write();
        });
      })
    )
  );

  function showTicks() {
    boxes.forEach((all, key) =>
      all.forEach((box) => {
        box.checked = ticked.includes(key);
        box.disabled = ticked.length === MOST && !box.checked;
      })
    );
    const names = ticked.map((key) => shownAs.get(key)).join(", ");
    const hint = { 1: "tick another to compare", [MOST]: "six are the most" }[ticked.length];
    bar.querySelector("output").textContent = ticked.length
      ? `${ticked.length} ticked${hint ? ` (${hint})` : ""}: ${names}`
      : "";
    go.hidden = ticked.length < 2;
    go.textContent = `Compare ${ticked.length} entries`;
    const picks = new URLSearchParams();
    ticked.forEach((key, i) => picks.set("abcdef"[i], `${bar.dataset.ticked}/${key}`));
    go.href = `${go.dataset.go}#${crlbench.stateText(picks)}`;
    bar.hidden = !ticked.length;
    document.documentElement.classList.toggle("ticking", !bar.hidden);
  }

  bar.querySelector("[data-clear]").addEventListener("click", () => {
    ticked = [];
    showTicks();
    write();
    form.querySelector("[data-reset]").focus();
  });

  // The name of a point beneath its chart; readers of the screen have it as that of the link.
  points.forEach((point) => {
    const named = point.closest("figure").querySelector("[data-named]");
    ["focus", "pointerenter"].forEach((kind) =>
      point.addEventListener(kind, () => {
        named.textContent = point.querySelector("title").textContent;
      })
    );
  });

  // Controls -------------------------------------------------------------------------------------

  const view = crlbench.listen(form, tables.map(({ heads }) => heads), FIRST, changed);

  function changed() {
    apply();
    write();
  }

  /** Shows what the address asks for, and writes it as this page would. */
  function shown() {
    restore();
    write();
  }

  fold.addEventListener("click", () => {
    const open = form.classList.toggle("unfolded");
    fold.setAttribute("aria-expanded", String(open));
  });
  form.querySelector("details").addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !event.currentTarget.open) return;
    event.currentTarget.open = false;
    event.currentTarget.querySelector("summary").focus();
  });
  document.addEventListener("click", (event) => {
    const menu = form.querySelector("details");
    if (menu.open && !menu.contains(event.target)) menu.open = false;
  });
  crlbench.onState(shown);
  shown();
})();
