// Run inside a page: what keeps somebody from reading it by ear, by keyboard or with weak eyes, as a list of sentences.
// After WCAG 2.2 AA: 1.1.1, 1.3.1, 1.4.3, 1.4.11, 2.4.1, 2.4.6, 3.1.1, 4.1.2. Empty if nothing does.
() => {
  const wrong = [];
  const text = e => (e.textContent || '').replace(/\s+/g, ' ').trim();
  const short = e => `<${e.tagName.toLowerCase()}> "${text(e).slice(0, 50)}"`;
  const hidden = e => !e.getClientRects().length || getComputedStyle(e).visibility === 'hidden' || e.closest('[aria-hidden=true]');

  if (!document.documentElement.lang) wrong.push('the page does not say its language');
  if (!document.title.trim()) wrong.push('the page has no title');
  if (document.querySelectorAll('main').length !== 1) wrong.push('the page has not exactly one main part');
  for (const nav of document.querySelectorAll('nav')) if (!nav.getAttribute('aria-label')) wrong.push('a navigation has no name');
  const skip = document.querySelector('a[href]');
  if (!skip || !skip.matches('.skip') || !document.querySelector(skip.getAttribute('href'))) wrong.push('the first link does not skip to the content');

  let level = 0;
  const heads = [...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].filter(h => !hidden(h) || h.matches('.sr'));
  if (heads.filter(h => h.tagName === 'H1').length !== 1) wrong.push('the page has not exactly one first heading');
  for (const h of heads) {
    const its = Number(h.tagName[1]);
    if (its > level + 1) wrong.push(`${short(h)} follows a heading of level ${level}`);
    if (!text(h)) wrong.push(`a heading of level ${its} is empty`);
    level = its;
  }

  const ids = [...document.querySelectorAll('[id]')].map(e => e.id), seen = new Set();
  for (const id of ids) { if (seen.has(id)) wrong.push(`the id ${id} is used twice`); seen.add(id); }
  for (const a of document.querySelectorAll('a[href^="#"]'))
    if (!document.getElementById(decodeURIComponent(a.getAttribute('href').slice(1)))) wrong.push(`${short(a)} leads nowhere`);

  for (const e of document.querySelectorAll('a[href], button, summary, input, select'))
    if (!hidden(e) && !(text(e) || e.getAttribute('aria-label') || (e.labels && e.labels.length))) wrong.push(`${e.outerHTML.slice(0, 80)} has no name`);
  for (const e of document.querySelectorAll('[tabindex]')) {
    if (e.tabIndex > 0) wrong.push(`${short(e)} changes the order of the keyboard`);
    if (e.tabIndex === 0 && !e.matches('a, button, input, summary, pre') && !(e.getAttribute('role') && e.getAttribute('aria-label'))) wrong.push(`${short(e)} takes the focus and has no name`);
  }

  for (const t of document.querySelectorAll('table')) {
    for (const th of t.querySelectorAll('th')) if (!th.getAttribute('scope')) wrong.push(`a head of a table, ${short(th)}, does not say of what`);
    if (!t.querySelector('th')) wrong.push(`a table has no heads: ${short(t)}`);
    if (!t.caption && !t.getAttribute('aria-label') && !t.closest('[aria-label]')) wrong.push(`a table has no name: ${short(t)}`);
    for (const td of t.querySelectorAll('td.num')) if (getComputedStyle(td).textAlign !== 'right') { wrong.push('numbers of a table are not at the right'); break; }
  }

  for (const svg of document.querySelectorAll('figure svg')) {
    const alt = svg.getAttribute('aria-label') || '';
    if (svg.getAttribute('role') !== 'img') wrong.push('a figure is not an image to a screen reader');
    if (alt.length < 40) wrong.push(`the alternative of a figure is hardly one: "${alt}"`);
    if (!/\d/.test(alt) && svg.getBoundingClientRect().height > 90) wrong.push(`the alternative of a figure has no number: "${alt.slice(0, 60)}"`);
  }

  const rgba = c => { const m = c.match(/[\d.]+/g).map(Number); return [m[0], m[1], m[2], m.length > 3 ? m[3] : 1]; };
  const over = (top, under) => top.slice(0, 3).map((v, i) => v * top[3] + under[i] * (1 - top[3])).concat(1);
  const behind = e => {
    const layers = [];
    for (; e; e = e.parentElement) layers.push(rgba(getComputedStyle(e).backgroundColor));
    return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255, 1]);
  };
  const lum = c => { const [r, g, b] = c.slice(0, 3).map(v => { v /= 255; return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), judged = new Map();
  for (let node; (node = walker.nextNode());) {
    const e = node.parentElement;
    if (!node.data.trim() || !e || e.closest('svg, style, .sr, .skip') || hidden(e)) continue;
    const css = getComputedStyle(e), ground = behind(e), ink = over(rgba(css.color), ground);
    const size = parseFloat(css.fontSize), large = size >= 24 || (size >= 18.66 && Number(css.fontWeight) >= 700);
    const key = [ink, ground, large].join();
    if (judged.has(key)) continue;
    const [a, b] = [lum(ink), lum(ground)].sort((x, y) => y - x), ratio = (a + .05) / (b + .05);
    judged.set(key, ratio);
    if (ratio < (large ? 3 : 4.5)) wrong.push(`"${node.data.trim().slice(0, 40)}" has a contrast of ${ratio.toFixed(2)}`);
  }
  return [...new Set(wrong)];
}
