"""What is written into a unit is what systemd reads back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.services.quoting import exec_line, value, word
from tests.services import systemd

TEXT = st.text(
    st.one_of(st.sampled_from(" ;'\"\\$%{}#\n\t\r-=@!`|&()"), st.characters(exclude_characters="\0")),
    max_size=40,
).filter(lambda text: not any("\ud800" <= character <= "\udfff" for character in text))


@given(st.lists(TEXT))
def test_any_arguments_survive(arguments: list[str]) -> None:
    line = exec_line(["/usr/bin/python", *arguments])
    assert systemd.settings(f"ExecStart={line}\n", "ExecStart") == [line], "it stays one line"
    assert systemd.exec_words(line) == ["/usr/bin/python", *arguments]


@given(TEXT)
def test_any_environment_variable_survives(text: str) -> None:
    assert systemd.words(word(f"NAME={text}")) == [f"NAME={text}"]


@given(TEXT)
def test_a_description_stays_one_line_without_specifiers(text: str) -> None:
    (line,) = systemd.settings(f"Description={value(text)}\nAfter=x\n", "Description")
    expected = " ".join(text.split()).rstrip("\\").rstrip()
    assert systemd._specifiers(line) == expected


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["/bin/p", "--flag", "a/b:c=d"], "/bin/p --flag a/b:c=d"),
        (["/bin/p", ""], '/bin/p ""'),
        (["/bin/p", ";"], '/bin/p ";"'),
        (["/bin/p", "50%"], "/bin/p 50%%"),
        (["/bin/p", "$HOME"], '/bin/p "$$HOME"'),
        (["/bin/p", 'say "hi"'], '/bin/p "say \\"hi\\""'),
        (["/bin/p", "C:\\dir"], '/bin/p "C:\\\\dir"'),
        (["/bin/p", "two\nlines\x01"], '/bin/p "two\\nlines\\x01"'),
    ],
)
def test_quotes_stand_only_where_they_must(words: list[str], line: str) -> None:
    assert exec_line(words) == line


def test_systemd_itself_finds_nothing_wrong(tmp_path: Path) -> None:
    nasty = [
        "",
        " ",
        ";",
        "\\",
        "$X ${Y} $$",
        "100% %h %%",
        "a\nb\tc\r",
        "'\"",
        "#",
        "é€😀",
        "\x01\x7f",
        "-x",
        "\\;",
    ]
    line = exec_line(["/bin/true", *nasty])
    variables = "".join(f"Environment={word(f'V{n}={text}')}\n" for n, text in enumerate(nasty))
    text = f"[Service]\nExecStart={line}\n{variables}"
    assert systemd.verify(text, "nasty.service", tmp_path) == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('ExecStart=/bin/true "unclosed', "Unbalanced quoting"),
        ("ExecStart=/bin/true %Q", "specifiers"),
        ("ExecStart=/bin/true\nEnvironment=no-assignment", "Invalid environment assignment"),
        ("ExecStart=/bin/true\nEnvirnment=A=b", "Unknown key"),
    ],
)
def test_the_check_by_systemd_can_fail(tmp_path: Path, line: str, said: str) -> None:
    found = "\n".join(systemd.verify(f"[Service]\n{line}\n", "bad.service", tmp_path))
    assert said.lower() in found.lower()
