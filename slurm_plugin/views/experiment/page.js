"use strict";
(() => {
  const all = (words, within = document) => [...within.querySelectorAll(words)];
  const table = document.getElementById("trials"), body = table.tBodies[0], heads = all("th", table);
  const panel = document.getElementById("details");
  let selected = "";

  // A trial is one subpath of a path of marks: data-n has the trials in the order of the subpaths.
  const subpaths = path => path.getAttribute("d").split("M").slice(1);
  const found = (chart, trial) => {
    for (const path of all(".m", chart)) {
      const place = path.dataset.n.split(" ").indexOf(trial);
      if (place >= 0) return "M" + subpaths(path)[place];
    }
    return "";
  };
  const highlight = trial => {
    all(".hi").forEach(each => each.remove());
    for (const chart of trial ? all("svg") : []) {
      const shape = found(chart, trial);
      const group = shape && chart.querySelector(".m").parentNode;
      for (const kind of group ? ["hi under", "hi"] : []) {
        const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
        path.setAttribute("class", kind);
        path.setAttribute("d", shape);
        path.dataset.n = trial;
        group.append(path);
      }
    }
  };

  const show = row => {
    panel.hidden = !row;
    if (!row) return;
    const list = panel.querySelector("dl");
    list.replaceChildren();
    panel.querySelector("h2").textContent = "Trial " + selected;
    [...row.cells].forEach((cell, place) => {
      if (!place || !cell.textContent) return;
      const pair = document.createElement("div"), name = document.createElement("dt"), value = document.createElement("dd");
      name.textContent = heads[place].textContent;
      value.append(...[...cell.childNodes].map(each => each.cloneNode(true)));
      pair.append(name, value);
      list.append(pair);
    });
  };

  const select = (trial, near) => {
    const before = body.querySelector("[aria-selected]"), row = document.getElementById("t" + trial);
    if (before) before.removeAttribute("aria-selected");
    selected = row ? trial : "";
    if (row) {
      row.setAttribute("aria-selected", "true");
      reachable(row);
      if (near) row.scrollIntoView({block: "nearest"});
    }
    highlight(selected);
    show(row);
  };
  // One row is reached with Tab, the others from it with the arrow keys.
  const reachable = row => {
    [...body.rows].forEach(each => { each.tabIndex = each === row ? 0 : -1; });
  };

  const key = cell => cell.dataset.v ?? cell.textContent;
  const sort = head => {
    const place = heads.indexOf(head), number = head.classList.contains("n");
    const down = head.getAttribute("aria-sort") === "ascending";
    heads.forEach(each => each.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...body.rows].map(row => [key(row.cells[place]), row]);
    rows.sort(([one], [other]) => {
      if (one === "" || other === "") return (one === "") - (other === "");
      const order = number ? one - other : one.localeCompare(other, "en", {numeric: true});
      return down ? -order : order;
    });
    body.append(...rows.map(([, row]) => row));
    reachable(body.querySelector("[aria-selected]") ?? body.rows[0]);
  };

  // The squared distance of a point from a line between two others.
  const distance = (x, y, [ax, ay, bx, by]) => {
    const dx = bx - ax, dy = by - ay, length = dx * dx + dy * dy;
    const part = length ? Math.min(1, Math.max(0, ((x - ax) * dx + (y - ay) * dy) / length)) : 0;
    return (x - ax - part * dx) ** 2 + (y - ay - part * dy) ** 2;
  };
  const nearest = (chart, event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(chart.getScreenCTM().inverse());
    let best = 30 * 30, trial = "";
    for (const path of all(".m", chart)) {
      const names = path.dataset.n.split(" ");
      subpaths(path).forEach((text, place) => {
        const points = text.match(/\d+/g).map(Number);
        if (text.includes("h")) points.splice(2);
        for (let i = 0; i + 1 < points.length; i += 2) {
          const next = i + 3 < points.length ? points.slice(i + 2, i + 4) : points.slice(i, i + 2);
          const away = distance(at.x, at.y, [points[i], points[i + 1], ...next]);
          if (away <= best) { best = away; trial = names[place]; }
        }
      });
    }
    return trial;
  };

  document.addEventListener("click", event => {
    const {target} = event, head = target.closest("#trials th"), row = target.closest("#trials tbody tr");
    const chart = target.closest("svg"), named = target.closest("[data-t]");
    if (target.closest("a")) return;
    if (head) sort(head);
    else if (row) select(row.id.slice(1));
    else if (named) select(named.dataset.t, true);
    else if (target.closest("#close")) select("");
    else if (chart && chart.querySelector(".m")) select(nearest(chart, event), true);
  });
  document.addEventListener("keydown", event => {
    const row = event.target.closest?.("#trials tbody tr");
    if (event.key === "Escape") select("");
    if (!row) return;
    const to = {ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling,
      Home: body.rows[0], End: body.rows[body.rows.length - 1]}[event.key];
    if (event.key === "Enter" || event.key === " ") select(row.id.slice(1));
    else if (to) { reachable(to); to.focus(); }
    else return;
    event.preventDefault();
  });
  reachable(body.rows[0]);
})();
