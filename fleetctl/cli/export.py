"""``fleetctl export``: the inventory's services in the words of other engines."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetctl.cli import complete

app = typer.Typer(
    help="Write services for another engine; asks and changes no host.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def export() -> None:
    """Write services for another engine; asks and changes no host."""


@app.command("k8s")
def k8s(
    host: Annotated[
        str | None, typer.Argument(help="The host, where more than one fits.", autocompletion=complete.hosts)
    ] = None,
    image: Annotated[str, typer.Option(help="The container image that has the engine.")] = "",
    service: Annotated[
        list[str] | None,
        typer.Option(help="Services, each by its name; all without.", autocompletion=complete.services),
    ] = None,
    namespace: Annotated[str | None, typer.Option(help="Put into each object.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Print Deployments, LeaderWorkerSets and Services (YAML) for kubectl apply -f -.

    Exit codes: 0 printed, 2 no such service, one that only its own unit can start, or no image's or namespace's name.
    """
    from fleetctl.cli.output import Output
    from fleetctl.errors import FleetError
    from fleetctl.export.k8s import as_yaml, check_image, check_namespace, export_services, secret_names
    from fleetctl.inventory.loader import load_fleet
    from fleetctl.inventory.select import select_host, select_service

    fleet = load_fleet()
    chosen = select_host(fleet, host, service=service[0] if service else None)
    names = [select_service(chosen, service=name) for name in service or []] or list(chosen.services)
    if not image:
        raise FleetError(
            "a pod needs an image, and the inventory has an environment on a host instead",
            where=f"{chosen.name}",
            fix="--image, such as lmsysorg/sglang:v0.5.11; it must hold what the environment does",
        )
    check_image(image)
    if namespace is not None:
        check_namespace(namespace)
    objects = export_services(fleet, chosen, names, image, namespace)
    output = Output(json=json)
    if output.json:
        output.document({"objects": objects})
        return
    for text in as_yaml(objects).splitlines():
        output.line(text)
    for name in names:
        if secrets := secret_names(chosen, chosen.services[name]):
            output.progress.print(
                f"{name}: {', '.join(secrets)} are left out; a Secret of that name must hold them",
                markup=False,
            )
