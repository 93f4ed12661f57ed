"""A found unit's text as a template that renders to exactly it."""

from __future__ import annotations

from jinja2 import Environment
from jinja2.exceptions import TemplateError


def as_template(text: str, header: str) -> str:
    """A template whose rendering is ``text``, byte for byte; ``header`` is a comment that is not rendered."""
    head = "{# " + header.replace("#}", "# }") + " #}\n"
    candidates = [head + text, f"{head}{{% raw %}}{text}{{% endraw %}}", f"{head}{{{{ {text!r} }}}}"]
    return next(candidate for candidate in candidates if _renders(candidate, text))


def _renders(template: str, text: str) -> bool:
    jinja = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    try:
        return jinja.from_string(template).render() == text
    except TemplateError:
        return False
