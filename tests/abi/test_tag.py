"""ABI tags and CUDA majors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.abi.cuda import cuda_major, is_driver, majors, wanted
from fleetctl.abi.elf import Library
from fleetctl.abi.errors import AbiError
from fleetctl.abi.tag import AbiTag, Difference, abi_tag, compare, parse

FULL = "cp312-torch2.11-cu130-cxx11-glibc2.39-sm120"


def test_the_tag_of_versions_as_they_are_found() -> None:
    assert str(abi_tag("cp312", "2.11.0+cu130", cxx11=True, glibc="2.39", gpus=["12.0"])) == FULL
    assert str(abi_tag("cp312", "2.11.0", "13.0", True, "2.39", ["120"])) == FULL
    assert str(abi_tag("cp311", "2.13.0+cpu")) == "cp311-torch2.13-cpu"
    assert str(abi_tag(cxx11=False, gpus=["120a", "9.0", "80", "90"])) == "precxx11-sm80+90+120a"
    assert str(abi_tag("cp312", "2.11.0a0+git123")) == "cp312-torch2.11"
    assert str(abi_tag()) == ""


tags = st.builds(
    AbiTag,
    *(
        st.none() | st.sampled_from(values)
        for values in (
            ["cp39", "cp312", "cp313t"],
            ["torch2.9", "torch2.11"],
            ["cpu", "cu128", "cu130"],
            ["cxx11", "precxx11"],
            ["glibc2.9", "glibc2.39"],
            ["sm90", "sm90a", "sm80+120f"],
        )
    ),
)


@given(tags.filter(any))
def test_a_tag_is_read_as_it_was_written(tag: AbiTag) -> None:
    assert parse(str(tag)) == tag
    assert compare(tag, tag) == ()


@given(st.text(max_size=30) | st.text("cp123-torchugliba.+sm", max_size=30))
def test_any_text_is_a_tag_or_an_error(text: str) -> None:
    try:
        assert str(parse(text)) == text
    except AbiError as error:
        assert error.where == text


@pytest.mark.parametrize("text", ["", "cp312-", "cu130-torch2.11", "cp312-cp312", "x86", "sm120-glibc2.39"])
def test_what_is_no_tag_is_an_error(text: str) -> None:
    with pytest.raises(AbiError):
        parse(text)


@pytest.mark.parametrize(
    ("given_", "breaks"),
    [
        ("cp312-torch2.11-cu128-cxx11-glibc2.39-sm120", {"cuda": True}),
        ("cp312-torch2.11-cu132-cxx11-glibc2.39-sm120", {"cuda": False}),
        (
            "cp310-torch2.9-cpu-precxx11-glibc2.31-sm90",
            dict.fromkeys(("python", "torch", "cuda", "cxx", "glibc", "gpu"), True),
        ),
        ("cp312-torch2.11-cu130-cxx11-glibc2.41-sm90+120", {}),
        ("cp312", {}),
    ],
)
def test_tags_are_compared_part_by_part(given_: str, breaks: dict[str, bool]) -> None:
    assert {found.part: found.breaks for found in compare(parse(FULL), parse(given_))} == breaks


def test_a_difference_shows_both_sides() -> None:
    assert compare(parse("cp312-cu130"), parse("cp312-cu128")) == (
        Difference("cuda", "cu130", "cu128", True),
    )


@pytest.mark.parametrize(
    ("soname", "major"),
    [
        ("libcudart.so.13", 13),
        ("libcudart.so.12.8.90", 12),
        ("libcudart-3f3c6934.so.11.0", 11),
        ("libcublasLt.so.13", 13),
        ("libnvrtc.so.12", 12),
        ("libnvrtc-builtins.so.13.0", 13),
        ("libnvJitLink.so.12", 12),
        ("libnppig.so.12", 12),
        ("libcufft.so.11", 12),
        ("libcufft.so.12", 13),
        ("libcusolver.so.12", 13),
        ("libcusolver.so.11", None),
        ("libcurand.so.10", None),
        ("libcusparse.so.12", None),
        ("libcudnn.so.9", None),
        ("libnccl.so.2", None),
        ("libcuda.so.1", None),
        ("libtorch_cuda.so", None),
        ("libcudart.so", None),
    ],
)
def test_which_cuda_a_name_belongs_to(soname: str, major: int | None) -> None:
    assert cuda_major(soname) == major


def test_majors_of_many() -> None:
    assert wanted(Library("x", needed=("libcudart.so.12", "libcublas.so.13", "libc.so.6"))) == {12, 13}
    assert majors([]) == set()
    assert is_driver("libcuda.so.1")
    assert not is_driver("libcudart.so.13")
