"""KV tokens of steps whose annotations do not tell them, by the load of the pass: prompts and answers of one length."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from perflab.knowledge.thresholds import Thresholds, own_thresholds


@dataclass(frozen=True)
class OneLength:
    """What every request of a pass asked for: so many prompt tokens and so many generated."""

    prompt: int
    output: int


@dataclass(frozen=True)
class KvFromLoad:
    """Steps with KV tokens filled in, and how far off those can be: a share of them, either way."""

    steps: pd.DataFrame
    spread: float


def kv_from_load(
    steps: pd.DataFrame, lengths: OneLength | None, thresholds: Thresholds | None = None
) -> KvFromLoad | None:
    """Fill `kv_tokens` and `kv_pairs` where requests of one length leave little room for them.

    A request that decodes after a prompt of p tokens, asking for n, has p + 1 to p + n - 1 tokens in its cache, the
    new one included; the middle is taken. A prompt computed whole meets p (p + 1) / 2 pairs of query and key.

    Parameters
    ----------
    steps
        Table `steps` of one rank. Their own tokens have to bear the lengths out: each step computes whole prompts.

    Returns
    -------
    KvFromLoad or None
        None where annotations tell, the lengths are not known or are not borne out (prompts in chunks, from a cache,
        of several lengths), or the middle could be off by more than `kv_from_load.spread`.
    """
    if lengths is None or steps.empty or steps["kv_tokens"].notna().any() or lengths.output < 1:
        return None
    known = steps["prefill_tokens"].notna() & steps["decode_tokens"].notna()
    prompts, decoding = steps["prefill_requests"], steps["decode_requests"]
    whole = (steps["prefill_tokens"] == prompts * lengths.prompt) & (steps["decode_tokens"] == decoding)
    if not known.all() or not whole.all() or not (prompts > 0).any():
        return None
    least, most = lengths.prompt + 1, lengths.prompt + max(lengths.output - 1, 1)
    spread = (most - least) / (most + least)
    if spread > (thresholds or own_thresholds()).limit("kv_from_load", "spread"):
        return None
    own = ((least + most) * decoding) // 2
    pairs = prompts * (lengths.prompt * (lengths.prompt + 1) // 2) + own
    filled = steps.assign(kv_tokens=(prompts * lengths.prompt + own).astype("Int64"), kv_pairs=pairs.astype("Int64"))
    return KvFromLoad(filled, spread)
