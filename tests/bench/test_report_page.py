"""The page: whole, safe whatever models say, and readable in a real browser, narrow and wide, light and dark."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fleetctl.bench.record import Request
from fleetctl.bench.records import load
from fleetctl.bench.report import html, view
from fleetctl.bench.summary import Summary, summarize
from tests.bench import synthetic
from tests.bench.synthetic import FOUR

NASTY = (
    "</script><script>alert(1)</script><img src=x onerror=alert(1)> \"'&amp; \x07\x1b[31m 中文 \u202e {{ 7*7 }} "
    "\\input{x} %&~#_^"
)


def nasty(request: Request) -> Request:
    """Answers and warnings as a hostile or broken server could give them."""
    if request.prompt == "haiku" and "ddtree" in request.point:
        return replace(request, text=NASTY + request.text, warnings=[NASTY])
    if request.prompt == "arithmetic" and "dflash" in request.point:
        return synthetic.failed(request, what=NASTY)
    return request


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    """A run with all that can go wrong, killed before its end."""
    path = synthetic.write(tmp_path_factory.mktemp("page"), change=nasty, ended=False)
    with path.open("ab") as file:
        file.write(b'{"kind":"request","poi')
    return summarize([load(path)])


@pytest.fixture(scope="module")
def page(summary: Summary) -> str:
    """Its page."""
    return html.render(summary)


class _Reader(HTMLParser):
    """Tags, what they point to, and the text outside of style."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.handlers: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "action", "data")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_runs_nothing_and_loads_nothing(page: str) -> None:
    reader = _Reader()
    reader.feed(page)
    assert not reader.tags & {"script", "iframe", "img", "object", "embed", "form"}
    assert not reader.handlers
    assert all(link.startswith("#") or link == "data:," for link in reader.links), reader.links
    assert "default-src 'none'" in page
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", page)
    assert "</script><script>alert(1)</script>" in reader.text and "{{ 7*7 }}" in reader.text


def test_the_page_says_what_must_be_known_first(page: str, summary: Summary) -> None:
    assert "Interrupted." in page and "was cut after" in page
    assert "ddtree is " in page and "as fast as autoregressive" in page
    assert view.agreement(summary).startswith("The answers differ on 1 of 5 prompts: haiku.")
    assert "http 500" in page and "3 failed" in page
    for words in (
        "cp311-torch2.13",
        "--mode tree --threads 2",
        "fleetctl bench ct200",
        "smollm2-135m-dflash",
    ):
        assert words in page, words
    for prompt in synthetic.KINDS:
        assert f"Write about {prompt} &amp; &lt;more&gt;." in page
    assert page.count("What ddtree drafted") == len(synthetic.KINDS)


HARNESS = """<!doctype html><meta charset="utf-8"><title>measuring</title>
<iframe id="page" width="{width}" height="2000"></iframe><pre id="said"></pre><script>
const frame = document.getElementById("page");
frame.onload = () => {{
  const page = frame.contentDocument, root = page.documentElement, said = [];
  for (const details of page.querySelectorAll("details")) details.open = true;
  said.push("wider " + Math.max(0, root.scrollWidth - root.clientWidth));
  said.push("paper " + getComputedStyle(page.body).backgroundColor);
  const shown = [...page.querySelectorAll("figure > svg")].filter((one) => one.getBoundingClientRect().width > 0);
  said.push("charts " + shown.length + " " + new Set(shown.map((one) => one.getAttribute("class"))).size);
  said.push("kind " + shown[0].getAttribute("class"));
  const small = [...page.querySelectorAll("figure > svg text")].filter((one) => one.getBoundingClientRect().width > 0)
    .map((one) => one.getBoundingClientRect().height);
  said.push("letters " + Math.min(...small));
  document.getElementById("said").textContent = said.join("\\n");
}};
frame.srcdoc = {page};
</script>"""


def shown(page: str, folder: Path, width: int, dark: bool = False) -> dict[str, str]:
    """What a browser says of the page in a window of this width, with all of it opened."""
    file = folder / "harness.html"
    inside = json.dumps(page).replace("</", "<\\/")
    file.write_text(HARNESS.format(width=width, page=inside), encoding="utf-8")
    command = [
        *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *(f"--user-data-dir={folder / 'profile'}", "--window-size=1600,2200", "--virtual-time-budget=5000"),
        *(["--blink-settings=preferredColorScheme=0"] if dark else []),
        *("--dump-dom", file.as_uri()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, stdin=subprocess.DEVNULL)
    found = re.search(r'<pre id="said">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    return dict(line.split(" ", 1) for line in found.group(1).splitlines())


@pytest.mark.parametrize(("width", "dark", "kind"), [(400, False, "narrow"), (1400, True, "wide")])
def test_a_browser_shows_it_without_scrolling_sideways(
    page: str, tmp_path: Path, width: int, dark: bool, kind: str
) -> None:
    said = shown(page, tmp_path, width, dark)
    assert said["wider"] == "0", "the page is wider than the window"
    assert said["kind"] == kind and said["charts"].split()[1] == "1", (
        "each chart in one size, the one that fits"
    )
    assert float(said["letters"]) >= 11, "letters of charts keep their size"
    light = sum(map(int, re.findall(r"\d+", said["paper"])[:3])) > 600
    assert light is not dark


@pytest.mark.parametrize("width", [400, 800, 1010, 1200])
def test_long_names_make_it_no_wider(tmp_path: Path, width: int) -> None:
    specs = [replace(spec, service=f"{spec.service}_{'x' * 60}"[:60]) for spec in FOUR]
    path = synthetic.write(tmp_path, specs, prompts=["p" * 60, "haiku"])
    page = html.render(summarize([load(path)]))
    assert shown(page, tmp_path, width)["wider"] == "0"
