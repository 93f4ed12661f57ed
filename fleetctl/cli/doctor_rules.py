"""``fleetctl doctor rules`` and ``doctor explain``: what doctor knows, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetctl.cli import complete

if TYPE_CHECKING:
    from fleetctl.doctor.rule import Rule

Json = Annotated[bool, typer.Option("--json", help="One JSON document.")]


def rules(json: Json = False) -> None:
    """List every rule by family: its severity, and why what it finds is a fault."""
    import fleetctl.doctor.rules  # noqa: F401  registers the rules
    from fleetctl.cli.output import Output
    from fleetctl.doctor.finding import FAMILIES
    from fleetctl.doctor.rule import RULES

    output = Output(json=json)
    ordered = sorted(RULES.values(), key=lambda rule: (FAMILIES.index(rule.family), rule.id))
    if output.json:
        output.document({"schema": 1, "rules": [_document(rule) for rule in ordered]})
        return
    rows = [[rule.family, rule.id, rule.severity, rule.reason] for rule in ordered]
    output.table(["family", "rule", "severity", "why"], rows)


def explain(
    rule: Annotated[str, typer.Argument(help="A rule's id.", autocompletion=complete.rules)],
    json: Json = False,
) -> None:
    """Say why a rule is one, where it is from, what to do, and show a case of it."""
    import fleetctl.doctor.rules  # noqa: F401  registers the rules
    from fleetctl.cli.output import Output
    from fleetctl.doctor.document import examples, remedy_line
    from fleetctl.doctor.rule import RULES
    from fleetctl.doctor.signatures import SIGNATURES
    from fleetctl.errors import FleetError
    from fleetctl.inventory.nearest import nearest_few

    output = Output(json=json)
    known = RULES.get(rule)
    signatures = [one for one in SIGNATURES if one.id == rule]
    if known is None and not signatures:
        ids = {*RULES, *(one.id for one in SIGNATURES)}
        near = nearest_few(rule, sorted(ids))
        meant = f"did you mean {' or '.join(near)}? " if near else ""
        raise FleetError(f"no rule {rule}", fix=f"{meant}`fleetctl doctor rules` lists them")
    cases = examples(rule)
    if output.json:
        logged = [one.to_dict() for one in signatures]
        about = _document(known) if known else {"id": rule, "family": signatures[0].family}
        output.document({"schema": 1, **about, "signatures": logged, "cases": [path.name for path in cases]})
        return
    if known:
        output.styled([(known.id, "bold"), (f"  {known.severity}", "")])
        output.line(f"why     {known.reason}")
        output.line(f"source  {known.source}")
        output.line(f"remedy  {remedy_line(known.remedy) or 'depends on what is found'}")
    else:
        output.styled([(rule, "bold"), ("  in logs only", "")])
    for one in signatures:
        output.line(f"log     {one.pattern}")
        output.line(
            f"  says  {one.reason}"
            + (" (a consequence: the cause stands before it)" if one.consequence else "")
        )
        if one.fix:
            output.line(f"  fix   {one.fix}")
    if cases:
        output.line(f"example ({cases[0].name})")
        for line in cases[0].read_text(encoding="utf-8").splitlines():
            output.line(f"  {line}")


def _document(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "family": rule.family,
        "severity": rule.severity,
        "reason": rule.reason,
        "source": rule.source,
        "remedy": rule.remedy.to_dict(),
    }
