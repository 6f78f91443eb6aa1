// A list that a reader searches and sorts: models, tasks. The whole state stands in the query of
// the address.
(function () {
  "use strict";
  const crlbench = window.crlbench;
  const form = document.querySelector("[data-search]");
  const table = document.querySelector("[data-list]");
  const FEW = window.matchMedia("(max-width: 44rem)").matches ? 20 : 100;
  const body = table.tBodies[0];
  const heads = crlbench.headsOf(table);
  const rows = [...body.rows].map((row) => ({
    row,
    cells: [...row.cells],
    size: row.dataset.size ? Number(row.dataset.size) : null,
    results: Number(row.dataset.results),
    text: `${row.textContent} ${row.dataset.name}`.toLowerCase(),
  }));
  const FIRST = table.dataset.first;
  const search = form.elements.q;
  const orders = form.elements.sort;
  const measured = form.elements.results;
  const range = crlbench.sizeRange(form);
  const count = form.querySelector("[data-count]");
  const noun = table.dataset.list;
  const more = crlbench.moreButton(table, () => {
    view.everything = true;
    changed();
  });
  const view = crlbench.listen(form, [heads], FIRST, changed);

  function apply() {
    const { order, everything } = view;
    const down = order.startsWith("-");
    const head = heads.get(down ? order.slice(1) : order);
    const parts = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    // The page has the rows in the first order already.
    const all = order === FIRST ? rows : crlbench.sorted(rows, head.index, down);
    const left = all.filter(
      ({ text, size, results }) =>
        parts.every((part) => text.includes(part)) &&
        range.fits(size) &&
        (!measured.checked || results > 0),
    );
    const shown = everything ? left : left.slice(0, FEW);
    body.replaceChildren(...shown.map(({ row }) => row));
    heads.forEach(({ cell }) => cell.removeAttribute("aria-sort"));
    head.cell.setAttribute("aria-sort", down ? "descending" : "ascending");
    orders.value = order;
    more.hidden = shown.length === left.length;
    more.textContent = `Show all ${left.length} ${noun}`;
    const found = left.length
      ? `${left.length === rows.length ? "" : `${left.length} of `}${rows.length} ${noun}`
      : `None of ${rows.length} ${noun} matches.`;
    count.textContent = [range.fault(), found].filter(Boolean).join(" ");
  }

  function write() {
    const state = new URLSearchParams();
    if (view.order !== FIRST) state.set("sort", view.order);
    if (search.value.trim()) state.set("q", search.value.trim());
    range.write(state);
    if (measured.checked) state.set("results", "1");
    if (view.everything) state.set("all", "1");
    crlbench.writeState(state);
  }

  function restore() {
    const state = crlbench.readState();
    const wanted = state.get("sort") || FIRST;
    view.order = heads.has(wanted.replace(/^-/, "")) ? wanted : FIRST;
    search.value = state.get("q") || "";
    range.restore(state);
    measured.checked = state.has("results");
    view.everything = state.has("all");
    apply();
    write();
  }

  function changed() {
    apply();
    write();
  }

  crlbench.onState(restore);
  restore();
})();
