"""Tokens per second and accepted length of the four modes, on the same weights, interleaved in one run.

    python -m benchmarks.modes --model .fleetctl/models/smollm2-135m --drafter models/smollm2-135m-dflash

Every round measures each prompt in every mode before it goes on, so that a busy moment of the machine falls on all;
a prompt's figure is that of its best round. Decoding only: the prompt is read before the clock starts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import geometric_mean

from fleetctl.bench.prompts import load_prompts
from fleetctl.standalone.config import load_drafter_config, load_target_config
from fleetctl.standalone.contract import Counts, Mode, Sampling
from fleetctl.standalone.decoder import Decoder
from fleetctl.standalone.loading import DTYPES, Setup, load_weights
from fleetctl.standalone.text import TextCodec

PROMPTS = Path(__file__).parents[1] / "playbooks" / "bench" / "five-prompts.yaml"
BASELINES = (Mode.AUTOREGRESSIVE, Mode.LINEAR)


@dataclass(frozen=True)
class Figure:
    """One prompt in one mode: decoded tokens per second, tokens a verify pass committed, milliseconds a pass."""

    tokens_per_second: float
    accepted_length: float
    pass_milliseconds: float


def main() -> None:
    """Measure, print the table, and write it as JSON where asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True, help="the target's folder")
    parser.add_argument("--drafter", type=Path, required=True, help="the drafter's folder")
    parser.add_argument("--prompts", type=Path, default=PROMPTS, help="a playbook with `prompts:`")
    parser.add_argument("--modes", type=Mode, nargs="+", default=list(Mode), help="default: all")
    parser.add_argument("--tokens", type=int, default=128, help="tokens to decode for each prompt")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=int, default=16)
    parser.add_argument("--min-prob", type=float, default=0.05)
    parser.add_argument("--top-k", type=int, default=8)
    parser.add_argument("--dtype", choices=list(DTYPES), default="float32")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    given = parser.parse_args()
    figures = _measure(given)
    _print(figures, given)
    if given.json:
        given.json.write_text(json.dumps(_document(figures, given), indent=1) + "\n")


def _measure(given: argparse.Namespace) -> dict[Mode, dict[str, Figure]]:
    target_config = load_target_config(given.model)
    drafter_config = load_drafter_config(given.drafter, target_config)
    setup = Setup(
        given.model, target_config, given.drafter, drafter_config, Mode.TREE, given.budget, given.min_prob, given.top_k,
        given.dtype, given.threads,
    )  # fmt: skip
    target, drafter = load_weights(setup, lambda line: print(line, flush=True))
    decoders = {
        mode: Decoder(target, drafter, mode, given.budget, given.top_k, given.min_prob)
        for mode in given.modes
    }
    codec = TextCodec(given.model)
    best: dict[Mode, dict[str, Figure]] = {mode: {} for mode in decoders}
    for number in range(1, given.rounds + 1):
        print(f"round {number} of {given.rounds}", flush=True)
        for prompt in load_prompts(given.prompts):
            tokens = codec.encode_chat([{"role": "user", "content": prompt.text}])
            for mode, decoder in decoders.items():
                figure = _decode(decoder, tokens, given.tokens)
                known = best[mode].get(prompt.name)
                if known is None or figure.tokens_per_second > known.tokens_per_second:
                    best[mode][prompt.name] = figure
    return best


def _decode(decoder: Decoder, prompt: list[int], wanted: int) -> Figure:
    """Decode ``wanted`` tokens, end tokens included, and a little more where the last pass brings more."""
    counts = Counts()
    passes = decoder.generate(prompt, Sampling(), counts)
    next(passes)
    done = 0
    began = time.perf_counter()
    while done < wanted:
        done += len(next(passes))
    seconds = time.perf_counter() - began
    return Figure(
        done / seconds, 1 + counts.accepted / counts.verify_passes, seconds * 1e3 / counts.verify_passes
    )


def _print(figures: dict[Mode, dict[str, Figure]], given: argparse.Namespace) -> None:
    names = list(next(iter(figures.values())))
    tree = f"budget {given.budget}, min-prob {given.min_prob}, top-k {given.top_k}"
    print(f"\n{given.dtype}, {given.threads} threads, {tree}, "
          f"{given.tokens} tokens a prompt, best of {given.rounds} rounds")  # fmt: skip
    print(
        f"{'tokens/s (accepted length)':27}" + "".join(f"{name:>15}" for name in names) + "   geometric mean"
    )
    for mode, row in figures.items():
        cells = (f"{f.tokens_per_second:.1f} ({f.accepted_length:.2f})" for f in row.values())
        print(f"{mode.value:27}" + "".join(f"{cell:>15}" for cell in cells)
              + f"   {_mean(row):6.1f} ({geometric_mean(f.accepted_length for f in row.values()):.2f})")  # fmt: skip
    for name, ratio in _ratios(figures).items():
        print(f"{name}: {ratio:.3f}")


def _mean(row: dict[str, Figure]) -> float:
    return geometric_mean(figure.tokens_per_second for figure in row.values())


def _ratios(figures: dict[Mode, dict[str, Figure]]) -> dict[str, float]:
    return {
        f"{mode.value} / {baseline.value}": _mean(figures[mode]) / _mean(figures[baseline])
        for mode in figures
        for baseline in BASELINES
        if baseline in figures and mode is not baseline
    }


def _document(figures: dict[Mode, dict[str, Figure]], given: argparse.Namespace) -> dict[str, object]:
    return {
        "machine": platform.processor() or platform.machine(),
        "torch": version("torch"),
        **{
            name: getattr(given, name)
            for name in ("dtype", "threads", "budget", "min_prob", "top_k", "tokens", "rounds")
        },
        "modes": {mode.value: {name: asdict(f) for name, f in row.items()} for mode, row in figures.items()},
        "ratios": _ratios(figures),
    }


if __name__ == "__main__":
    main()
