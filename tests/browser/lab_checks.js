// Run inside JupyterLab: what is wrong with how the outputs of the open notebook look. Empty if all is well.
() => {
  const wrong = [], slack = 1.5;
  const panel = document.querySelector('.jp-NotebookPanel:not(.lm-mod-hidden)');
  const tag = e => e.tagName.toLowerCase();
  const named = e => {
    const classes = typeof e.className === 'string' ? e.className.trim().split(/\s+/).filter(Boolean) : [];
    return tag(e) + classes.slice(0, 3).map(c => '.' + c).join('');
  };
  // What is cut off is told below.
  const keeps = e => ['auto', 'scroll', 'hidden', 'clip'].includes(getComputedStyle(e).overflowX);
  const seen = e => {
    const box = e.getBoundingClientRect();
    return box.width && box.height && getComputedStyle(e).visibility !== 'hidden';
  };

  for (const area of panel.querySelectorAll('.jp-Cell .jp-OutputArea-output')) {
    if (!seen(area)) continue;
    const frame = area.getBoundingClientRect();
    // JupyterLab gives an output that is too wide a scroll bar of its own; ours fit, or scroll inside.
    if (area.scrollWidth > area.clientWidth + slack)
      wrong.push(`an output is ${area.scrollWidth} wide in ${area.clientWidth}: ${area.innerText.trim().slice(0, 60)}`);
    // A box of widgets scrolls as a whole where one of them is too wide, and hides the ends of all its lines.
    for (const box of area.querySelectorAll('.widget-box'))
      if (seen(box) && box.scrollWidth > box.clientWidth + slack)
        wrong.push(`widgets are ${box.scrollWidth} wide in ${box.clientWidth}: ${box.innerText.trim().slice(0, 60)}`);
    for (const e of area.querySelectorAll('*')) {
      if (e.closest('svg') && tag(e) !== 'svg') continue;
      if (!seen(e)) continue;
      const box = e.getBoundingClientRect(), css = getComputedStyle(e);
      let inside = false;
      for (let up = e.parentElement; up && up !== area.parentElement && !inside; up = up.parentElement) inside = keeps(up) && up !== area;
      if ((box.right > frame.right + slack || box.left < frame.left - slack) && !inside)
        wrong.push(`${named(e)} sticks out of its output: ${Math.round(box.left)} to ${Math.round(box.right)} in ${Math.round(frame.left)} to ${Math.round(frame.right)}`);
      // An ellipsis whose whole text is in a title is not lost.
      if (css.textOverflow === 'ellipsis' && e.closest('[title]')) continue;
      // A part of a bar may be too narrow for its words where they are told on hovering.
      const told = e.closest('[title]:not([title=""])');
      if (['hidden', 'clip'].includes(css.overflowX) && e.scrollWidth > e.clientWidth + slack && e.innerText?.trim() && !told)
        wrong.push(`${named(e)} cuts off its content: ${e.scrollWidth} wide in ${e.clientWidth}: ${e.innerText.trim().slice(0, 40)}`);
    }
  }
  for (const e of panel.querySelectorAll('.jp-OutputArea-output img, .jp-OutputArea-output svg, .jp-OutputArea-output canvas')) {
    if (e.closest('svg') && tag(e) !== 'svg' || e.getAttribute('aria-hidden') === 'true' || e.closest('[hidden]')) continue;
    if (getComputedStyle(e).display === 'none') continue;  // the picture for those who do not trust the notebook
    const box = e.getBoundingClientRect(), held = e.closest('[role=img][aria-label]') ?? e;
    const told = (held.getAttribute('alt') || held.getAttribute('aria-label') || '').trim();
    if (box.width < 20 || box.height < 8) wrong.push(`${named(e)} measures ${Math.round(box.width)} x ${Math.round(box.height)}`);
    // JupyterLab calls every picture in HTML that has no name `Image`.
    const alt = told === "Image" ? "" : told;
    if (!alt) wrong.push(`${named(e)} has no text alternative`);
    if (tag(e) === 'img' && !e.naturalWidth) wrong.push(`${named(e)} shows nothing`);
  }
  return [...new Set(wrong)];
}
