"""The Markdown form: no secret that was put in comes out, and what a maintainer needs stays."""

from __future__ import annotations

import ipaddress
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.doctor.diagnosis import Diagnosis, Said
from fleetctl.doctor.finding import Finding, Remedy
from fleetctl.doctor.markdown import markdown
from fleetctl.doctor.redact import redact

Secret = tuple[str, str]  # what must not come out, and the text that it stands in

WORD = string.ascii_letters + string.digits
names = st.text("abcdefgxyz0123456789", min_size=3, max_size=9).map(lambda text: f"zq{text}")
random_words = st.text(WORD, min_size=20, max_size=50).filter(lambda text: not text.isdigit())
v4 = st.ip_addresses(v=4).filter(lambda one: not one.is_loopback and int(one) != 0)
v6 = st.ip_addresses(v=6).filter(lambda one: not one.is_loopback and int(one) != 0)
uuids = st.uuids().map(str)
macs = st.lists(st.integers(0, 255), min_size=6, max_size=6).map(
    lambda parts: ":".join(f"{n:02x}" for n in parts)
)
before = st.sampled_from(
    ["", " ", "(", "'", '"', "[", "<", ", ", "=", ": ", "\n", "\t", "address ", "rank 0 "]
)
after = st.sampled_from(
    ["", " ", ")", "'", '"', "]", ">", ",", ";", ":8000", "/", "\n", ".", " failed", "<0>"]
)


def placed(what: st.SearchStrategy[str], *forms: str) -> st.SearchStrategy[Secret]:
    """The secret in one of the forms, with something around."""
    return st.tuples(what, st.sampled_from(forms), before, after).map(
        lambda each: (each[0], each[2] + each[1].format(each[0]) + each[3])
    )


secrets = st.one_of(
    placed(names, "/home/{}", "/home/{}/venv/bin/python", "/Users/{}/x y", "User={}"),
    placed(names, "{}@gpu1", "{}@10.1.2.3"),
    placed(names.map(lambda name: f"{name}.example.com"), "{}", "https://{}/v1", "http://{}:30000/x"),
    placed(names.map(lambda name: f"{name}.lan"), "{}"),
    placed(names.map(lambda name: f"{name}.rz.uni-x.de"), "{}"),
    placed(v4.map(str), "{}", "http://{}:30001/health", "[0]eth0:{}<0>", "tcp://{}", "host=={}"),
    placed(v6.map(str), "{}", "[{}]:29500"),
    placed(uuids, "GPU-{}", "{}"),
    placed(macs, "{}"),
    placed(random_words, "hf_{}", "sk-{}", "Bearer {}", "--api-key {}", "--api-key={}", "export HF_TOKEN={}"),
    placed(
        random_words, "'password': '{}'", '"api_key": "{}"', "Authorization: Basic {}", "http://u:{}@x.de/"
    ),
    placed(random_words, "Environment=HF_TOKEN={}", "error: SECRET_KEY={}", "AWS_SECRET_ACCESS_KEY: {}"),
    placed(random_words, "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----"),
    placed(random_words, "-----BEGIN RSA PRIVATE KEY-----\n{}"),
)
KNOWN_HOST, KNOWN_USER = "zqbox17", "zqmeier"
known = st.one_of(
    placed(st.just(KNOWN_HOST), "{}", "on {}:/srv", "Nov 29 12:00:00 {} sglang[1]: x", "{}.example.org"),
    placed(st.just(KNOWN_USER), "{}", "/srv/{}/venv", "owner_{}", "uid=1000({})"),
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.one_of(secrets, known), min_size=1, max_size=4),
    st.sampled_from(["what", "where", "evidence", "text", "command"]),
)
def test_no_secret_comes_out(put_in: list[Secret], part: str) -> None:
    text = " | ".join(text for _, text in put_in)
    remedy = Remedy(text if part == "text" else "", commands=(text,) if part == "command" else ())
    what = text if part == "what" else "x"
    finding = Finding(
        "sys-memory", "error", what, "", tuple(text.split("\n")) if part == "evidence" else (), remedy
    )
    facts = {"hostname": KNOWN_HOST, "os": {"name": text}}
    one = Diagnosis(KNOWN_HOST, (Said(finding, (text,) if part == "where" else ()),), facts=facts)
    said = markdown([one], hosts=[KNOWN_HOST], users=[KNOWN_USER]).lower()
    for secret, written in put_in:
        assert secret.lower() not in said, f"{written!r} gave\n{said}"


@pytest.mark.parametrize(
    "text",
    [
        "nvidia-cublas==13.1.0.3 is there, nvidia-cudnn-cu13 9.19.0.56 is not",
        "undefined symbol: _ZN3c1013MessageLoggerC1EPKciib",
        "lib/python3.12/site-packages/sgl_kernel/sm100/common_ops.abi3.so",
        "127.0.0.1:30001 and 0.0.0.0 and localhost answer",
        "sglang-dflash@1.service failed; --max-total-tokens 20000 --tokenizer-path x",
        "KeyError: 'model.layers.0.weight'",
        "at::native::add, c10::Error, std::vector<c10::Half>",
        "see https://github.com/sgl-project/sglang/issues/29317 at 12:00:01",
        "libcudart.so.13: cannot open shared object file: No such file or directory",
        'key_value_heads: 4, --mask-token-id 248070, "eos_token_id": 151645',
        "00000000:81:00.0: Xid 79, torch 2.11.0+cu130, driver 580.159.04",
        "triton.runtime.errors.OutOfResources: shared memory, Required: 106496",
        "from sglang.srt.managers.io_struct import x in torch.nn.functional",
    ],
)
def test_what_a_maintainer_needs_stays(text: str) -> None:
    assert redact(text) == text


def test_homes_and_users_are_named_by_what_they_were() -> None:
    said = redact("/home/zqanna/venv of zqanna, /root/ml-env, alice@box", {})
    assert said == "~/venv of USER, ~/ml-env, USER@HOST"


def test_a_version_that_looks_like_an_address_stays_where_the_environment_has_it() -> None:
    address = str(ipaddress.ip_address("10.4.0.35"))
    assert redact(f"found {address}", versions={address}) == f"found {address}"
    assert redact(f"found {address}") == "found ADDRESS"


def test_a_long_text_takes_no_long() -> None:
    for unit in ("a.", "a:", "--x ", "key=", "/home/", "0:", "1.1.", "@a", "aA1"):
        assert len(redact(unit * 200_000)) <= 200_000
