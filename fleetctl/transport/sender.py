"""What a relay starts on the host that is copied from: nothing but ``rsync --server --sender`` on one folder.

The other host's rsync asks for it. Its request is checked word by word; the path in it stands for the wanted
one, which the controller puts in itself, so the other host has no say in what is read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fleetctl.agent.environment.bridge import TOKEN
from fleetctl.errors import Exit, FleetError

WORD = "fleetctl-relay "
ARGUMENT_LIMIT = 64
LETTERS = re.compile(r"-[lHDtprRcvW]*(e[0-9]*\.[A-Za-z0-9]*)?")
LONG = re.compile(r"--(timeout|bwlimit)=[0-9]{1,9}|--info=[A-Z0-9,]{1,80}|--files-from=-|--from0")
SCRIPT = f"""
set -f
[ -d "$1" ] || {{ echo {WORD}no-folder >&2; exit 2; }}
command -v rsync >/dev/null || {{ echo {WORD}no-rsync >&2; exit 127; }}
IFS= read -r options || exit 12
exec rsync --server --sender $options . "$1"
"""


def sender_words(path: str) -> tuple[str, str, str]:
    """What follows ``sh -c``: the script and its words. It reads one line of options, then becomes rsync for ``path``.

    :class:`FleetError` (exit 2) where the path is not absolute or holds a NUL.
    """
    if not path.startswith("/") or "\0" in path:
        raise FleetError(f"not an absolute path: {path!r}")
    return SCRIPT, "sh", path.rstrip("/") + "/"


def sender_options(request: Sequence[bytes]) -> str:
    """The options of a checked command, separated by spaces; no word of them needs quoting.

    :class:`FleetError` (exit 5) for any command other than rsync's own for the folder.
    """
    words = [word.decode(errors="backslashreplace") for word in request]
    if (
        not 5 <= len(words) <= ARGUMENT_LIMIT
        or words[:3] != ["rsync", "--server", "--sender"]
        or words[-2:] != [".", TOKEN.partition(":")[2]]
        or not all(LETTERS.fullmatch(word) or LONG.fullmatch(word) for word in words[3:-2])
    ):
        raise _refusal(request)
    return " ".join(words[3:-2])


def _refusal(request: Sequence[bytes]) -> FleetError:
    return FleetError(
        "the host asked for something other than the copy; it was not done",
        fix="an rsync there that is no rsync, or newer than any known here: `rsync --version`",
        evidence=[repr(list(request))[:500]],
        exit=Exit.PREFLIGHT,
    )
