// Run inside a page: what is wrong with how it looks, as a list of sentences. Empty if all is well.
() => {
  const wrong = [], width = document.documentElement.clientWidth, slack = 1.5;
  const tag = e => e.tagName.toLowerCase();
  const named = e => {
    const classes = typeof e.className === 'string' ? e.className.trim().split(/\s+/).filter(Boolean) : [];
    return tag(e) + (e.id ? '#' + e.id : '') + classes.map(c => '.' + c).join('');
  };
  const scrolls = start => {
    for (let e = start; e && e !== document.body; e = e.parentElement)
      if (['auto', 'scroll'].includes(getComputedStyle(e).overflowX)) return true;
    return false;
  };

  if (document.body.innerText.trim().length < 40) wrong.push('the page has hardly any text');
  const whole = Math.max(document.documentElement.scrollWidth, document.body.scrollWidth);
  if (whole > width + slack) wrong.push(`the page is ${whole} wide in a window of ${width}`);

  for (const e of document.body.querySelectorAll('*')) {
    if (e.closest('svg') || e.matches('.skip, .sr')) continue;
    const box = e.getBoundingClientRect(), css = getComputedStyle(e);
    if (!box.width || !box.height || css.visibility === 'hidden') continue;
    if ((box.right > width + slack || box.left < -slack) && !scrolls(e))
      wrong.push(`${named(e)} sticks out of the window: ${Math.round(box.left)} to ${Math.round(box.right)} of ${width}`);
    if (['hidden', 'clip'].includes(css.overflowX) && e.scrollWidth > e.clientWidth + slack)
      wrong.push(`${named(e)} cuts off its content: ${e.scrollWidth} wide in ${e.clientWidth}`);
    if (['hidden', 'clip'].includes(css.overflowY) && e.scrollHeight > e.clientHeight + slack)
      wrong.push(`${named(e)} cuts off its content: ${e.scrollHeight} high in ${e.clientHeight}`);
  }

  for (const e of document.querySelectorAll('img, svg')) {
    if (e.closest('[aria-hidden=true]') || e.closest('svg.bar-cell')) continue;
    const box = e.getBoundingClientRect();
    const alt = (e.getAttribute('alt') || e.getAttribute('aria-label') || '').trim();
    if (box.width < 20 || box.height < 20) wrong.push(`${named(e)} measures ${Math.round(box.width)} x ${Math.round(box.height)}`);
    if (!alt) wrong.push(`${named(e)} has no text alternative`);
    if (tag(e) === 'img' && !e.naturalWidth) wrong.push(`${named(e)} shows nothing`);
    if (tag(e) !== 'svg') continue;
    if (!e.querySelector('path, use, image, rect, line, text')) wrong.push(`the figure "${alt.slice(0, 60)}" is empty`);
    for (const label of e.querySelectorAll('g[id*="text_"]')) {
      const at = label.getBoundingClientRect();
      const out = at.left < box.left - slack || at.right > box.right + slack || at.top < box.top - slack || at.bottom > box.bottom + slack;
      if (at.width && out) wrong.push(`a label of the figure "${alt.slice(0, 60)}" is cut off at its edge (${label.id})`);
    }
  }
  return [...new Set(wrong)];
}
