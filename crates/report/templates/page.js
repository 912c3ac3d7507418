(() => {
  "use strict";
  const ns = document.documentElement.querySelector("svg").namespaceURI;
  // Read-outs: the page holds every label already written; this only finds the nearest moment.
  for (const svg of document.querySelectorAll("svg[data-x]")) {
    const xs = svg.dataset.x.split("|").map(Number), ts = svg.dataset.t.split("|");
    const [top, bottom] = svg.dataset.y.split(" ");
    const lines = [...svg.querySelectorAll("g[data-v]")].map(g => [g.dataset.n, g.dataset.v.split("|")]);
    const figure = svg.closest("figure"), title = svg.querySelector("title");
    const guide = document.createElementNS(ns, "line"), box = document.createElement("div");
    guide.setAttribute("class", "guide");
    guide.setAttribute("y1", top);
    guide.setAttribute("y2", bottom);
    box.className = "readout";
    box.setAttribute("aria-hidden", "true");
    const hide = () => { guide.remove(); box.remove(); };
    svg.addEventListener("pointermove", event => {
      const area = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / area.width;
      const x = (event.clientX - area.left) * scale;
      let best = 0;
      xs.forEach((at, i) => { if (Math.abs(at - x) < Math.abs(xs[best] - x)) best = i; });
      if (x < xs[0] - 12 || x > xs[xs.length - 1] + 12) return hide();
      guide.setAttribute("x1", xs[best]);
      guide.setAttribute("x2", xs[best]);
      svg.append(guide);
      box.replaceChildren(ts[best]);
      for (const [name, values] of lines) {
        const row = document.createElement("div"), label = document.createElement("b");
        label.textContent = name;
        row.append(label, values[best] || "unknown");
        box.append(row);
      }
      figure.style.position = "relative";
      figure.append(box);
      const left = xs[best] / scale + area.left - figure.getBoundingClientRect().left;
      const flip = left + box.offsetWidth + 16 > figure.clientWidth;
      box.style.left = (flip ? left - box.offsetWidth - 10 : left + 10) + "px";
      box.style.top = (area.top - figure.getBoundingClientRect().top + top / scale + 6) + "px";
    });
    svg.addEventListener("pointerleave", hide);
    // The browser's own tooltip would cover the read-out; the name stays for assistive technology.
    if (title) { svg.setAttribute("aria-label", title.textContent); svg.removeAttribute("aria-labelledby"); svg.setAttribute("aria-describedby", svg.querySelector("desc").id); title.remove(); }
  }
  for (const pre of document.querySelectorAll("pre.copy")) {
    if (!navigator.clipboard) break;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "copy";
    button.addEventListener("click", () => navigator.clipboard.writeText(pre.querySelector("code").textContent).then(() => {
      button.textContent = "copied";
      setTimeout(() => { button.textContent = "copy"; }, 1200);
    }));
    pre.append(button);
  }
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(d => { d.open = true; }));
})();
