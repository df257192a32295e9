"""Compiled functions work where nothing can be written."""

import numba

from labelfield.compiled import compiled


def test_without_a_place_for_compiled_code_it_is_compiled_in_every_process(monkeypatch):
    whole, asked = numba.njit, []

    def nowhere(*given, cache=False, **options):
        if given:  # numba's own
            return whole(*given, cache=cache, **options)
        asked.append(cache)

        def decorate(function):
            if cache:
                raise RuntimeError("cannot cache function: no locator available for file")
            return whole(**options)(function)

        return decorate

    monkeypatch.setattr(numba, "njit", nowhere)
    assert compiled(fastmath=True)(lambda x: x + 1)(1) == 2
    assert asked[:2] == [True, False]
