"""Suggestions for a word that is not known: which known one the person who wrote it may have meant."""

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that a person who wrote `word` may have meant."""
    import difflib  # only a mistake needs it

    return next(iter(difflib.get_close_matches(word, sorted(known), n=1)), None)


def suggestion(word: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """The end of a message about a word that is not known: the known one that the person who wrote it may have meant.
    If none is near, `otherwise`, or the list of all."""
    names = sorted(known)
    near = nearest(word, names)
    if near is not None:
        return f"did you mean {near!r}?"
    if otherwise is not None:
        return otherwise
    return f"write one of {', '.join(names)}" if names else "there are none"
