"""What a person may have meant who wrote a word that nothing has."""

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that a person who wrote `word` may have meant."""
    import difflib  # only a mistake needs it

    return next(iter(difflib.get_close_matches(word, sorted(known), n=1)), None)


def suggestion(word: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """What a person who wrote `word` may have meant, as the end of a message. If no known word is near, it is
    `otherwise`, or the list of them."""
    names = sorted(known)
    near = nearest(word, names)
    if near is not None:
        return f"did you mean {near!r}?"
    if otherwise is not None:
        return otherwise
    return f"write one of {', '.join(names)}" if names else "there are none"
