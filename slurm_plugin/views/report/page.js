"use strict";
(() => {
  const table = document.getElementById("attempts"), chart = document.getElementById("timeline");
  if (!table || !chart) return;
  const rows = [...table.tBodies[0].rows];
  let selected = "";

  // One row is reached with Tab, the others from it with the arrow keys.
  const reachable = row => rows.forEach(each => { each.tabIndex = each === row ? 0 : -1; });
  const select = name => {
    selected = name === selected ? "" : name;
    chart.classList.toggle("one", selected !== "");
    for (const each of chart.querySelectorAll("g[data-a]")) each.classList.toggle("on", each.dataset.a === selected);
    for (const row of rows) {
      row.setAttribute("aria-selected", row.dataset.a === selected);
      if (row.dataset.a === selected) reachable(row);
    }
  };

  document.addEventListener("click", event => {
    const found = event.target.closest("#attempts tbody tr, #timeline g[data-a]");
    if (found) select(found.dataset.a);
  });
  document.addEventListener("keydown", event => {
    const row = event.target.closest?.("#attempts tbody tr");
    if (event.key === "Escape" && selected) select(selected);
    if (!row) return;
    const to = {ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling,
      Home: rows[0], End: rows[rows.length - 1]}[event.key];
    if (event.key === "Enter" || event.key === " ") select(row.dataset.a);
    else if (to) { reachable(to); to.focus(); }
    else return;
    event.preventDefault();
  });
  reachable(rows[0]);
})();
