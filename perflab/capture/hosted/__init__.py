"""Scripts that run inside the engine's Python, where perflab may be absent.

Only the standard library, and what vLLM itself brings. perflab never imports them; it starts them by path.
"""
