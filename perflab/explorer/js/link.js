// Questions to the kernel and its answers: numbered, since several views of one widget share a line.

/** A line to the kernel: `ask(what, fields)` resolves with `{...reply, buffers}`; a refusal rejects with its reason. */
export function link(model) {
  const open = new Map(), me = Math.random().toString(36).slice(2);
  let count = 0;
  const receive = (message, buffers) => {
    const question = open.get(message?.id);
    if (!question) return;
    open.delete(message.id);
    if (message.error) question.reject(new Error(message.error));
    else question.resolve({ ...message, buffers: buffers ?? [] });
  };
  model.on("msg:custom", receive);
  const ask = (what, fields = {}) => new Promise((resolve, reject) => {
    const id = `${me}-${++count}`;
    open.set(id, { resolve, reject });
    model.send({ id, what, ...fields });
  });
  return { ask, waiting: () => open.size, close: () => model.off("msg:custom", receive) };
}

/** Only the newest question matters: while one is out, the next waits, and what came between is dropped. */
export function newest(ask, take) {
  let out = false, next = null;
  const run = async (given) => {
    if (out) { next = given; return; }
    out = true;
    try { take(await ask(...given), ...given); } catch (error) { take(null, ...given, error); }
    out = false;
    if (next) { const given = next; next = null; run(given); }
  };
  return (...given) => run(given);
}

/** A buffer as an array of numbers. */
export function numbers(view, Kind) {
  return new Kind(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
}
